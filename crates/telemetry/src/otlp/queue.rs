//! The task that sends spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::health::HealthOf;

/// Spans of one part of a trace.
pub(super) type Message = Vec<SpanData>;

/// Spans that are sent together, about.
const BATCH: usize = 512;

pub(super) struct Batches {
    pub(super) exporter: SpanExporter,
    /// How long spans wait for others.
    pub(super) interval: Duration,
    pub(super) health: HealthOf,
    pub(super) waiting: Arc<AtomicU64>,
    pub(super) dropped: Arc<AtomicU64>,
}

impl Batches {
    /// Sends until it is stopped, and then what is left.
    pub(super) async fn run(
        self,
        mut inbox: mpsc::Receiver<Message>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let mut stopping = false;
        loop {
            let first = tokio::select! {
                first = inbox.recv() => first,
                // A sender that is gone means the same.
                _ = &mut stopped, if !stopping => {
                    stopping = true;
                    inbox.close();
                    continue;
                }
            };
            let Some(mut batch) = first else { return };
            let until = Instant::now() + self.interval;
            while batch.len() < BATCH {
                tokio::select! {
                    more = timeout_at(until, inbox.recv()) => match more {
                        Ok(Some(more)) => batch.extend(more),
                        Ok(None) | Err(_) => break,
                    },
                    _ = &mut stopped, if !stopping => {
                        stopping = true;
                        inbox.close();
                    }
                }
            }
            self.send(batch).await;
        }
    }

    async fn send(&self, batch: Message) {
        let count = batch.len() as u64;
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        let result = self.exporter.export(batch).await;
        if result.is_err() {
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
        self.health.tried(result.as_ref().copied());
    }
}
