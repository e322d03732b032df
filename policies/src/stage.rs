//! One stage of a pairing: filters, then the rule's scores, then the picker.

use tandem_core::WorkerId;
use tandem_core::fleet::{Figures, Fleet, LABELS, LabelId, Slot, Traits, pages_for};
use tandem_core::pairing::{
    FILTERS, Filtered, RequestFacts, Score, Shown, Stage, StageWhy, of_decode, of_prefill,
    takes_decode, takes_prefill,
};

use crate::look::Look;
use crate::pick::{most, pick, range, weighted};
use crate::random::Random;
use crate::rules::{Room, Scoring};
use crate::settings::{Picker, PolicySettings, Rule, StageSettings};

/// Candidates that a reason shows beside the chosen one: all of a small fleet's,
const SHOWN: usize = 15;
/// and the next best of a large one's.
const SHOWN_OF_MANY: usize = 1;
/// Workers that were filtered out, that a reason shows.
const OUT: usize = 8;

/// What a stage remembers, and room to work in.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    random: Random,
    /// Whom round robin chose last.
    last: Option<WorkerId>,
    /// Of the stage's workers, by seat.
    fits: Vec<bool>,
    /// Slots, and what each is worth once it is scored.
    candidates: Vec<u16>,
    scores: Vec<f32>,
    room: Room,
    filtered: [u16; FILTERS],
    out: Vec<(u16, Filtered)>,
    /// Shows everything, where someone asked why.
    all: bool,
}

/// One of the best candidates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Best {
    /// Its slot.
    pub(crate) at: u16,
    /// From 0 (the worst candidate's) to 1 (the best one's).
    pub(crate) share: f32,
    score: f32,
}

impl Chooser {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            last: None,
            fits: Vec::new(),
            candidates: Vec::new(),
            scores: Vec::new(),
            room: Room::default(),
            filtered: [0; FILTERS],
            out: Vec::new(),
            all: false,
        }
    }

    pub(crate) const fn show_all(&mut self) {
        self.all = true;
    }

    /// Keeps those that the request can go to. Whether there is one.
    pub(crate) fn filter(
        &mut self,
        fleet: &Fleet,
        look: &Look<'_>,
        settings: &PolicySettings,
    ) -> bool {
        let own = of(look.stage, settings);
        let mut wanted = [LabelId::NONE; LABELS];
        for (id, (key, value)) in wanted.iter_mut().zip(&own.labels) {
            *id = fleet.labels().id(key, value);
        }
        let wanted = &wanted[..own.labels.len().min(LABELS)];
        let avoid = look
            .request
            .avoid
            .iter()
            .filter(|(stage, _)| *stage == look.stage);
        let avoid: Vec<Slot> = avoid.filter_map(|(_, worker)| fleet.slot(worker)).collect();
        let rarely = own.choose == Rule::Splitwise || !wanted.is_empty() || !avoid.is_empty();
        let columns = look.columns;
        self.out.clear();
        self.filtered = [0; FILTERS];
        self.filtered[Filtered::Role as usize] = (look.figures.len() - columns.len()) as u16;
        if !rarely && !self.all && all_fit(look) {
            self.fits.clear();
            self.fits.resize(columns.len(), true);
            self.candidates.clone_from(&columns.slots);
            return !columns.is_empty();
        }
        let mut pages = PagesFor::default();
        let rest = |at: u16, worker: &Figures| {
            if !rarely {
                return Ok(());
            }
            bounded(worker, look, own.choose, settings)?;
            labelled(&look.traits[usize::from(at)], wanted)?;
            match avoid.contains(&Slot::at(at)) {
                true => Err(Filtered::Avoided),
                false => Ok(()),
            }
        };
        match look.stage {
            Stage::Prefill => self.keep(look, |at, worker| {
                of_prefill(worker).and_then(|()| rest(at, worker))
            }),
            Stage::Decode => self.keep(look, |at, worker| {
                let pages = pages.needed(worker, look.request);
                of_decode(worker, pages).and_then(|()| rest(at, worker))
            }),
        }
        !self.candidates.is_empty()
    }

    /// A copy of this loop for each stage.
    #[inline]
    fn keep(
        &mut self,
        look: &Look<'_>,
        mut fits: impl FnMut(u16, &Figures) -> Result<(), Filtered>,
    ) {
        let shown = if self.all { usize::MAX } else { OUT };
        let slots = &look.columns.slots;
        self.fits.clear();
        // Not pushed one by one: with their number in memory, each would wait for the one before.
        self.candidates.resize(slots.len(), 0);
        let candidates = self.candidates.as_mut_slice();
        let mut count = 0;
        for at in slots.iter().copied() {
            let fit = fits(at, &look.figures[usize::from(at)]);
            self.fits.push(fit.is_ok());
            match fit {
                Ok(()) => {
                    candidates[count] = at;
                    count += 1;
                }
                Err(why) => {
                    self.filtered[why as usize] += 1;
                    if self.out.len() < shown {
                        self.out.push((at, why));
                    }
                }
            }
        }
        self.candidates.truncate(count);
    }

    /// Scores the candidates.
    fn score(&mut self, rule: Rule, look: &Look<'_>, settings: &PolicySettings, turn: u32) {
        let mut scoring = Scoring {
            columns: look.columns,
            fits: &self.fits,
            scores: &mut self.scores,
            room: &mut self.room,
        };
        scoring.score(rule, look, settings, turn);
        if self.candidates.len() < self.fits.len() {
            let mut fits = self.fits.iter().copied();
            self.scores.retain(|_| fits.next().unwrap_or(false));
        }
    }

    /// Scores the candidates and picks the `count` best, the picker's choice first.
    pub(crate) fn choose(
        &mut self,
        fleet: &Fleet,
        look: &Look<'_>,
        settings: &PolicySettings,
        count: usize,
    ) -> Vec<Best> {
        let own = of(look.stage, settings);
        let turn = match (own.choose, &self.last) {
            (Rule::RoundRobin, Some(last)) => fleet.rank_after(last),
            _ => 0,
        };
        self.score(own.choose, look, settings, turn);
        // Only pairs are compared by it.
        let (low, high) = if count > 1 {
            range(&self.scores)
        } else {
            (0.0, 0.0)
        };
        let share = |score: f32| {
            if high > low {
                (score - low) / (high - low)
            } else {
                1.0
            }
        };
        let mut picked = Vec::with_capacity(count.min(self.candidates.len()));
        let mut picker = picker(own, settings);
        while picked.len() < count.min(self.candidates.len()) {
            let index = match own.choose {
                Rule::Random => weighted(&self.scores, &mut self.random),
                _ => pick(picker, &self.scores, &mut self.random),
            };
            let score = std::mem::replace(&mut self.scores[index], f32::NEG_INFINITY);
            // The others of a pairing are the next best, by whatever chance the first was drawn.
            picker = Picker::Highest;
            let best = Best {
                at: index as u16,
                share: share(score),
                score,
            };
            picked.push(best);
        }
        for best in &mut picked {
            self.scores[usize::from(best.at)] = best.score;
            best.at = self.candidates[usize::from(best.at)];
        }
        picked
    }

    /// It is this one: remembers it where turns matter.
    pub(crate) fn chosen(&mut self, rule: Rule, worker: &WorkerId) {
        if rule == Rule::RoundRobin {
            self.last = Some(worker.clone());
        }
    }

    /// The reason: who was chosen, and who else could have been.
    pub(crate) fn why(
        &self,
        fleet: &Fleet,
        look: &Look<'_>,
        rule: Rule,
        chosen: Option<u16>,
    ) -> StageWhy {
        let name = |at: u16| {
            let worker = fleet.at(Slot::at(at));
            worker.map(|w| w.facts.worker.clone())
        };
        let mut shown = Vec::new();
        if let Some(chosen) = chosen {
            let index = self.candidates.iter().position(|at| *at == chosen);
            let most = match self.candidates.len() - 1 {
                _ if self.all => usize::MAX,
                few if few <= SHOWN => SHOWN,
                _ => SHOWN_OF_MANY,
            };
            let best = chosen_first(&self.scores, index, most);
            for index in best {
                let at = self.candidates[index];
                let figures = &look.figures[usize::from(at)];
                shown
                    .extend(name(at).map(|worker| show(worker, self.scores[index], figures, look)));
            }
        }
        let out = self.out.iter();
        StageWhy {
            rule: rule.as_str(),
            candidates: self.candidates.len() as u16,
            filtered: self.filtered,
            shown,
            out: out
                .filter_map(|(at, why)| Some((name(*at)?, *why)))
                .collect(),
        }
    }
}

/// Pages that the request needs, by page size: workers have one or two.
#[derive(Default)]
struct PagesFor {
    page_tokens: u16,
    pages: u32,
}

impl PagesFor {
    #[inline]
    fn needed(&mut self, worker: &Figures, request: &RequestFacts) -> u32 {
        if worker.page_tokens != self.page_tokens {
            self.page_tokens = worker.page_tokens;
            self.pages = pages_for(worker.page_tokens, request);
        }
        self.pages
    }
}

/// Whether every worker of the stage could take the request, as far as no rule refuses it: most often it is
/// so, and then nobody is looked at alone. Says no where it takes longer to tell.
fn all_fit(look: &Look<'_>) -> bool {
    let columns = look.columns;
    let flags = columns.flags.iter();
    match (look.stage, columns.same_page_tokens()) {
        (Stage::Prefill, _) => flags.filter(|flags| !takes_prefill(**flags)).count() == 0,
        (Stage::Decode, None) => false,
        (Stage::Decode, Some(page_tokens)) => {
            let needed = pages_for(page_tokens, look.request);
            let workers = flags.zip(&columns.free_pages);
            let unfit = workers.filter(|(flags, free)| !takes_decode(**flags) | (**free < needed));
            unfit.count() == 0
        }
    }
}

/// What a stage's rule refuses beside what nobody can.
#[inline]
fn bounded(
    worker: &Figures,
    look: &Look<'_>,
    rule: Rule,
    settings: &PolicySettings,
) -> Result<(), Filtered> {
    if rule != Rule::Splitwise {
        return Ok(());
    }
    let bounds = settings.splitwise;
    match look.stage {
        Stage::Prefill => {
            let waiting = worker.queued_tokens;
            let more = waiting.saturating_add(look.request.prompt_tokens);
            if waiting > 0 && more > bounds.prompt_max_pending_tokens {
                return Err(Filtered::Busy);
            }
        }
        Stage::Decode => {
            let own = pages_for(worker.page_tokens, look.request);
            let most = worker.pages as f32 * bounds.token_mem_high;
            // One that has nothing takes what fits at all.
            if worker.used_pages() > 0 && (worker.used_pages() + own) as f32 > most {
                return Err(Filtered::NoRoom);
            }
        }
    }
    Ok(())
}

#[inline]
fn labelled(worker: &Traits, wanted: &[LabelId]) -> Result<(), Filtered> {
    let has = |label: &LabelId| *label != LabelId::NONE && worker.has(*label);
    if wanted.iter().all(has) {
        Ok(())
    } else {
        Err(Filtered::Label)
    }
}

pub(crate) const fn of(stage: Stage, settings: &PolicySettings) -> &StageSettings {
    match stage {
        Stage::Prefill => &settings.prefill,
        Stage::Decode => &settings.decode,
    }
}

const fn picker(own: &StageSettings, settings: &PolicySettings) -> Picker {
    match own.choose {
        Rule::Scored => own.picker,
        Rule::PowerOfTwo => Picker::PowerOfTwo,
        Rule::KvCost => Picker::Softmax {
            temperature: settings.kv_cost.router_temperature,
        },
        _ => Picker::Highest,
    }
}

/// Indices of the chosen candidate and of the `count` best others, the best first.
fn chosen_first(scores: &[f32], chosen: Option<usize>, count: usize) -> Vec<usize> {
    if let (Some(chosen), 1) = (chosen, count) {
        return [Some(chosen), next_best(scores, chosen)]
            .into_iter()
            .flatten()
            .collect();
    }
    let others = (0..scores.len()).filter(|at| Some(*at) != chosen);
    let mut others: Vec<usize> = others.collect();
    others.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    others.truncate(count);
    chosen.into_iter().chain(others).collect()
}

/// The best but this one.
fn next_best(scores: &[f32], but: usize) -> Option<usize> {
    let (before, after) = (&scores[..but], &scores[but + 1..]);
    let best = most(before).max(most(after));
    let at = |scores: &[f32]| scores.iter().position(|score| *score == best);
    at(before).or_else(|| Some(but + 1 + at(after)?))
}

fn show(worker: WorkerId, score: f32, figures: &Figures, look: &Look<'_>) -> Shown {
    Shown {
        worker,
        score: Score::of(score),
        queued_tokens: figures.queued_tokens,
        requests: figures.requests.into(),
        free_pages: figures.free_pages,
        pages: figures.pages,
        hit_tokens: look.held(figures),
    }
}
