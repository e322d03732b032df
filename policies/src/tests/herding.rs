//! Several gateways that share workers, and reports that come late.

use tandem_core::fleet::{Fleet, WorkerLoad};
use tandem_core::{Incarnation, RequestId};

use super::made::*;
use crate::{Pairing, PolicySettings, Rule};

const DECODES: usize = 8;

/// Three gateways, each with reports that are old by a whole burst; the most requests that any worker
/// got of it, and the mean.
fn burst(settings: &PolicySettings, each: usize) -> (usize, usize) {
    let all = || {
        (0..DECODES)
            .map(|n| worker(&format!("d{n}")))
            .chain([worker("p")])
    };
    let mut gateways: Vec<(Fleet, Pairing)> = (0..3)
        .map(|seed| (fleet(all()), Pairing::new(settings, seed)))
        .collect();
    let mut got = [0; DECODES];
    for n in 0..each {
        for (fleet, policy) in &mut gateways {
            let mut request = request(10);
            request.request = RequestId(n as u128);
            let chosen = pair(policy, fleet, &request);
            // No report comes in time: what the gateway picked itself is all that it knows.
            let _kept = fleet.pick(&chosen, &request, 11);
            let at: usize = chosen.decode.as_str()[1..].parse().unwrap();
            got[at] += 1;
        }
    }
    (got.into_iter().max().unwrap(), 3 * each / DECODES)
}

#[test]
fn gateways_with_the_same_stale_reports_do_not_herd() {
    for rule in [
        Rule::LeastLoaded,
        Rule::KvCost,
        Rule::PowerOfTwo,
        Rule::SloAware,
    ] {
        let mut settings = both(rule);
        settings.slo.tpot = Some(std::time::Duration::from_millis(50));
        let (most, mean) = burst(&settings, 80);
        assert!(
            most <= mean * 3 / 2,
            "{rule:?}: {most} of {mean} on average"
        );
    }
}

#[test]
fn the_first_choice_of_many_gateways_is_spread_over_equals() {
    let workers = || {
        (0..DECODES)
            .map(|n| worker(&format!("d{n}")))
            .chain([worker("p")])
    };
    let fleet = fleet(workers());
    let mut got = std::collections::BTreeMap::new();
    for seed in 0..200 {
        let mut policy = Pairing::new(&both(Rule::LeastLoaded), seed);
        *got.entry(pair(&mut policy, &fleet, &request(1)).decode)
            .or_insert(0) += 1;
    }
    assert_eq!(got.len(), DECODES);
    assert!(got.values().all(|n| (8..60).contains(n)), "{got:?}");
}

#[test]
fn a_late_report_does_not_bring_back_a_load_that_has_gone() {
    let mut fleet = fleet([worker("p"), worker("d0"), worker("d1")]);
    let report = |sequence, free_pages| WorkerLoad {
        sequence,
        free_pages,
        ..WorkerLoad::default()
    };
    fleet.report(&name("d0"), Incarnation(1), report(9, 1000));
    fleet.report(&name("d0"), Incarnation(1), report(8, 0));
    fleet.report(&name("d1"), Incarnation(1), report(9, 10));
    assert_eq!(
        always(&both(Rule::LeastLoaded), &fleet, &request(1)).1,
        "d0"
    );
}
