//! The way to a collector: OTLP over HTTP, in protobuf.
//!
//! Spans wait in a bounded queue and go out in batches, from one task; figures go out from a thread of
//! OpenTelemetry's. What finds the queue full, or meets a collector that does not take it, is dropped
//! and counted. A failure is logged when it begins and when it is over, not in between.

mod client;
mod figures;
mod health;
mod queue;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SpanExporter as _;
use tandem_config::TelemetryConfig;
use tandem_wire::task::{Task, spawn};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::genai::{self, Instruments};
use crate::span::{self, Clocks, Span};
use crate::trace::{Sampler, TraceContext};
use client::Client;
use figures::Figures;
use health::Health;
use queue::{Batches, Message};

const SCOPE: &str = "tandem";

/// Why telemetry cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The collector's certificate could never be checked.
    #[error(
        "[telemetry] otlp_endpoint: https needs the system's certificates, which cannot be read ({0}): \
         install ca-certificates, or use http to a collector on this machine"
    )]
    Roots(std::io::Error),
    /// OpenTelemetry refuses the configuration.
    #[error("[telemetry] {0}")]
    Exporter(#[from] ExporterBuildError),
}

/// Where spans and figures are handed over. Costs nothing where no collector is configured.
#[derive(Clone, Debug, Default)]
pub struct Spans(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    queue: mpsc::Sender<Message>,
    /// Spans that may wait.
    limit: u64,
    waiting: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
    scope: InstrumentationScope,
    instruments: Instruments,
    ratio: f64,
}

impl Spans {
    /// Whether there is a collector.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Which traces that begin here are recorded.
    #[must_use]
    pub fn sampler(&self) -> Sampler {
        Sampler {
            ratio: self.0.as_ref().map_or(0.0, |shared| shared.ratio),
            exporting: self.is_on(),
        }
    }

    /// Spans that never reached the collector.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |shared| shared.dropped.load(Ordering::Relaxed))
    }

    /// Hands over the spans of one part of a trace, where the trace is recorded; `spans` is not called
    /// otherwise. Never waits.
    pub fn record(&self, context: &TraceContext, spans: impl FnOnce() -> Vec<Span>) {
        let Some(shared) = self.0.as_ref().filter(|_| context.is_sampled()) else {
            return;
        };
        let clocks = Clocks {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        };
        shared.hand_over(span::export(context, &shared.scope, clocks, spans()));
    }

    /// A request has ended.
    pub fn request(&self, request: &genai::Request<'_>) {
        if let Some(shared) = &self.0 {
            shared.instruments.record(request);
        }
    }
}

impl Shared {
    fn hand_over(&self, spans: Message) {
        let count = spans.len() as u64;
        let before = self.waiting.fetch_add(count, Ordering::Relaxed);
        // Sent and taken back under the same count: never more than the limit wait.
        if before + count > self.limit || self.queue.try_send(spans).is_err() {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// What runs behind [`Spans`].
#[derive(Debug, Default)]
pub struct Telemetry {
    spans: Spans,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    batches: Task<()>,
    meters: SdkMeterProvider,
}

impl Telemetry {
    /// Starts, in the tokio runtime that it is called in. `instance` names the process among those of
    /// the service, `role` says what it does. Does nothing where no collector is configured.
    ///
    /// # Errors
    /// [`TelemetryError`], of the configuration; a collector that is not there is no error.
    pub fn start(
        config: &TelemetryConfig,
        instance: &str,
        role: &'static str,
    ) -> Result<Self, TelemetryError> {
        let Some(endpoint) = &config.otlp_endpoint else {
            return Ok(Self::default());
        };
        let client = Client::new(endpoint, config.otlp_timeout)?;
        let resource = resource(config, instance, role);
        let health = Health::new(endpoint.to_string());
        let dropped = Arc::new(AtomicU64::new(0));

        let figures = Figures::new(metric_exporter(config, &client)?, health.of("figures"));
        let reader = PeriodicReader::builder(figures)
            .with_interval(config.otlp_interval)
            .build();
        let meters = SdkMeterProvider::builder()
            .with_resource(resource.clone())
            .with_reader(reader)
            .build();
        let instruments = Instruments::new(&meters.meter(SCOPE));

        let mut exporter = span_exporter(config, &client)?;
        exporter.set_resource(&resource);
        let limit = config.otlp_queue_limit;
        let (queue, inbox) = mpsc::channel(limit);
        let waiting = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let batches = Batches {
            exporter,
            interval: config.otlp_interval,
            health: health.of("spans"),
            waiting: Arc::clone(&waiting),
            dropped: Arc::clone(&dropped),
        };
        let shared = Shared {
            queue,
            limit: limit as u64,
            waiting,
            dropped,
            scope: InstrumentationScope::builder(SCOPE)
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            instruments,
            ratio: config.sample,
        };
        Ok(Self {
            spans: Spans(Some(Arc::new(shared))),
            running: Some(Running {
                stop,
                batches: spawn("telemetry", batches.run(inbox, stopped)),
                meters,
            }),
        })
    }

    /// The way in.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.spans.clone()
    }

    /// Sends what waits, within `time`, and ends.
    pub async fn stop(self, time: Duration) {
        let Some(running) = self.running else { return };
        let _ = running.stop.send(());
        let meters = running.meters;
        // It blocks for as long as its last export takes, which has a timeout of its own.
        let figures = tokio::task::spawn_blocking(move || meters.shutdown());
        let both = async {
            running.batches.join().await;
            let _ = figures.await;
        };
        if timeout(time, both).await.is_err() {
            tracing::warn!("telemetry that was left at the end was not sent in time");
        }
    }
}

fn resource(config: &TelemetryConfig, instance: &str, role: &'static str) -> Resource {
    let own = [
        KeyValue::new("service.namespace", "tandem"),
        KeyValue::new("service.instance.id", instance.to_owned()),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("tandem.role", role),
    ];
    let configured = config.resource.iter();
    Resource::builder_empty()
        .with_attributes(own)
        .with_service_name(config.service_name.clone())
        .with_attributes(configured.map(|(key, value)| KeyValue::new(key.clone(), value.clone())))
        .build()
}

fn headers(config: &TelemetryConfig) -> HashMap<String, String> {
    let pair = |(name, value): (&String, &tandem_config::Secret)| {
        (name.clone(), value.expose().to_owned())
    };
    config.headers.iter().map(pair).collect()
}

fn span_exporter(
    config: &TelemetryConfig,
    client: &Client,
) -> Result<SpanExporter, ExporterBuildError> {
    SpanExporter::builder()
        .with_http()
        .with_http_client(client.clone())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(client.path("v1/traces"))
        .with_headers(headers(config))
        .with_timeout(config.otlp_timeout)
        .build()
}

fn metric_exporter(
    config: &TelemetryConfig,
    client: &Client,
) -> Result<MetricExporter, ExporterBuildError> {
    MetricExporter::builder()
        .with_http()
        .with_http_client(client.clone())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(client.path("v1/metrics"))
        .with_headers(headers(config))
        .with_timeout(config.otlp_timeout)
        .build()
}
