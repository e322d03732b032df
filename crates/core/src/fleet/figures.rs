//! What matters of a worker for a choice: what every choice looks at in half a cache line, and the rest
//! beside it.

use super::{LabelId, Labels, Worker, computes_its_own};
use crate::pairing::session;
use crate::prefix_index::{Hits, NOWHERE};

/// Labels of one worker, at most.
pub const LABELS: usize = 6;

/// Bits of [`Figures::flags`].
pub mod is {
    /// It computes prompts for other workers.
    pub const PREFILL: u8 = 1;
    /// It generates.
    pub const DECODE: u8 = 1 << 1;
    /// It computes the prompts of what it generates.
    pub const BOTH: u8 = 1 << 2;
    /// It is going away.
    pub const STOPPING: u8 = 1 << 3;
    /// It refused for want of room since its latest report.
    pub const FULL: u8 = 1 << 4;
    /// Its operator lets it finish, and no more.
    pub const DRAINING: u8 = 1 << 5;
    /// Its operator has switched it off.
    pub const DISABLED: u8 = 1 << 6;
    /// It does not answer as it should.
    pub const UNHEALTHY: u8 = 1 << 7;
    /// It takes nothing new, for whatever reason.
    pub const AWAY: u8 = STOPPING | DRAINING | DISABLED | UNHEALTHY;
}

/// One worker's figures. All zero: nobody is there.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct Figures {
    /// See [`is`].
    pub flags: u8,
    seed: u8,
    /// Tokens of a page.
    pub page_tokens: u16,
    /// All its pages.
    pub pages: u32,
    /// Those that a new lease may have, as far as is known.
    pub free_pages: u32,
    /// Prompt tokens that wait there.
    pub queued_tokens: u32,
    /// Requests that run or wait there; 65,535 stands for all above.
    pub requests: u16,
    place: u16,
    /// Nanoseconds for a prompt token; 0: not measured.
    pub prefill_ns: f32,
    /// A decode step's time without a batch, in microseconds.
    pub step_base_us: f32,
    /// And for each sequence in the batch. Both 0: not measured.
    pub step_slope_us: f32,
}

const _: () = assert!(size_of::<Figures>() == 32);

/// What few choices look at, by slot as [`Figures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// Its place in the order of names.
    pub rank: u32,
    /// What it gets of an equal share: 1 for all of it.
    pub weight: f32,
    /// A hash of its name.
    pub name_hash: u32,
    /// Its labels.
    pub labels: [LabelId; LABELS],
}

impl Traits {
    pub(super) fn of(worker: &Worker, rank: u32, labels: &Labels) -> Self {
        let mut ids = [LabelId::NONE; LABELS];
        for (id, (key, value)) in ids.iter_mut().zip(&worker.facts.labels) {
            *id = labels.id(key, value);
        }
        Self {
            rank,
            weight: worker.weight as f32 / 100.0,
            name_hash: folded(session(worker.facts.worker.as_str())),
            labels: ids,
        }
    }

    /// How many labels it has: the first ones.
    pub(super) fn known_labels(&self) -> usize {
        let none = |label: &LabelId| *label == LabelId::NONE;
        self.labels.iter().position(none).unwrap_or(LABELS)
    }

    /// Whether it has a label.
    #[must_use]
    pub fn has(&self, label: LabelId) -> bool {
        self.labels.contains(&label)
    }
}

const NO_SEED: u8 = u8::MAX;

impl Figures {
    pub(super) fn of(worker: &Worker, seed: Option<usize>) -> Self {
        let role = worker.facts.role;
        let standing = match worker.standing {
            super::Standing::Enabled => 0,
            super::Standing::Draining => is::DRAINING,
            super::Standing::Disabled => is::DISABLED,
        };
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = bit(role == crate::WorkerRole::Prefill, is::PREFILL)
            | bit(role.decodes(), is::DECODE)
            | bit(computes_its_own(role), is::BOTH)
            | bit(worker.load.stopping, is::STOPPING)
            | bit(worker.is_full(), is::FULL)
            | bit(!worker.healthy, is::UNHEALTHY)
            | standing;
        let (base, slope) = worker.times.decode_line().unwrap_or_default();
        Self {
            flags,
            page_tokens: worker.facts.layout.geometry().page_tokens,
            pages: worker.facts.layout.pages(),
            free_pages: worker.free_pages(),
            queued_tokens: u32::try_from(worker.queued_tokens()).unwrap_or(u32::MAX),
            requests: u16::try_from(worker.requests()).unwrap_or(u16::MAX),
            prefill_ns: worker.times.prefill_ns_per_token().unwrap_or(0.0) as f32,
            step_base_us: base as f32,
            step_slope_us: slope as f32,
            place: worker.place.map_or(NOWHERE, |place| place.index() as u16),
            seed: seed.map_or(NO_SEED, |at| at as u8),
        }
    }

    /// Tokens of the prompt that it holds; `hits` has one for each of the fleet's seeds, in their order.
    #[must_use]
    pub fn hit_tokens(&self, hits: &[Hits]) -> u32 {
        match hits.get(usize::from(self.seed)) {
            Some(hits) => hits.at(self.place) * u32::from(self.page_tokens),
            None => 0,
        }
    }

    /// Its place in the index, and the number of its seed. The index is not asked about one without.
    pub(super) const fn indexed(&self) -> (u16, u8) {
        match self.seed {
            NO_SEED => (NOWHERE, 0),
            seed => (self.place, seed),
        }
    }

    /// Pages that somebody has.
    #[must_use]
    pub const fn used_pages(&self) -> u32 {
        self.pages.saturating_sub(self.free_pages)
    }
}

const fn folded(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// As the worker that they are made from: for the explorer alone, which compares and hashes states.
#[cfg(feature = "explore")]
mod explore {
    use super::{Figures, Traits};

    impl PartialEq for Figures {
        fn eq(&self, other: &Self) -> bool {
            (self.flags, self.free_pages, self.queued_tokens)
                == (other.flags, other.free_pages, other.queued_tokens)
        }
    }

    impl Eq for Figures {}

    impl std::hash::Hash for Figures {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.flags.hash(state);
        }
    }

    impl PartialEq for Traits {
        fn eq(&self, other: &Self) -> bool {
            self.rank == other.rank
        }
    }

    impl Eq for Traits {}

    impl std::hash::Hash for Traits {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.rank.hash(state);
        }
    }
}
