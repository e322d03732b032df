//! Both stages, one after the other and then together.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::fleet::{Figures, Fleet, LABELS, LabelId, Slot};
use tandem_core::geometry::KvGeometry;
use tandem_core::pairing::{
    Filtered, Local, NoPair, NoPairReason, Pair, Policy, RequestFacts, Stage, StageWhy, TooLate,
    Why,
};
use tandem_core::prefix_index::Hits;
use tandem_core::{Instant, WorkerId};

use crate::look::{Levels, Look, Times, does_both, known, nearness, step_us};
use crate::random::Random;
use crate::rules::promised;
use crate::settings::{PolicySettings, Reject, Rule, Scorer, WhenNoPrefill};
use crate::stage::{Best, Chooser};

/// A policy made from its settings.
#[derive(Clone, Debug)]
pub struct Pairing {
    settings: PolicySettings,
    prefill: Chooser,
    decode: Chooser,
    random: Random,
    hits: Vec<Hits>,
}

impl Pairing {
    /// `drawn_seed` is used where the settings hold none.
    #[must_use]
    pub fn new(settings: &PolicySettings, drawn_seed: u64) -> Self {
        let seed = settings.seed.unwrap_or(drawn_seed);
        Self {
            settings: settings.clone(),
            prefill: Chooser::new(seed ^ 0x70),
            decode: Chooser::new(seed ^ 0x64),
            random: Random::new(seed ^ 0x72),
            hits: Vec::new(),
        }
    }

    /// What it follows.
    #[must_use]
    pub const fn settings(&self) -> &PolicySettings {
        &self.settings
    }

    fn wants_hits(&self) -> bool {
        let stage = |stage: &crate::StageSettings| {
            let scored = stage.choose == Rule::Scored;
            let by_prefix =
                |(scorer, _): &(Scorer, f32)| matches!(scorer, Scorer::Prefix | Scorer::Ttft);
            stage.choose.wants_hits() || scored && stage.weights.iter().any(by_prefix)
        };
        let settings = &self.settings;
        stage(&settings.prefill)
            || stage(&settings.decode)
            || settings.local_prefill.max_uncached_tokens > 0
    }

    fn wants_levels(&self) -> bool {
        let prefill = &self.settings.prefill;
        let by_topology = |(scorer, _): &(Scorer, f32)| *scorer == Scorer::Topology;
        prefill.choose == Rule::Scored && prefill.weights.iter().any(by_topology)
    }

    /// The operator's model of how long prompts take, where the rule that knows one is followed.
    fn prefill_model(&self) -> Option<[f32; 4]> {
        let uses =
            |rule| self.settings.prefill.choose == rule || self.settings.decode.choose == rule;
        let model = self.settings.kvcache_centric.prefill_model;
        model.filter(|_| uses(Rule::KvcacheCentric))
    }

    /// A worker's labels at the levels of the topology: the first ones are those that it has.
    fn levels(&self, fleet: &Fleet, worker: u16) -> Levels {
        let (labels, own) = (fleet.labels(), &fleet.traits()[usize::from(worker)].labels);
        let mut ids = [LabelId::NONE; LABELS];
        let known = self.settings.topology.levels.iter().filter_map(|level| {
            let key = labels.key(level)?;
            own.iter().find(|id| labels.key_of(**id) == Some(key))
        });
        ids.iter_mut()
            .zip(known)
            .for_each(|(id, known)| *id = *known);
        ids
    }

    /// Whether the decode worker computes this prompt itself, though others could.
    fn local(&self, look: &Look<'_>, decode: &Figures) -> Option<Local> {
        if does_both(decode) {
            return Some(Local::Role);
        }
        let limits = self.settings.local_prefill;
        if decode.queued_tokens >= limits.max_queued_tokens {
            return None;
        }
        let (prompt, held) = (look.request.prompt_tokens, look.held(decode));
        if prompt <= limits.max_prompt_tokens {
            return Some(Local::ShortPrompt);
        }
        (held > 0 && prompt - held <= limits.max_uncached_tokens).then_some(Local::Held)
    }

    /// Why no prefill worker is there, or that the decode worker does without.
    fn without_prefill(&self, stage: &StageWhy) -> Result<Local, NoPairReason> {
        let splitwise = self.settings.prefill.choose == Rule::Splitwise;
        // Those that failed the request are none for it, and the next report changes nothing.
        let may_pass = stage.may_pass_but(Filtered::Avoided)
            || stage.may_pass() && self.settings.when_no_prefill == WhenNoPrefill::Refuse;
        match (may_pass, self.settings.when_no_prefill) {
            (true, _) if splitwise && self.settings.splitwise.mixed_pool => Ok(Local::Mixed),
            (true, _) => Err(NoPairReason::NoRoom(Stage::Prefill)),
            (false, WhenNoPrefill::Local) => Ok(Local::NoPrefill),
            (false, WhenNoPrefill::Refuse) => Err(NoPairReason::NoWorker(Stage::Prefill)),
        }
    }

    /// The best of all pairs of these; the first of each where they are not compared.
    fn best_pair(&mut self, fleet: &Fleet, decodes: &[Best], prefills: &[Best]) -> (u16, u16, u16) {
        let first = (decodes[0].at, prefills[0].at);
        if decodes.len() * prefills.len() <= 1 {
            return (first.0, first.1, 0);
        }
        let mut best = (f32::NEG_INFINITY, first);
        let mut equals = 0;
        for decode in decodes {
            let levels = self.levels(fleet, decode.at);
            for prefill in prefills {
                let near = nearness(known(&levels), &fleet.traits()[usize::from(prefill.at)]);
                let worth = decode.share + prefill.share + self.settings.pair.topology * near;
                equals = if worth > best.0 {
                    1
                } else {
                    equals + u32::from(worth == best.0)
                };
                if worth > best.0 || worth == best.0 && self.random.below(equals as usize) == 0 {
                    best = (worth, (decode.at, prefill.at));
                }
            }
        }
        let pairs = decodes.len() * prefills.len();
        (best.1.0, best.1.1, pairs as u16)
    }

    /// What the pair promises to take, and whether that is too late.
    fn predict(
        &self,
        now: Instant,
        look: &Look<'_>,
        decode: &Figures,
        computes: &Figures,
        layout: Option<&KvGeometry>,
    ) -> (Predicted, Option<TooLate>) {
        let settings = &self.settings;
        let reject = |rule| match rule {
            Rule::KvcacheCentric => Some(settings.kvcache_centric.reject),
            Rule::SloAware => Some(settings.slo_aware.reject),
            _ => None,
        };
        // One that does both is chosen by the decode stage's rule.
        let by = if std::ptr::eq(decode, computes) {
            settings.decode.choose
        } else {
            settings.prefill.choose
        };
        let (for_ttft, for_tpot) = (reject(by), reject(settings.decode.choose));
        let mut predicted = Predicted::default();
        let mut until_first = 0.0;
        if for_ttft.is_some() && look.times.known() {
            let prompt = look.request.prompt_tokens;
            let prefill = look.times.prefill_ms(computes, prompt, look.held(computes));
            let push = layout.map_or(0.0, |geometry| self.push_ms(look, decode, geometry));
            until_first = look.times.queue_ms(computes) + prefill.max(push);
            let waited = now.since(look.request.arrived);
            predicted.ttft = Some(waited + millis(until_first));
        }
        if let Some(reject) = for_tpot {
            let stays = match reject {
                Reject::Predicted => {
                    let decoding = settings.kvcache_centric.predicted_decode.as_secs_f32() * 1e3;
                    (1.0 - until_first / decoding).max(0.0)
                }
                _ => 1.0,
            };
            let step = step_us(decode, f32::from(decode.requests) * stays + 1.0);
            predicted.tpot = (step > 0.0).then(|| millis(step / 1e3));
        }
        let slo = promised(look, settings);
        let late = |what,
                    reject: Option<Reject>,
                    predicted: Option<Duration>,
                    promised: Option<Duration>| {
            let rejects = matches!(reject, Some(Reject::Arrival | Reject::Predicted));
            let (predicted, promised) = (predicted?, promised?);
            (rejects && predicted > promised).then_some(TooLate {
                what,
                predicted,
                promised,
            })
        };
        let too_late = late("TTFT", for_ttft, predicted.ttft, slo.ttft)
            .or_else(|| late("TPOT", for_tpot, predicted.tpot, slo.tpot));
        (predicted, too_late)
    }

    /// Milliseconds that the push of what the decode worker lacks takes at the least.
    fn push_ms(&self, look: &Look<'_>, decode: &Figures, geometry: &KvGeometry) -> f32 {
        let Some(gbps) = self.settings.kvcache_centric.transfer_gbps else {
            return 0.0;
        };
        let tokens = look.request.prompt_tokens - look.held(decode);
        let bytes = geometry.page_bytes() as f32 / f32::from(geometry.page_tokens) * tokens as f32;
        bytes * 8.0 / (gbps * 1e6)
    }
}

/// What a pair would take.
#[derive(Clone, Copy, Debug, Default)]
struct Predicted {
    ttft: Option<Duration>,
    tpot: Option<Duration>,
}

fn millis(ms: f32) -> Duration {
    Duration::try_from_secs_f32(ms / 1e3).unwrap_or(Duration::MAX)
}

fn name(fleet: &Fleet, at: u16) -> WorkerId {
    let worker = fleet.at(Slot::at(at));
    worker
        .expect("a candidate's slot is taken")
        .facts
        .worker
        .clone()
}

impl Policy for Pairing {
    fn pair(
        &mut self,
        now: Instant,
        fleet: &Fleet,
        request: &RequestFacts,
    ) -> Result<Pair, NoPair> {
        let mut hits = std::mem::take(&mut self.hits);
        if self.wants_hits() {
            fleet.hits(&request.blocks, &mut hits);
        } else {
            hits.clear();
        }
        let figures = fleet.figures();
        let unknown_ns = OnceCell::new();
        let look = Look {
            columns: fleet.of_stage(Stage::Decode),
            figures,
            traits: fleet.traits(),
            even: fleet.census().even,
            request,
            hits: &hits,
            stage: Stage::Decode,
            near: Levels::default(),
            times: Times::measured(self.prefill_model(), fleet, &unknown_ns),
            waited_ms: now.since(request.arrived).as_secs_f32() * 1e3,
        };
        let answer = self.both(now, fleet, look);
        self.hits = hits;
        answer
    }

    fn explain(&self, now: Instant, fleet: &Fleet, request: &RequestFacts) -> Result<Pair, NoPair> {
        let mut copy = self.clone();
        copy.prefill.show_all();
        copy.decode.show_all();
        copy.pair(now, fleet, request)
    }

    fn index_blocks(&self) -> usize {
        self.settings.index.max_blocks
    }

    fn decodes_alone(&self) -> bool {
        self.settings.when_no_prefill == WhenNoPrefill::Local
    }
}

impl Pairing {
    fn both(&mut self, now: Instant, fleet: &Fleet, look: Look<'_>) -> Result<Pair, NoPair> {
        let rules = (self.settings.decode.choose, self.settings.prefill.choose);
        let mut why = Why::default();
        if !self.decode.filter(fleet, &look, &self.settings) {
            why.decode = self.decode.why(fleet, &look, rules.0, None);
            let reason = match why.decode.may_pass() {
                true => NoPairReason::NoRoom(Stage::Decode),
                false => NoPairReason::NoWorker(Stage::Decode),
            };
            return Err(NoPair {
                reason,
                why: Arc::new(why),
            });
        }
        let count = self.settings.pair.candidates.max(1) as usize;
        let decodes = self.decode.choose(fleet, &look, &self.settings, count);
        let mut decode = decodes[0].at;
        let mut prefill = None;
        why.local = self.local(&look, &look.figures[usize::from(decode)]);
        if why.local.is_none() {
            let near = self.wants_levels().then(|| self.levels(fleet, decode));
            let look = Look {
                columns: fleet.of_stage(Stage::Prefill),
                stage: Stage::Prefill,
                near: near.unwrap_or_default(),
                ..look
            };
            if self.prefill.filter(fleet, &look, &self.settings) {
                let prefills = self.prefill.choose(fleet, &look, &self.settings, count);
                // One that does both is no half of a pair.
                let decodes: Vec<Best> = decodes
                    .iter()
                    .copied()
                    .filter(|d| !does_both(&look.figures[usize::from(d.at)]))
                    .collect();
                let (d, p, pairs) = self.best_pair(fleet, &decodes, &prefills);
                (decode, prefill, why.pairs) = (d, Some(p), pairs);
                why.prefill = Some(self.prefill.why(fleet, &look, rules.1, prefill));
            } else {
                let stage = self.prefill.why(fleet, &look, rules.1, None);
                let local = self.without_prefill(&stage);
                why.prefill = Some(stage);
                match local {
                    Ok(local) => why.local = Some(local),
                    Err(reason) => {
                        return Err(NoPair {
                            reason,
                            why: Arc::new(why),
                        });
                    }
                }
            }
        }
        why.decode = self.decode.why(fleet, &look, rules.0, Some(decode));
        self.pair_of(now, fleet, &look, (decode, prefill), why)
    }

    /// The pair, unless it would be too late.
    fn pair_of(
        &mut self,
        now: Instant,
        fleet: &Fleet,
        look: &Look<'_>,
        (decode, prefill): (u16, Option<u16>),
        mut why: Why,
    ) -> Result<Pair, NoPair> {
        let figures = &look.figures[usize::from(decode)];
        let computes = prefill.map_or(figures, |at| &look.figures[usize::from(at)]);
        let worker = fleet.at(Slot::at(decode)).filter(|_| prefill.is_some());
        let geometry = worker.map(|w| w.facts.layout.geometry());
        let (predicted, too_late) = self.predict(now, look, figures, computes, geometry);
        (why.ttft, why.tpot) = (predicted.ttft, predicted.tpot);
        if let Some(late) = too_late {
            let reason = NoPairReason::TooLate(late);
            return Err(NoPair {
                reason,
                why: Arc::new(why),
            });
        }
        let names = (name(fleet, decode), prefill.map(|at| name(fleet, at)));
        self.decode.chosen(self.settings.decode.choose, &names.0);
        if let Some(prefill) = &names.1 {
            self.prefill.chosen(self.settings.prefill.choose, prefill);
        }
        Ok(Pair {
            decode: names.0,
            prefill: names.1,
            local: why.local,
            cached_tokens: look.held(computes),
            why: Arc::new(why),
        })
    }
}
