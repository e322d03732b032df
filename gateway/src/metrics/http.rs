//! Figures of connections and certificates.

use ::metrics::{Counter, Gauge, Key, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::METADATA;

const CONNECTIONS: &str = "tandem_http_connections";
const REFUSED: &str = "tandem_http_connections_refused_total";
const EXPIRY: &str = "tandem_tls_certificate_expiry_seconds";
const RELOADS: &str = "tandem_tls_reloads_total";

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    Http3,
}

/// Why a client got no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its address has as many as it may.
    Address,
    /// Its handshake failed.
    Handshake,
    /// Its handshake took too long.
    Slow,
}

/// Handles of what changes often.
pub(crate) struct Http {
    connections: [Gauge; 3],
    refused: [Counter; 3],
    expiry: Gauge,
    reloads: [Counter; 2],
}

/// A connection, counted until this is dropped.
pub(crate) struct Counted(Gauge);

impl Http {
    pub(super) fn new(recorder: &PrometheusRecorder) -> Self {
        let about = [
            (CONNECTIONS, "Client connections that are open."),
            (
                EXPIRY,
                "Seconds since 1970 at which the clients' certificate expires.",
            ),
        ];
        for (name, what) in about {
            recorder.describe_gauge(name.into(), None, what.into());
        }
        let about = [
            (REFUSED, "Clients that got no connection, by reason."),
            (
                RELOADS,
                "Changed certificates that were looked at, by result.",
            ),
        ];
        for (name, what) in about {
            recorder.describe_counter(name.into(), None, what.into());
        }
        let key = |name: &'static str, label: &'static str, value: &'static str| {
            Key::from_parts(name, vec![Label::from_static_parts(label, value)])
        };
        let counter =
            |name, label, value| recorder.register_counter(&key(name, label, value), &METADATA);
        Self {
            connections: ["http1", "http2", "http3"].map(|protocol| {
                recorder.register_gauge(&key(CONNECTIONS, "protocol", protocol), &METADATA)
            }),
            refused: ["address", "handshake", "slow_handshake"]
                .map(|reason| counter(REFUSED, "reason", reason)),
            expiry: recorder.register_gauge(&Key::from_static_name(EXPIRY), &METADATA),
            reloads: ["ok", "failed"].map(|result| counter(RELOADS, "result", result)),
        }
    }

    pub(crate) fn connected(&self, protocol: Protocol) -> Counted {
        let gauge = &self.connections[protocol as usize];
        gauge.increment(1.0);
        Counted(gauge.clone())
    }

    pub(crate) fn refused(&self, why: Refused) {
        self.refused[why as usize].increment(1);
    }

    pub(crate) fn certificate(&self, expiry: i64) {
        self.expiry.set(expiry as f64);
    }

    pub(crate) fn reloaded(&self, ok: bool) {
        self.reloads[usize::from(!ok)].increment(1);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
