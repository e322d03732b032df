//! What each rule makes of a candidate: a score, higher is better. Formulas, parameters and their
//! sources are in `README.md`.

use std::cell::RefCell;

use tandem_core::fleet::{Figures, Traits};
use tandem_core::pairing::{Stage, Targets};

use crate::look::{Look, does_both, nearness, step_us};
use crate::pick::most;
use crate::random::mix;
use crate::settings::{
    ConsistentHash, Headroom, KvCost, PolicySettings, PrefixAware, Rule, Scorer,
};
use crate::stage::Room;

/// Candidates by slot, and room for a score each.
pub(crate) struct Scoring<'a> {
    pub(crate) candidates: &'a [u16],
    pub(crate) scores: &'a mut Vec<f32>,
    /// Room for another measure of each.
    pub(crate) column: &'a mut Vec<f32>,
}

impl Scoring<'_> {
    fn each(&mut self, look: &Look<'_>, score: impl Fn(&Figures) -> f32) {
        self.scores.clear();
        let workers = self
            .candidates
            .iter()
            .map(|at| &look.figures[usize::from(*at)]);
        self.scores.extend(workers.map(score));
    }

    /// As [`Self::each`], divided by the worker's weight: the heavier, the cheaper.
    fn each_cost(&mut self, look: &Look<'_>, cost: impl Fn(&Figures) -> f32) {
        self.each(look, |worker| -cost(worker));
        if !look.even {
            for (score, at) in self.scores.iter_mut().zip(self.candidates) {
                *score /= look.traits[usize::from(*at)].weight;
            }
        }
    }

    /// By what few choices look at.
    fn each_trait(&mut self, look: &Look<'_>, score: impl Fn(&Traits) -> f32) {
        self.scores.clear();
        let workers = self.candidates.iter();
        let workers = workers.map(|at| &look.traits[usize::from(*at)]);
        self.scores.extend(workers.map(score));
    }

    fn workers<'l>(&self, look: &Look<'l>) -> impl Iterator<Item = &'l Figures> + Clone {
        let figures = look.figures;
        self.candidates
            .iter()
            .map(move |at| &figures[usize::from(*at)])
    }

    /// Scores all candidates by the stage's rule. `turn` is whose turn it is in `round_robin`.
    pub(crate) fn score(
        &mut self,
        rule: Rule,
        look: &Look<'_>,
        settings: &PolicySettings,
        turn: u32,
    ) {
        match rule {
            Rule::Random => self.each_trait(look, |w| w.weight),
            Rule::RoundRobin => {
                let count = look.figures.len() as u32;
                self.each_trait(look, |w| -(((w.rank + count - turn) % count) as f32));
            }
            Rule::PowerOfTwo | Rule::LeastLoaded => self.least_loaded(look),
            Rule::ConsistentHash => self.consistent_hash(look, settings.consistent_hash),
            Rule::PrefixAware => self.prefix_aware(look, settings.prefix_aware),
            Rule::KvCost => self.kv_cost(look, settings.kv_cost),
            Rule::KvcacheCentric => self.kvcache_centric(look),
            Rule::Splitwise => self.each(look, |w| match look.stage {
                Stage::Prefill => -(w.queued_tokens as f32),
                Stage::Decode => -(w.used_pages() as f32),
            }),
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

    fn least_loaded(&mut self, look: &Look<'_>) {
        self.each_cost(look, |w| look.load(w));
    }

    /// Rendezvous hashing, with bounded loads.
    fn consistent_hash(&mut self, look: &Look<'_>, settings: ConsistentHash) {
        let Some(session) = look.request.affinity else {
            return self.least_loaded(look);
        };
        let bound = if settings.load_factor > 0.0 {
            let all: u32 = self.workers(look).map(|w| u32::from(w.requests)).sum();
            let mean = (all + 1) as f32 / self.candidates.len() as f32;
            (mean * settings.load_factor).ceil()
        } else {
            f32::INFINITY
        };
        let owner = owner(session, look, self.candidates, |w| {
            f32::from(w.requests) < bound
        });
        self.scores.clear();
        let candidates = self.candidates.iter();
        self.scores
            .extend(candidates.map(|at| f32::from(u8::from(Some(*at) == owner))));
    }

    fn prefix_aware(&mut self, look: &Look<'_>, settings: PrefixAware) {
        if look.hits.iter().all(|hits| hits.most() == 0) {
            return self.least_loaded(look);
        }
        let (mut fewest, mut busiest) = (u16::MAX, 0);
        self.column.resize(self.candidates.len(), 0.0);
        self.scores.resize(self.candidates.len(), 0.0);
        let measures = self.column.iter_mut().zip(self.scores.iter_mut());
        for (at, (held, load)) in self.candidates.iter().zip(measures) {
            let worker = &look.figures[usize::from(*at)];
            fewest = fewest.min(worker.requests);
            busiest = busiest.max(worker.requests);
            (*held, *load) = (look.held(worker) as f32, look.load(worker));
        }
        let (fewest, busiest) = (u32::from(fewest), u32::from(busiest));
        let unequal = busiest - fewest > settings.balance_abs_threshold
            && busiest as f32 > fewest as f32 * settings.balance_rel_threshold;
        let share = most(self.column) / look.request.prompt_tokens as f32;
        if unequal || share <= settings.cache_threshold {
            return self.least_loaded(look);
        }
        // Loads break ties between those that hold the same, and no more.
        let heaviest = most(self.scores).max(1.0);
        for (score, held) in self.scores.iter_mut().zip(&*self.column) {
            *score = held - 0.5 * *score / heaviest;
        }
    }

    fn kv_cost(&mut self, look: &Look<'_>, settings: KvCost) {
        let prompt = look.request.prompt_tokens as f32;
        let (decay, credit) = (
            settings.overlap_score_credit_decay,
            settings.overlap_score_credit,
        );
        let idlest = match decay > 0.0 {
            true => self.workers(look).map(|w| w.queued_tokens).min(),
            false => None,
        };
        let idlest = idlest.unwrap_or(0) as f32;
        // In tokens, and in blocks at the end.
        let adjusted = |w: &Figures| {
            let waiting = w.queued_tokens as f32;
            let credit = match decay > 0.0 {
                true => credit / (1.0 + decay * (waiting - idlest) / prompt),
                false => credit,
            };
            let tokens = (waiting + prompt - credit * look.held(w) as f32).max(0.0);
            settings.prefill_load_scale * tokens / f32::from(w.page_tokens)
        };
        let room = RefCell::new(Room::default());
        match look.stage {
            Stage::Prefill => self.each_cost(look, adjusted),
            Stage::Decode => self.each_cost(look, |w| {
                let own = room.borrow_mut().needed(w, look.request);
                let decode = (w.used_pages() + own) as f32;
                let prefill = if does_both(w) { adjusted(w) } else { 0.0 };
                prefill + decode
            }),
        }
    }

    fn kvcache_centric(&mut self, look: &Look<'_>) {
        match look.stage {
            Stage::Prefill => self.each_cost(look, |w| look.ttft_ms(w)),
            // Steps in milliseconds; where nobody measured any, the share of pages decides.
            Stage::Decode => self.each_cost(look, |w| {
                let step = next_step_us(w) / 1e3;
                let prefill = if does_both(w) { look.ttft_ms(w) } else { 0.0 };
                prefill + step + Look::used_share(w)
            }),
        }
    }

    fn slo_aware(&mut self, look: &Look<'_>, settings: &PolicySettings) {
        let Targets { ttft, tpot } = promised(look, settings);
        match (look.stage, ttft, tpot) {
            (Stage::Prefill, Some(ttft), _) if look.times.known() => {
                let promised = ttft.as_secs_f32() * 1e3;
                let slack = |w: &Figures| promised - look.waited_ms - look.ttft_ms(w);
                self.by_slack(look, settings.slo_aware.headroom, slack);
            }
            (Stage::Decode, _, Some(tpot)) if self.workers(look).any(|w| step_us(w, 1.0) > 0.0) => {
                let promised = tpot.as_secs_f32() * 1e3;
                let slack = |w: &Figures| promised - next_step_us(w) / 1e3;
                self.by_slack(look, settings.slo_aware.headroom, slack);
            }
            (Stage::Prefill, _, _) => self.each_cost(look, |w| look.ttft_ms(w)),
            (Stage::Decode, _, _) => self.least_loaded(look),
        }
    }

    /// Those that keep the promise before those that break it; among the latter the least late.
    fn by_slack(&mut self, look: &Look<'_>, headroom: Headroom, slack: impl Fn(&Figures) -> f32) {
        self.each(look, |w| {
            let slack = slack(w);
            match headroom {
                _ if slack < 0.0 => slack,
                Headroom::Most => slack,
                Headroom::Least => 1.0 / (1.0 + slack),
            }
        });
    }

    fn scored(&mut self, look: &Look<'_>, weights: &[(Scorer, f32)]) {
        self.scores.clear();
        self.scores.resize(self.candidates.len(), 0.0);
        for (scorer, weight) in weights {
            self.add(look, *scorer, *weight);
        }
        if !look.even {
            let candidates = self.candidates.iter();
            for (score, at) in self.scores.iter_mut().zip(candidates) {
                *score *= look.traits[usize::from(*at)].weight;
            }
        }
    }

    fn add(&mut self, look: &Look<'_>, scorer: Scorer, weight: f32) {
        let prompt = look.request.prompt_tokens as f32;
        match scorer {
            Scorer::Queue => self.add_few(look, weight, |w| w.queued_tokens as f32),
            Scorer::Requests => self.add_few(look, weight, |w| f32::from(w.requests)),
            Scorer::Ttft => self.add_few(look, weight, |w| look.ttft_ms(w)),
            Scorer::Tpot => {
                self.add_few(look, weight, next_step_us);
            }
            Scorer::Pages => self.add_each(look, weight, |w| 1.0 - Look::used_share(w)),
            Scorer::Prefix => self.add_each(look, weight, |w| look.held(w) as f32 / prompt),
            Scorer::Topology => {
                let levels = look.levels();
                for (sum, at) in self.scores.iter_mut().zip(self.candidates) {
                    *sum += weight * nearness(levels, &look.traits[usize::from(*at)]);
                }
            }
            Scorer::Session => {
                let session = look.request.affinity;
                let owner = session.and_then(|s| owner(s, look, self.candidates, |_| true));
                let at = owner.and_then(|owner| self.candidates.iter().position(|at| *at == owner));
                if let Some(at) = at {
                    self.scores[at] += weight;
                }
            }
        }
    }

    fn measure(&mut self, look: &Look<'_>, of: impl Fn(&Figures) -> f32) {
        self.column.clear();
        let workers = self.candidates.iter();
        let workers = workers.map(|at| &look.figures[usize::from(*at)]);
        self.column.extend(workers.map(of));
    }

    fn add_each(&mut self, look: &Look<'_>, weight: f32, score: impl Fn(&Figures) -> f32) {
        for (sum, at) in self.scores.iter_mut().zip(self.candidates) {
            *sum += weight * score(&look.figures[usize::from(*at)]);
        }
    }

    /// 1 for none of it, 0 for the most of any candidate.
    fn add_few(&mut self, look: &Look<'_>, weight: f32, of: impl Fn(&Figures) -> f32) {
        self.measure(look, of);
        let most = most(self.column);
        let scale = if most > 0.0 { weight / most } else { 0.0 };
        for (sum, much) in self.scores.iter_mut().zip(&*self.column) {
            *sum += weight - much * scale;
        }
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

/// Microseconds of its decode steps with one sequence more.
fn next_step_us(worker: &Figures) -> f32 {
    step_us(worker, f32::from(worker.requests) + 1.0)
}

/// The worker of a session: the one whose name, hashed with it, comes out highest (rendezvous hashing).
/// With weights, as often as they say.
fn owner(
    session: u64,
    look: &Look<'_>,
    candidates: &[u16],
    fits: impl Fn(&Figures) -> bool,
) -> Option<u16> {
    let key = |at: u16| {
        let worker = &look.traits[usize::from(at)];
        let name = u64::from(worker.name_hash);
        let hash = mix(session ^ (name << 32 | name));
        if look.even {
            return hash;
        }
        // The order is that of -ln(u) / weight, the shortest of exponential times first.
        let unit = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (unit.powf(1.0 / f64::from(worker.weight)) * (1_u64 << 63) as f64) as u64
    };
    // Where everybody has too much, nobody is passed over.
    let all = candidates.iter().copied();
    let fitting = all
        .clone()
        .filter(|at| fits(&look.figures[usize::from(*at)]));
    fitting
        .max_by_key(|at| key(*at))
        .or_else(|| all.max_by_key(|at| key(*at)))
}
