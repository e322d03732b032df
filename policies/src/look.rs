//! What one pairing looks at, and what can be predicted from it.

use std::cell::OnceCell;

use tandem_core::fleet::{Figures, Fleet, LABELS, LabelId, Traits, is};
use tandem_core::pairing::{RequestFacts, Stage};
use tandem_core::prefix_index::Hits;

/// The fleet's figures and the request's facts.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
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
    pub(crate) model: Option<[f32; 4]>,
    fleet: &'a Fleet,
    /// Of workers that have not measured yet: what the others have, or 0. Seldom asked for.
    mean: &'a OnceCell<f32>,
}

impl<'a> Times<'a> {
    /// With what the workers of a fleet measured.
    pub(crate) const fn measured(
        model: Option<[f32; 4]>,
        fleet: &'a Fleet,
        mean: &'a OnceCell<f32>,
    ) -> Self {
        Self { model, fleet, mean }
    }

    /// Nanoseconds a token, of each worker that computes prompts and has measured.
    fn all(&self) -> impl Iterator<Item = f32> {
        let stage = match self.fleet.of_stage(Stage::Prefill) {
            [] => Stage::Decode,
            _ => Stage::Prefill,
        };
        let workers = self.fleet.of_stage(stage).iter();
        let each = workers.map(|at| self.fleet.figures()[usize::from(*at)].prefill_ns);
        each.filter(|ns| *ns > 0.0)
    }

    fn mean(&self) -> f32 {
        let mean = || {
            let (sum, count) = self
                .all()
                .fold((0.0, 0.0), |(sum, n), ns| (sum + ns, n + 1.0));
            if count > 0.0 { sum / count } else { 0.0 }
        };
        *self.mean.get_or_init(mean)
    }

    /// Whether times are known, not only which of two is longer.
    pub(crate) fn known(&self) -> bool {
        self.model.is_some() || self.all().next().is_some()
    }

    /// Milliseconds for a token of `worker`. Where nobody knows, one stands for all.
    fn per_token(&self, worker: &Figures) -> f32 {
        let ns = match worker.prefill_ns {
            own if own > 0.0 => own,
            _ if self.mean() > 0.0 => self.mean(),
            _ => 1.0,
        };
        ns / 1e6
    }

    /// Milliseconds until the worker has computed what waits there.
    pub(crate) fn queue_ms(&self, worker: &Figures) -> f32 {
        let each = self.model.map_or_else(|| self.per_token(worker), |m| m[1]);
        worker.queued_tokens as f32 * each
    }

    /// Milliseconds for a prompt of which it holds a part.
    pub(crate) fn prefill_ms(&self, worker: &Figures, tokens: u32, held: u32) -> f32 {
        let (tokens, held) = (tokens.saturating_sub(held) as f32, held as f32);
        match self.model {
            Some([constant, each, cached, square]) => {
                constant + each * tokens + cached * held + square * tokens * tokens
            }
            None => tokens * self.per_token(worker),
        }
    }
}

impl Look<'_> {
    /// Tokens of the prompt that the worker holds.
    pub(crate) fn held(&self, worker: &Figures) -> u32 {
        worker.hit_tokens(self.hits).min(self.request.prompt_tokens)
    }

    /// Milliseconds from now to the end of the prompt there.
    pub(crate) fn ttft_ms(&self, worker: &Figures) -> f32 {
        let prompt = self.request.prompt_tokens;
        self.times.queue_ms(worker) + self.times.prefill_ms(worker, prompt, self.held(worker))
    }

    /// Share of its pages that somebody has.
    pub(crate) const fn used_share(worker: &Figures) -> f32 {
        worker.used_pages() as f32 / worker.pages as f32
    }

    /// How much the worker has to do, at this stage.
    pub(crate) const fn load(&self, worker: &Figures) -> f32 {
        match self.stage {
            Stage::Prefill => worker.queued_tokens as f32,
            Stage::Decode => Self::used_share(worker),
        }
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
