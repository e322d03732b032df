//! What one pairing looks at, and what can be predicted from it.

use std::cell::OnceCell;

use tandem_core::fleet::{Columns, Figures, Fleet, LABELS, LabelId, Traits, is};
use tandem_core::pairing::{RequestFacts, Stage};
use tandem_core::prefix_index::Hits;

/// The fleet's figures and the request's facts.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    /// Of the stage's workers.
    pub(crate) columns: &'a Columns,
    pub(crate) figures: &'a [Figures],
    pub(crate) traits: &'a [Traits],
    /// All workers weigh the same.
    pub(crate) even: bool,
    pub(crate) request: &'a RequestFacts,
    pub(crate) hits: &'a [Hits],
    pub(crate) stage: Stage,
    /// Of the decode worker, the nearest level first; while the prefill worker is chosen.
    pub(crate) near: Levels,
    pub(crate) times: Times<'a>,
    /// Since the request arrived.
    pub(crate) waited_ms: f32,
}

/// A worker's labels at the levels of `[policy.topology]`.
pub(crate) type Levels = [LabelId; LABELS];

/// How long prompts take.
#[derive(Clone, Copy)]
pub(crate) struct Times<'a> {
    /// Constant, per token to compute, per token held, per square of a token to compute; milliseconds.
    model: Option<[f32; 4]>,
    fleet: &'a Fleet,
    /// Of workers that have not measured yet: what the others have, or 1 where nobody has: one stands for
    /// all. Seldom asked for.
    unknown_ns: &'a OnceCell<f32>,
}

impl<'a> Times<'a> {
    /// With what the workers of a fleet measured.
    pub(crate) const fn measured(
        model: Option<[f32; 4]>,
        fleet: &'a Fleet,
        unknown_ns: &'a OnceCell<f32>,
    ) -> Self {
        Self {
            model,
            fleet,
            unknown_ns,
        }
    }

    /// Nanoseconds a token, of each worker that computes prompts; 0 of those that have not measured.
    fn all(&self) -> &'a [f32] {
        let prefills = self.fleet.of_stage(Stage::Prefill);
        if prefills.is_empty() {
            return &self.fleet.of_stage(Stage::Decode).prefill_ns;
        }
        &prefills.prefill_ns
    }

    fn mean(&self) -> f32 {
        let measured = self.all().iter().filter(|ns| **ns > 0.0);
        let (sum, count) = measured.fold((0.0, 0.0), |(sum, n), ns| (sum + ns, n + 1.0));
        if count > 0.0 { sum / count } else { 1.0 }
    }

    /// Whether times are known, not only which of two is longer.
    pub(crate) fn known(&self) -> bool {
        self.model.is_some() || self.all().iter().any(|ns| *ns > 0.0)
    }

    /// For workers of these times, in nanoseconds a token; 0: not measured.
    pub(crate) fn rates(&self, prefill_ns: &[f32]) -> Rates {
        let all_known = prefill_ns.iter().all(|ns| *ns > 0.0);
        Rates {
            model: self.model,
            unknown_ns: match all_known {
                true => 1.0,
                false => *self.unknown_ns.get_or_init(|| self.mean()),
            },
        }
    }

    /// Milliseconds until the worker has computed what waits there.
    pub(crate) fn queue_ms(&self, worker: &Figures) -> f32 {
        let rates = self.rates(&[worker.prefill_ns]);
        rates.queue_ms(worker.prefill_ns, worker.queued_tokens)
    }

    /// Milliseconds for a prompt of which it holds a part.
    pub(crate) fn prefill_ms(&self, worker: &Figures, tokens: u32, held: u32) -> f32 {
        let rates = self.rates(&[worker.prefill_ns]);
        rates.prefill_ms(worker.prefill_ns, tokens as f32, held as f32)
    }
}

/// How long prompts take on workers of known times.
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    model: Option<[f32; 4]>,
    unknown_ns: f32,
}

impl Rates {
    /// Milliseconds for a token.
    #[inline]
    fn per_token(&self, own_ns: f32) -> f32 {
        let ns = if own_ns > 0.0 {
            own_ns
        } else {
            self.unknown_ns
        };
        ns / 1e6
    }

    /// Milliseconds for the tokens that wait.
    #[inline]
    pub(crate) fn queue_ms(&self, own_ns: f32, queued_tokens: u32) -> f32 {
        let each = self.model.map_or_else(|| self.per_token(own_ns), |m| m[1]);
        queued_tokens as f32 * each
    }

    /// Milliseconds for a prompt of which a part is held.
    #[inline]
    pub(crate) fn prefill_ms(&self, own_ns: f32, tokens: f32, held: f32) -> f32 {
        let tokens = (tokens - held).max(0.0);
        match self.model {
            Some([constant, each, cached, square]) => {
                constant + each * tokens + cached * held + square * tokens * tokens
            }
            None => tokens * self.per_token(own_ns),
        }
    }
}

impl Look<'_> {
    /// Tokens of the prompt that the worker holds.
    pub(crate) fn held(&self, worker: &Figures) -> u32 {
        worker.hit_tokens(self.hits).min(self.request.prompt_tokens)
    }

    /// Levels that the decode worker has a label at.
    pub(crate) fn levels(&self) -> &[LabelId] {
        known(&self.near)
    }
}

/// Those that have a label: the first ones.
pub(crate) fn known(levels: &Levels) -> &[LabelId] {
    let count = levels.iter().position(|label| *label == LabelId::NONE);
    &levels[..count.unwrap_or(LABELS)]
}

/// From 0 (nothing in common) to 1 (the nearest level is the same).
#[inline]
pub(crate) fn nearness(levels: &[LabelId], worker: &Traits) -> f32 {
    let common = levels.iter().position(|label| worker.has(*label));
    common.map_or(0.0, |at| 1.0 - at as f32 / levels.len() as f32)
}

/// Microseconds of a decode step with so many sequences; 0 where nobody measured.
pub(crate) fn step_us(worker: &Figures, batch: f32) -> f32 {
    worker.step_base_us + worker.step_slope_us * batch
}

/// Whether it computes what it decodes.
pub(crate) const fn does_both(worker: &Figures) -> bool {
    worker.flags & is::BOTH != 0
}
