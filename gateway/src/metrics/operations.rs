//! Figures of what operators do: the configuration in force, and what workers are allowed. Made anew for
//! each scrape, so that a hash that is no longer in force leaves nothing behind.

use ::metrics::{Key, Label, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use super::METADATA;
use crate::app::App;
use crate::door::{Allowed, View};

const SUCCESS: &str = "tandem_config_reload_success";
const RELOADS: &str = "tandem_config_reloads_total";
const INFO: &str = "tandem_config_info";
const RESTART: &str = "tandem_config_needs_restart";
const KEYS: &str = "tandem_auth_keys";
const DRAINED: &str = "tandem_worker_drained";
const WEIGHT: &str = "tandem_worker_weight";
const STOPPING: &str = "tandem_gateway_stopping";
const EXPIRY: &str = "tandem_certificate_expiry_seconds";

const GAUGES: [(&str, &str); 8] = [
    (
        SUCCESS,
        "Whether the latest reload of the configuration succeeded, or there was none.",
    ),
    (
        INFO,
        "Always 1; hash: the first digits of the SHA-256 of the configuration file in force.",
    ),
    (RESTART, "Keys whose change waits for a restart."),
    (KEYS, "API keys that are known."),
    (
        DRAINED,
        "Whether this gateway gives the worker nothing new.",
    ),
    (WEIGHT, "The worker's weight at this gateway, in percent."),
    (STOPPING, "Whether the gateway is about to stop."),
    (
        EXPIRY,
        "Seconds since 1970 at which a certificate of the fleet's own expires, by whose it is.",
    ),
];

/// All of them.
pub(crate) fn render(app: &App, view: &View) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    for (name, what) in GAUGES {
        recorder.describe_gauge(name.into(), None, what.into());
    }
    let what = "Reloads of the configuration, by how they went.";
    recorder.describe_counter(RELOADS.into(), None, what.into());
    gauge(
        &recorder,
        STOPPING,
        vec![],
        f64::from(u8::from(app.is_stopping())),
    );
    if let Some(keys) = app.gate.rules().keys() {
        gauge(&recorder, KEYS, vec![], keys as f64);
    }
    if let Some(reloads) = &app.reloads {
        let report = reloads.report();
        let success = f64::from(u8::from(report.success()));
        gauge(&recorder, SUCCESS, vec![], success);
        let hash = Label::new("hash", report.hash().to_owned());
        gauge(&recorder, INFO, vec![hash], 1.0);
        gauge(&recorder, RESTART, vec![], report.restart().len() as f64);
        for (result, count) in [
            ("reloaded", report.reloaded),
            ("unchanged", report.unchanged),
            ("failed", report.failed),
        ] {
            let key = Key::from_parts(RELOADS, vec![Label::new("result", result)]);
            recorder.register_counter(&key, &METADATA).absolute(count);
        }
    }
    for seat in app.roster.seats().values() {
        let Some(worker) = &seat.worker else { continue };
        let id = &worker.facts.worker;
        let Allowed { drained, weight } = view.allowed(id);
        let label = || vec![Label::new("worker", id.to_string())];
        gauge(&recorder, DRAINED, label(), f64::from(u8::from(drained)));
        gauge(&recorder, WEIGHT, label(), f64::from(weight));
    }
    certificates(&recorder, app);
    recorder.handle().render()
}

/// Until when the gateway and its workers know one another.
fn certificates(recorder: &PrometheusRecorder, app: &App) {
    let expiry = |role: &'static str, name: &str, at: u64| {
        let labels = vec![
            Label::new("role", role),
            Label::new("name", name.to_owned()),
        ];
        gauge(recorder, EXPIRY, labels, at as f64);
    };
    let name = &app.live.get().identity.name;
    expiry("gateway", name, app.endpoint.expiry());
    expiry("authority", "ca", app.endpoint.authority_expiry());
    if let Some(tls) = &app.admin_tls {
        let at = u64::try_from(tls.expiry()).unwrap_or_default();
        expiry("operators", "listener", at);
    }
    for seat in app.roster.seats().values() {
        // One that is not connected, or is of an older make, does not tell.
        let told = seat.load.as_ref().map(|load| load.certificate_expiry);
        if let (Some(worker), Some(at @ 1..)) = (&seat.worker, told) {
            expiry("worker", worker.facts.worker.as_str(), at);
        }
    }
}

fn gauge(recorder: &PrometheusRecorder, name: &'static str, labels: Vec<Label>, value: f64) {
    let key = Key::from_parts(name, labels);
    recorder.register_gauge(&key, &METADATA).set(value);
}
