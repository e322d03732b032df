//! The time of one step.

use std::time::Duration;

use crate::{Profile, Work};

/// What one layer of a step takes, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerTime {
    /// Whatever the step holds.
    pub fixed_us: f64,
    /// Reading weights.
    pub weights_us: f64,
    /// Multiplying them with tokens.
    pub compute_us: f64,
    /// Attention of prompts' tokens.
    pub prefill_attention_us: f64,
    /// Reading decoding sequences' KV entries.
    pub decode_attention_us: f64,
    /// Exchange among ranks.
    pub exchange_us: f64,
}

impl LayerTime {
    /// All of it.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.fixed_us
            + self.weights_us
            + self.compute_us
            + self.prefill_attention_us
            + self.decode_attention_us
            + self.exchange_us
    }

    /// All of it, to the nanosecond.
    #[must_use]
    pub fn total(&self) -> Duration {
        micros(self.total_us())
    }
}

impl Profile {
    /// What one layer of a step with this work takes.
    #[must_use]
    pub fn layer(&self, work: &Work) -> LayerTime {
        if work.tokens == 0 {
            return LayerTime::default();
        }
        let tokens = work.tokens as f64;
        let attention = &self.attention;
        let exchange = self.exchange.as_ref().map_or(0.0, |of| {
            f64::from(of.per_layer) * of.us.at(of.bytes_per_token * tokens)
        });
        // A megabyte in a gigabyte a second takes a millisecond.
        let read_us = |mb: f64| mb * 1000.0 / self.memory_gb_per_s;
        let kv_mb = work.kv_tokens as f64 * attention.kv_bytes_per_token / 1e6;
        LayerTime {
            fixed_us: self.step.layer_us,
            weights_us: read_us(self.weight_mb(work.tokens)),
            compute_us: tokens * self.dense.ns_per_token / 1e3,
            prefill_attention_us: work.pairs as f64 * attention.ps_per_pair / 1e6,
            decode_attention_us: read_us(kv_mb),
            exchange_us: exchange,
        }
    }

    /// What is added to the layers of a step.
    #[must_use]
    pub fn overhead(&self) -> Duration {
        micros(self.step.overhead_us)
    }

    /// What a step with this work takes: its overhead and all layers.
    #[must_use]
    pub fn step(&self, work: &Work) -> Duration {
        if work.tokens == 0 {
            return Duration::ZERO;
        }
        self.overhead() + self.layer(work).total() * u32::from(self.kv.layers)
    }

    /// What a layer's entries of so many tokens take to another worker.
    #[must_use]
    pub fn push(&self, tokens: u64) -> Duration {
        if tokens == 0 {
            return Duration::ZERO;
        }
        micros(self.link.layer_us + tokens as f64 * self.link.ns_per_token / 1e3)
    }

    /// What all layers' entries of so many tokens take to another worker where they travel together, when the
    /// prompt is computed: the part of each layer is charged once.
    #[must_use]
    pub fn push_all(&self, tokens: u64) -> Duration {
        if tokens == 0 {
            return Duration::ZERO;
        }
        let entries = tokens as f64 * f64::from(self.kv.layers);
        micros(self.link.layer_us + entries * self.link.ns_per_token / 1e3)
    }

    /// Megabytes of weights that a step of so many tokens reads in a layer: those that all tokens share,
    /// and those of the experts that some token takes, if tokens choose among them at random.
    fn weight_mb(&self, tokens: u64) -> f64 {
        let experts = self.experts.map_or(0.0, |of| {
            let count = f64::from(of.count);
            let missed = 1.0 - f64::from(of.active) / count;
            let choosing = tokens as f64 * f64::from(of.ranks);
            count * (1.0 - missed.powf(choosing)) * of.expert_mb
        });
        self.dense.weight_mb + experts
    }
}

pub(crate) fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).round() as u64)
}
