//! What each rule makes of a candidate: a score, higher is better. Formulas, parameters and their
//! sources are in `README.md`.
//!
//! A rule goes through columns, one measure of all the stage's workers after the other, without a branch
//! for any of them. It scores those that are no candidates too, which is cheaper than passing them over;
//! what they are must change nobody else's score.

use tandem_core::fleet::{Columns, is, pages_for};
use tandem_core::pairing::{Stage, Targets};

use crate::look::Look;
use crate::measures::{
    loads, most_of, nearnesses, next_steps_us, set, sum_of, ttft_ms, used_pages, used_shares,
};
use crate::random::mix;
use crate::settings::{
    ConsistentHash, Headroom, KvCost, PolicySettings, PrefixAware, Rule, Scorer,
};

/// A stage's workers by seat, and room for a score each.
pub(crate) struct Scoring<'a> {
    pub(crate) columns: &'a Columns,
    /// Who is a candidate. At least one is.
    pub(crate) fits: &'a [bool],
    pub(crate) scores: &'a mut Vec<f32>,
    pub(crate) room: &'a mut Room,
}

/// Room for measures of all workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    /// Prompt tokens that each holds.
    held: Vec<f32>,
    /// Whatever else.
    column: Vec<f32>,
}

impl Scoring<'_> {
    /// Scores all workers by the stage's rule. `turn` is whose turn it is in `round_robin`.
    pub(crate) fn score(
        &mut self,
        rule: Rule,
        look: &Look<'_>,
        settings: &PolicySettings,
        turn: u32,
    ) {
        match rule {
            Rule::Random => self.scores.clone_from(&self.columns.weights),
            Rule::RoundRobin => {
                let count = look.figures.len() as u32;
                let until = |rank: &u32| match *rank >= turn {
                    true => rank - turn,
                    false => rank + count - turn,
                };
                let ranks = self.columns.ranks.iter();
                set(self.scores, ranks.map(|rank| -(until(rank) as f32)));
            }
            Rule::PowerOfTwo | Rule::LeastLoaded => self.least_loaded(look),
            Rule::ConsistentHash => self.consistent_hash(look, settings.consistent_hash),
            Rule::PrefixAware => self.prefix_aware(look, settings.prefix_aware),
            Rule::KvCost => self.kv_cost(look, settings.kv_cost),
            Rule::KvcacheCentric => self.kvcache_centric(look),
            Rule::Splitwise => match look.stage {
                Stage::Prefill => {
                    let queued = self.columns.queued_tokens.iter();
                    set(self.scores, queued.map(|queued| -(*queued as f32)));
                }
                Stage::Decode => set(self.scores, used_pages(self.columns).map(|used| -used)),
            },
            Rule::SloAware => self.slo_aware(look, settings),
            Rule::Scored => {
                let stage = match look.stage {
                    Stage::Prefill => &settings.prefill,
                    Stage::Decode => &settings.decode,
                };
                self.scored(look, &stage.weights);
            }
        }
    }

    /// What is in the scores is a cost: the less the better, and the heavier a worker the cheaper.
    fn costs(&mut self, look: &Look<'_>) {
        if look.even {
            self.scores.iter_mut().for_each(|score| *score = -*score);
        } else {
            let weights = self.scores.iter_mut().zip(&self.columns.weights);
            weights.for_each(|(score, weight)| *score = -*score / weight);
        }
    }

    fn least_loaded(&mut self, look: &Look<'_>) {
        loads(look, self.columns, self.scores);
        self.costs(look);
    }

    /// Rendezvous hashing, with bounded loads.
    fn consistent_hash(&mut self, look: &Look<'_>, settings: ConsistentHash) {
        let Some(session) = look.request.affinity else {
            return self.least_loaded(look);
        };
        let bound = if settings.load_factor > 0.0 {
            let all = sum_of(&self.columns.requests, self.fits);
            let candidates = self.fits.iter().filter(|fits| **fits).count();
            let mean = (all + 1) as f32 / candidates as f32;
            (mean * settings.load_factor).ceil()
        } else {
            f32::INFINITY
        };
        self.scores.clear();
        self.scores.resize(self.columns.len(), 0.0);
        if let Some(owner) = self.owner(session, look, bound) {
            self.scores[owner] = 1.0;
        }
    }

    fn prefix_aware(&mut self, look: &Look<'_>, settings: PrefixAware) {
        if look.hits.iter().all(|hits| hits.most() == 0) {
            return self.least_loaded(look);
        }
        let (mut fewest, mut busiest) = (u16::MAX, 0);
        for (requests, fits) in self.columns.requests.iter().zip(self.fits) {
            fewest = fewest.min(if *fits { *requests } else { u16::MAX });
            busiest = busiest.max(if *fits { *requests } else { 0 });
        }
        let (fewest, busiest) = (u32::from(fewest), u32::from(busiest));
        let unequal = busiest - fewest > settings.balance_abs_threshold
            && busiest as f32 > fewest as f32 * settings.balance_rel_threshold;
        if unequal {
            return self.least_loaded(look);
        }
        self.hold(look);
        let share = most_of(&self.room.held, self.fits) / look.request.prompt_tokens as f32;
        if share <= settings.cache_threshold {
            return self.least_loaded(look);
        }
        // Loads break ties between those that hold the same, and no more.
        loads(look, self.columns, self.scores);
        let heaviest = most_of(self.scores, self.fits).max(1.0);
        for (score, held) in self.scores.iter_mut().zip(&self.room.held) {
            *score = held - 0.5 * *score / heaviest;
        }
    }

    fn kv_cost(&mut self, look: &Look<'_>, settings: KvCost) {
        let columns = self.columns;
        if look.stage == Stage::Decode {
            self.needed_pages(look);
            let used = used_pages(columns);
            let needed = self.scores.iter_mut();
            needed.zip(used).for_each(|(score, used)| *score += used);
            if columns.has_both() {
                self.prefill_blocks(look, settings);
                let both = columns.flags.iter().map(|flags| flags & is::BOTH != 0);
                let prefill = both.zip(&self.room.column);
                for (score, (both, blocks)) in self.scores.iter_mut().zip(prefill) {
                    *score += if both { *blocks } else { 0.0 };
                }
            }
        } else {
            self.prefill_blocks(look, settings);
            std::mem::swap(self.scores, &mut self.room.column);
        }
        self.costs(look);
    }

    /// Blocks that each would have to compute before the prompt is done, less a credit for what it holds:
    /// into the free column.
    fn prefill_blocks(&mut self, look: &Look<'_>, settings: KvCost) {
        self.hold(look);
        let columns = self.columns;
        let prompt = look.request.prompt_tokens as f32;
        let (decay, credit) = (
            settings.overlap_score_credit_decay,
            settings.overlap_score_credit,
        );
        let idlest = if decay > 0.0 {
            let queued = columns.queued_tokens.iter().zip(self.fits);
            let queued = queued.map(|(queued, fits)| if *fits { *queued } else { u32::MAX });
            queued.min().unwrap_or(0) as f32
        } else {
            0.0
        };
        let workers = columns.queued_tokens.iter().zip(&columns.page_tokens);
        let blocks = workers.zip(&self.room.held).map(|((waiting, page), held)| {
            let waiting = *waiting as f32;
            let credit = match decay > 0.0 {
                true => credit / (1.0 + decay * (waiting - idlest) / prompt),
                false => credit,
            };
            let tokens = (waiting + prompt - credit * held).max(0.0);
            settings.prefill_load_scale * tokens / f32::from(*page)
        });
        set(&mut self.room.column, blocks);
    }

    fn kvcache_centric(&mut self, look: &Look<'_>) {
        let columns = self.columns;
        if look.stage == Stage::Prefill {
            self.hold(look);
            ttft_ms(look, columns, &self.room.held, self.scores);
            return self.costs(look);
        }
        // Steps in milliseconds; where nobody measured any, the share of pages decides.
        let each = next_steps_us(columns).zip(used_shares(columns));
        set(
            self.scores,
            each.map(|(step_us, share)| step_us / 1e3 + share),
        );
        if columns.has_both() {
            self.hold(look);
            ttft_ms(look, columns, &self.room.held, &mut self.room.column);
            let both = columns.flags.iter().map(|flags| flags & is::BOTH != 0);
            for (score, (both, ms)) in self.scores.iter_mut().zip(both.zip(&self.room.column)) {
                *score += if both { *ms } else { 0.0 };
            }
        }
        self.costs(look);
    }

    fn slo_aware(&mut self, look: &Look<'_>, settings: &PolicySettings) {
        let Targets { ttft, tpot } = promised(look, settings);
        let headroom = settings.slo_aware.headroom;
        match (look.stage, ttft, tpot) {
            (Stage::Prefill, Some(ttft), _) if look.times.known() => {
                let promised = ttft.as_secs_f32() * 1e3;
                self.hold(look);
                ttft_ms(look, self.columns, &self.room.held, self.scores);
                self.by_slack(headroom, |ms| promised - look.waited_ms - ms);
            }
            (Stage::Decode, _, Some(tpot)) if self.steps_known() => {
                let promised = tpot.as_secs_f32() * 1e3;
                set(self.scores, next_steps_us(self.columns));
                self.by_slack(headroom, |us| promised - us / 1e3);
            }
            (Stage::Prefill, _, _) => {
                self.hold(look);
                ttft_ms(look, self.columns, &self.room.held, self.scores);
                self.costs(look);
            }
            (Stage::Decode, _, _) => self.least_loaded(look),
        }
    }

    /// Whether some candidate has measured its steps.
    fn steps_known(&self) -> bool {
        let columns = self.columns;
        let steps = columns.step_base_us.iter().zip(&columns.step_slope_us);
        let mut steps = steps.zip(self.fits);
        steps.any(|((base, slope), fits)| *fits && base + slope > 0.0)
    }

    /// Those that keep the promise before those that break it; among the latter the least late.
    fn by_slack(&mut self, headroom: Headroom, slack: impl Fn(f32) -> f32) {
        for score in self.scores.iter_mut() {
            let slack = slack(*score);
            *score = match headroom {
                _ if slack < 0.0 => slack,
                Headroom::Most => slack,
                Headroom::Least => 1.0 / (1.0 + slack),
            };
        }
    }

    fn scored(&mut self, look: &Look<'_>, weights: &[(Scorer, f32)]) {
        self.scores.clear();
        self.scores.resize(self.columns.len(), 0.0);
        let prefix = |(scorer, _): &(Scorer, f32)| matches!(scorer, Scorer::Prefix | Scorer::Ttft);
        if weights.iter().any(prefix) {
            self.hold(look);
        }
        for (scorer, weight) in weights {
            self.add(look, *scorer, *weight);
        }
        if !look.even {
            let weights = self.scores.iter_mut().zip(&self.columns.weights);
            weights.for_each(|(score, weight)| *score *= weight);
        }
    }

    fn add(&mut self, look: &Look<'_>, scorer: Scorer, weight: f32) {
        let columns = self.columns;
        let column = &mut self.room.column;
        match scorer {
            Scorer::Queue => {
                set(column, columns.queued_tokens.iter().map(|q| *q as f32));
                self.add_few(weight);
            }
            Scorer::Requests => {
                set(column, columns.requests.iter().map(|r| f32::from(*r)));
                self.add_few(weight);
            }
            Scorer::Ttft => {
                ttft_ms(look, columns, &self.room.held, column);
                self.add_few(weight);
            }
            Scorer::Tpot => {
                set(column, next_steps_us(columns));
                self.add_few(weight);
            }
            Scorer::Pages => {
                for (sum, used) in self.scores.iter_mut().zip(used_shares(columns)) {
                    *sum += weight * (1.0 - used);
                }
            }
            Scorer::Prefix => {
                let prompt = look.request.prompt_tokens as f32;
                for (sum, held) in self.scores.iter_mut().zip(&self.room.held) {
                    *sum += weight * (held / prompt);
                }
            }
            Scorer::Topology => {
                nearnesses(look.levels(), columns, column);
                for (sum, near) in self.scores.iter_mut().zip(&*column) {
                    *sum += weight * near;
                }
            }
            Scorer::Session => {
                let session = look.request.affinity;
                let owner = session.and_then(|s| self.owner(s, look, f32::INFINITY));
                if let Some(owner) = owner {
                    self.scores[owner] += weight;
                }
            }
        }
    }

    /// Adds 1 for none of what is in the free column, 0 for the most of any candidate.
    fn add_few(&mut self, weight: f32) {
        let most = most_of(&self.room.column, self.fits);
        let scale = if most > 0.0 { weight / most } else { 0.0 };
        for (sum, much) in self.scores.iter_mut().zip(&self.room.column) {
            *sum += weight - much * scale;
        }
    }

    /// What each holds of the prompt.
    fn hold(&mut self, look: &Look<'_>) {
        let prompt = look.request.prompt_tokens;
        self.columns
            .held_tokens(look.hits, prompt, &mut self.room.held);
    }

    /// Pages that the request takes on each: into the scores.
    fn needed_pages(&mut self, look: &Look<'_>) {
        let columns = self.columns;
        if let Some(page_tokens) = columns.same_page_tokens() {
            self.scores.clear();
            let needed = pages_for(page_tokens, look.request) as f32;
            return self.scores.resize(columns.len(), needed);
        }
        let each = columns.page_tokens.iter();
        set(
            self.scores,
            each.map(|page| pages_for(*page, look.request) as f32),
        );
    }

    /// The seat of a session's worker: the candidate whose name, hashed with it, comes out highest
    /// (rendezvous hashing), of those with fewer than `bound` requests. With weights, as often as they say.
    fn owner(&self, session: u64, look: &Look<'_>, bound: f32) -> Option<usize> {
        let key = |seat: usize| {
            let name = u64::from(self.columns.name_hashes[seat]);
            let hash = mix(session ^ (name << 32 | name));
            if look.even {
                return hash;
            }
            // The order is that of -ln(u) / weight, the shortest of exponential times first.
            let unit = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            let weight = f64::from(self.columns.weights[seat]);
            (unit.powf(1.0 / weight) * (1_u64 << 63) as f64) as u64
        };
        let all = (0..self.columns.len()).filter(|seat| self.fits[*seat]);
        let requests = &self.columns.requests;
        let free = all
            .clone()
            .filter(|seat| f32::from(requests[*seat]) < bound);
        // Where everybody has too much, nobody is passed over.
        let owner = free.max_by_key(|seat| key(*seat));
        owner.or_else(|| all.max_by_key(|seat| key(*seat)))
    }
}

/// What the request's class promises, or the policy where it does not say.
pub(crate) fn promised(look: &Look<'_>, settings: &PolicySettings) -> Targets {
    let (own, default) = (look.request.targets, settings.slo);
    Targets {
        ttft: own.ttft.or(default.ttft),
        tpot: own.tpot.or(default.tpot),
    }
}
