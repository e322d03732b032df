//! An exporter of figures that says how it is.

use std::time::Duration;

use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;

use super::health::HealthOf;

pub(super) struct Figures {
    exporter: MetricExporter,
    health: HealthOf,
}

impl Figures {
    pub(super) const fn new(exporter: MetricExporter, health: HealthOf) -> Self {
        Self { exporter, health }
    }
}

impl PushMetricExporter for Figures {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let result = self.exporter.export(metrics).await;
        self.health.tried(result.as_ref().copied());
        result
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
