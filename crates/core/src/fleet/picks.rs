//! What was picked from a worker and is not in its reports yet.
//!
//! A pick counts from the moment it is made. Once the decode worker has granted it, the worker's next
//! report holds its pages; the prefill worker hears of it a moment later, and its second report from
//! then on holds the prompt's tokens. A pick then counts no more, since the report does. Whoever gives
//! back takes off what still counts: so nothing is counted twice for long, and nothing for ever.

use super::Slot;

/// A request's load on its pair. Every way on which a request ends gives it back.
#[derive(Debug)]
#[must_use = "what was picked counts until it is given back"]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Reservation {
    pub(super) decode: Option<Part>,
    /// Of the worker that computes the prompt, until it has.
    pub(super) prefill: Option<Part>,
}

impl Reservation {
    pub(super) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.decode.iter_mut().chain(self.prefill.iter_mut())
    }
}

/// What was picked from one worker.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Part {
    pub(super) slot: Slot,
    /// Which of the fleet's registrations the worker was picked in: one that comes again, also in the same
    /// life, owes nothing from before.
    pub(super) registration: u64,
    pages: u32,
    tokens: u64,
    /// Reports that the worker had made when it was granted.
    granted: Option<u64>,
}

/// All that was picked from one worker, by how many reports it has made since the grant.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub(super) struct Picks {
    /// Its reports so far.
    reports: u64,
    asked: Amount,
    /// Granted, and no report since.
    granted: Amount,
    /// Granted, and one report since: only the tokens count.
    ageing_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
struct Amount {
    pages: u32,
    tokens: u64,
    requests: u32,
}

impl Amount {
    const fn add(&mut self, part: &Part) {
        self.pages += part.pages;
        self.tokens += part.tokens;
        self.requests += 1;
    }

    const fn subtract(&mut self, part: &Part) {
        self.pages -= part.pages;
        self.tokens -= part.tokens;
        self.requests -= 1;
    }
}

impl Picks {
    pub(super) const fn pick(
        &mut self,
        slot: Slot,
        registration: u64,
        pages: u32,
        tokens: u64,
    ) -> Part {
        let part = Part {
            slot,
            registration,
            pages,
            tokens,
            granted: None,
        };
        self.asked.add(&part);
        part
    }

    pub(super) const fn grant(&mut self, part: &mut Part) {
        if part.granted.is_none() {
            self.asked.subtract(part);
            self.granted.add(part);
            part.granted = Some(self.reports);
        }
    }

    pub(super) const fn give_back(&mut self, part: &mut Part) {
        match part.granted {
            None => self.asked.subtract(part),
            Some(at) if at == self.reports => self.granted.subtract(part),
            Some(at) if at + 1 == self.reports => self.ageing_tokens -= part.tokens,
            Some(_) => {}
        }
    }

    pub(super) fn reported(&mut self) {
        self.reports += 1;
        self.ageing_tokens = std::mem::take(&mut self.granted).tokens;
    }

    pub(super) const fn pages(&self) -> u32 {
        self.asked.pages + self.granted.pages
    }

    pub(super) const fn tokens(&self) -> u64 {
        self.asked.tokens + self.granted.tokens + self.ageing_tokens
    }

    pub(super) const fn requests(&self) -> u32 {
        self.asked.requests + self.granted.requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Pick(u32, u64),
        Grant(usize),
        GiveBack(usize),
        Report,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..50u32, 0..500u64).prop_map(|(p, t)| Step::Pick(p, t)),
            (0..20usize).prop_map(Step::Grant),
            (0..20usize).prop_map(Step::GiveBack),
            Just(Step::Report),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// What counts is never below what is still to come in reports, and nothing is left at rest.
        #[test]
        fn every_pick_counts_until_reports_hold_it_and_is_given_back_whole(steps in steps()) {
            let mut picks = Picks::default();
            let mut parts: Vec<Part> = Vec::new();
            for step in steps {
                match step {
                    Step::Pick(pages, tokens) => {
                        parts.push(picks.pick(Slot(0), 1, pages, tokens));
                    }
                    Step::Grant(at) => {
                        if let Some(part) = parts.get_mut(at) {
                            picks.grant(part);
                        }
                    }
                    Step::GiveBack(at) => {
                        if at < parts.len() {
                            picks.give_back(&mut parts.remove(at));
                        }
                    }
                    Step::Report => picks.reported(),
                }
                let age = |p: &Part| p.granted.map(|at| picks.reports - at);
                let pages = parts.iter().filter(|p| age(p).is_none_or(|a| a < 1));
                let tokens = parts.iter().filter(|p| age(p).is_none_or(|a| a < 2));
                prop_assert_eq!(picks.pages(), pages.map(|p| p.pages).sum::<u32>());
                prop_assert_eq!(picks.tokens(), tokens.map(|p| p.tokens).sum::<u64>());
            }
            for mut part in parts {
                picks.give_back(&mut part);
            }
            prop_assert_eq!((picks.pages(), picks.tokens(), picks.requests()), (0, 0, 0));
        }
    }
}
