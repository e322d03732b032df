//! Rules score all workers at once: who cannot take the request must change nobody's score.

use std::collections::BTreeMap;
use std::time::Duration;

use tandem_core::Instant;
use tandem_core::fleet::Fleet;
use tandem_core::pairing::{Policy, Score, StageWhy, Targets};

use super::made::*;
use crate::random::Random;
use crate::{PolicySettings, Rule, Scorer};

/// Workers of all measures that a rule looks at; two of three measured their times.
fn some(names: &[String], random: &mut Random) -> Vec<Made> {
    let some = |name: &String| {
        let mut number = |below: usize| random.below(below) as u32;
        let (free, queued) = (100 + number(900), u64::from(number(50_000)));
        let made = worker(name).free(free).queued(queued);
        let made = made.running(number(300)).holds(number(40));
        match number(3) {
            0 => made,
            _ => made.measured(Duration::from_millis(1 + u64::from(number(60)))),
        }
    };
    names.iter().map(some).collect()
}

fn names(prefixes: [&str; 2], count: usize) -> Vec<String> {
    let each = |prefix| (0..count).map(move |n| format!("{prefix}{n:02}"));
    prefixes.into_iter().flat_map(each).collect()
}

fn scores(stage: &StageWhy) -> BTreeMap<String, Score> {
    let shown = stage.shown.iter();
    shown
        .map(|shown| (shown.worker.to_string(), shown.score))
        .collect()
}

fn explained(settings: &PolicySettings, fleet: &Fleet) -> [BTreeMap<String, Score>; 2] {
    let mut request = request(40);
    request.affinity = Some(9);
    let pair = pairing(settings)
        .explain(Instant::ZERO, fleet, &request)
        .unwrap();
    let prefill = pair.why.prefill.as_ref().unwrap();
    [scores(&pair.why.decode), scores(prefill)]
}

fn all_rules() -> impl Iterator<Item = PolicySettings> {
    // What turn it is depends on all names.
    let rules = Rule::NAMES
        .into_iter()
        .map(|(_, rule)| rule)
        .filter(|rule| *rule != Rule::RoundRobin);
    rules.map(|rule| {
        let mut settings = both(rule);
        settings.slo = Targets {
            ttft: Some(Duration::from_millis(40)),
            tpot: Some(Duration::from_millis(30)),
        };
        settings.kv_cost.overlap_score_credit_decay = 0.5;
        let all = [Scorer::Queue, Scorer::Requests, Scorer::Ttft, Scorer::Tpot];
        let more = [Scorer::Pages, Scorer::Prefix, Scorer::Session];
        let weights: Vec<_> = all
            .into_iter()
            .chain(more)
            .zip([1.0, 2.0, 0.5, 0.7, 1.5, 3.0, 0.4])
            .collect();
        (settings.prefill.weights, settings.decode.weights) = (weights.clone(), weights);
        settings
    })
}

#[test]
fn who_cannot_take_a_request_changes_nobodys_score() {
    let mut random = Random::new(5);
    for settings in all_rules() {
        for _ in 0..20 {
            let seed = random.below(1 << 40) as u64;
            let able = names(["p", "d"], 11);
            let alone = fleet(some(&able, &mut Random::new(seed)));
            // The same ones, and among them others that have more or less of everything.
            let away = names(["pa", "da"], 3);
            let mut with = some(&able, &mut Random::new(seed));
            with.extend(some(&away, &mut random));
            with.rotate_left(random.below(28));
            let mut with = fleet(with);
            for name_of in &away {
                with.set_healthy(&name(name_of), false);
            }
            let rule = settings.decode.choose;
            assert_eq!(
                explained(&settings, &with),
                explained(&settings, &alone),
                "{rule:?}"
            );
        }
    }
}
