//! The workers of one stage, measure by measure.
//!
//! A choice goes through one or two measures of every worker. Each stands in a column of its own, so that
//! this takes few cache lines and several workers are looked at with one instruction.

use super::{Figures, LABELS, LabelId, Traits, is};
use crate::prefix_index::Hits;

/// A stage's workers by *seat*: their place in every column, in the order of their slots.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Of each seat, its index into [`super::Fleet::figures`].
    pub slots: Vec<u16>,
    /// See [`is`].
    pub flags: Vec<u8>,
    /// Tokens of a page.
    pub page_tokens: Vec<u16>,
    /// All pages.
    pub pages: Vec<u32>,
    /// Pages that a new lease may have, as far as is known.
    pub free_pages: Vec<u32>,
    /// Prompt tokens that wait there.
    pub queued_tokens: Vec<u32>,
    /// Requests that run or wait there; 65,535 stands for all above.
    pub requests: Vec<u16>,
    /// Nanoseconds for a prompt token; 0: not measured.
    pub prefill_ns: Vec<f32>,
    /// A decode step's time without a batch, in microseconds.
    pub step_base_us: Vec<f32>,
    /// And for each sequence in the batch. Both 0: not measured.
    pub step_slope_us: Vec<f32>,
    /// Places in the order of names, of all workers.
    pub ranks: Vec<u32>,
    /// What each gets of an equal share: 1 for all of it.
    pub weights: Vec<f32>,
    /// Hashes of their names.
    pub name_hashes: Vec<u32>,
    /// One column for each label of the worker that has the most.
    pub labels: Vec<Vec<LabelId>>,
    /// Where the index has their blocks; its `NOWHERE` for those that it has none of.
    places: Vec<u16>,
    seeds: Vec<u8>,
    /// Whose pages all have the same number of tokens, and whether somebody computes what it decodes.
    uniform: Uniform,
}

#[derive(Clone, Copy, Debug, Default)]
struct Uniform {
    page_tokens: Option<u16>,
    one_seed: bool,
    both: bool,
}

impl Columns {
    pub(super) fn of(slots: Vec<u16>, figures: &[Figures], traits: &[Traits]) -> Self {
        let count = slots.len();
        let of_slot = |slot: &u16| (&figures[usize::from(*slot)], &traits[usize::from(*slot)]);
        let most_labels = slots.iter().map(|slot| of_slot(slot).1.known_labels());
        let most_labels = most_labels.max().unwrap_or(0);
        let mut columns = Self {
            flags: vec![0; count],
            page_tokens: vec![0; count],
            pages: vec![0; count],
            free_pages: vec![0; count],
            queued_tokens: vec![0; count],
            requests: vec![0; count],
            prefill_ns: vec![0.0; count],
            step_base_us: vec![0.0; count],
            step_slope_us: vec![0.0; count],
            ranks: vec![0; count],
            weights: vec![0.0; count],
            name_hashes: vec![0; count],
            labels: vec![vec![LabelId::NONE; count]; most_labels.min(LABELS)],
            places: vec![0; count],
            seeds: vec![0; count],
            uniform: Uniform::default(),
            slots,
        };
        for seat in 0..count {
            let (figures, traits) = of_slot(&columns.slots[seat]);
            columns.set(seat, figures);
            columns.ranks[seat] = traits.rank;
            columns.weights[seat] = traits.weight;
            columns.name_hashes[seat] = traits.name_hash;
            for (column, label) in columns.labels.iter_mut().zip(&traits.labels) {
                column[seat] = *label;
            }
        }
        let first = columns.page_tokens.first().copied();
        columns.uniform = Uniform {
            page_tokens: first.filter(|first| columns.page_tokens.iter().all(|p| p == first)),
            one_seed: columns.seeds.iter().all(|seed| *seed == 0),
            both: columns.flags.iter().any(|flags| flags & is::BOTH != 0),
        };
        columns
    }

    /// After a worker's figures changed.
    pub(super) fn set(&mut self, seat: usize, figures: &Figures) {
        self.flags[seat] = figures.flags;
        self.page_tokens[seat] = figures.page_tokens;
        self.pages[seat] = figures.pages;
        self.free_pages[seat] = figures.free_pages;
        self.queued_tokens[seat] = figures.queued_tokens;
        self.requests[seat] = figures.requests;
        self.prefill_ns[seat] = figures.prefill_ns;
        self.step_base_us[seat] = figures.step_base_us;
        self.step_slope_us[seat] = figures.step_slope_us;
        (self.places[seat], self.seeds[seat]) = figures.indexed();
    }

    /// How many workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Tokens of everybody's pages, where they are the same.
    #[must_use]
    pub const fn same_page_tokens(&self) -> Option<u16> {
        self.uniform.page_tokens
    }

    /// Whether somebody here computes the prompts of what it decodes.
    #[must_use]
    pub const fn has_both(&self) -> bool {
        self.uniform.both
    }

    /// Tokens that the free pages of the emptiest one hold that takes requests; 0 where none does.
    #[must_use]
    pub fn most_free_tokens(&self) -> u64 {
        let each = self
            .flags
            .iter()
            .zip(&self.free_pages)
            .zip(&self.page_tokens);
        let tokens = each.map(|((flags, free), page)| match flags & is::AWAY {
            0 => u64::from(*free) * u64::from(*page),
            _ => 0,
        });
        tokens.max().unwrap_or(0)
    }

    /// Tokens of a prompt of `most` tokens that each holds, by what the index found: `hits` has one for
    /// each of the fleet's seeds, in their order. As [`Figures::hit_tokens`] of each, up to `most`.
    pub fn held_tokens(&self, hits: &[Hits], most: u32, held: &mut Vec<f32>) {
        held.clear();
        if hits.iter().all(|hits| hits.most() == 0) {
            return held.resize(self.len(), 0.0);
        }
        let tokens =
            |blocks: u32, page_tokens: u16| (blocks * u32::from(page_tokens)).min(most) as f32;
        if let ([hits], true) = (hits, self.uniform.one_seed) {
            let workers = self.places.iter().zip(&self.page_tokens);
            return held.extend(workers.map(|(place, page)| tokens(hits.at(*place), *page)));
        }
        let workers = self.places.iter().zip(&self.seeds).zip(&self.page_tokens);
        held.extend(workers.map(|((place, seed), page)| {
            let hits = hits.get(usize::from(*seed));
            tokens(hits.map_or(0, |hits| hits.at(*place)), *page)
        }));
    }
}

/// What follows from the workers that they are made from says nothing of its own: for the explorer alone,
/// which compares and hashes states.
#[cfg(feature = "explore")]
mod explore {
    use super::Columns;

    impl PartialEq for Columns {
        fn eq(&self, other: &Self) -> bool {
            self.slots == other.slots
        }
    }

    impl Eq for Columns {}

    impl std::hash::Hash for Columns {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.slots.hash(state);
        }
    }
}
