//! Why a pair was chosen: numbers on the way, words when someone asks.

use std::fmt;
use std::time::Duration;

use super::{FILTERS, Filtered, Local};
use crate::WorkerId;

/// Of what a candidate is worth, higher first. Compared and hashed by its bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Score(u32);

impl Score {
    /// The score of this value.
    #[must_use]
    pub const fn of(value: f32) -> Self {
        // -0 is 0.
        Self((value + 0.0).to_bits())
    }

    /// Its value.
    #[must_use]
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A candidate and the figures that it was judged by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    /// Who.
    pub worker: WorkerId,
    /// What it was worth by the stage's rule.
    pub score: Score,
    /// Prompt tokens that wait there.
    pub queued_tokens: u32,
    /// Requests that run or wait there.
    pub requests: u32,
    /// Pages that are free there.
    pub free_pages: u32,
    /// All its pages.
    pub pages: u32,
    /// Prompt tokens that it holds.
    pub hit_tokens: u32,
}

/// How one worker of the pair was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StageWhy {
    /// The rule's name.
    pub rule: &'static str,
    /// Workers that could take it.
    pub candidates: u16,
    /// Workers that could not, by [`Filtered::ALL`].
    pub filtered: [u16; FILTERS],
    /// The chosen one first, then the best of the others; all of them in a small fleet.
    pub shown: Vec<Shown>,
    /// Some of those that were filtered out; all of them in a small fleet. Those of another role are
    /// not listed.
    pub out: Vec<(WorkerId, Filtered)>,
}

/// How a pair was chosen, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Why {
    /// Who generates.
    pub decode: StageWhy,
    /// Who computes the prompt; `None` where that was not asked.
    pub prefill: Option<StageWhy>,
    /// Why the decode worker does.
    pub local: Option<Local>,
    /// Pairs that were compared with one another; 0 where each stage chose alone.
    pub pairs: u16,
    /// Predicted time to the first token, from arrival on.
    pub ttft: Option<Duration>,
    /// Predicted time between tokens.
    pub tpot: Option<Duration>,
}

impl StageWhy {
    /// Whether some worker would do after its next report.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        let all = Filtered::ALL.iter().zip(self.filtered);
        all.into_iter()
            .any(|(why, count)| why.passes() && count > 0)
    }

    /// As [`Self::may_pass`], of those that were filtered out for another reason than this one.
    #[must_use]
    pub fn may_pass_but(&self, reason: Filtered) -> bool {
        let all = Filtered::ALL.iter().zip(self.filtered);
        all.into_iter()
            .any(|(why, count)| *why != reason && why.passes() && count > 0)
    }
}

impl fmt::Display for StageWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown.first() {
            Some(chosen) => write!(f, "{} by {} ({chosen})", chosen.worker, self.rule)?,
            None => write!(f, "nobody by {}", self.rule)?,
        }
        write!(f, " of {}", self.candidates)?;
        let mut lead = ", not: ";
        for (why, count) in Filtered::ALL.iter().zip(self.filtered) {
            if count > 0 && *why != Filtered::Role {
                write!(f, "{lead}{count} {}", why.as_str())?;
                lead = ", ";
            }
        }
        Ok(())
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "score {:.3}, {} tokens queued, {} requests, {} of {} pages free, {} tokens held",
            self.score.get(),
            self.queued_tokens,
            self.requests,
            self.free_pages,
            self.pages,
            self.hit_tokens
        )
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "decode: {}", self.decode)?;
        if let Some(prefill) = &self.prefill {
            write!(f, "; prefill: {prefill}")?;
        }
        if let Some(local) = self.local {
            write!(f, "; prefill there: {}", local.as_str())?;
        }
        if self.pairs > 0 {
            write!(f, "; best of {} pairs", self.pairs)?;
        }
        for (what, time) in [("TTFT", self.ttft), ("TPOT", self.tpot)] {
            if let Some(time) = time {
                write!(f, "; {what} {:.1} ms", time.as_secs_f64() * 1e3)?;
            }
        }
        Ok(())
    }
}
