//! Predictions, promises, and requests that are turned away because of them.

use std::time::Duration;

use tandem_core::Instant;
use tandem_core::fleet::Fleet;
use tandem_core::pairing::{NoPairReason, Policy, Targets};

use super::made::*;
use crate::{Headroom, PolicySettings, Reject, Rule};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Two of each, one busy: 2,000 tokens at 1 µs each, and steps of 10 ms at a batch of 8.
fn workers() -> Fleet {
    fleet([
        worker("p0").measured(ms(10)).queued(2_000),
        worker("p1").measured(ms(10)),
        worker("d0").measured(ms(10)).running(8),
        worker("d1").measured(ms(20)).running(8),
    ])
}

fn promising(rule: Rule, ttft: u64, tpot: u64) -> PolicySettings {
    let mut settings = both(rule);
    settings.slo = Targets {
        ttft: Some(ms(ttft)),
        tpot: Some(ms(tpot)),
    };
    settings
}

#[test]
fn slo_aware_packs_or_spreads_those_that_keep_the_promise() {
    let mut settings = promising(Rule::SloAware, 5, 30);
    let chosen = always(&settings, &workers(), &request(100));
    assert_eq!((chosen.0.as_str(), chosen.1.as_str()), ("p1", "d0"));
    settings.slo_aware.headroom = Headroom::Least;
    let chosen = always(&settings, &workers(), &request(100));
    assert_eq!((chosen.0.as_str(), chosen.1.as_str()), ("p0", "d1"));
    // p0 would take 3.6 ms and d1 20 ms: both break these.
    let tight = PolicySettings {
        slo: promising(Rule::SloAware, 3, 15).slo,
        ..settings
    };
    let chosen = always(&tight, &workers(), &request(100));
    assert_eq!((chosen.0.as_str(), chosen.1.as_str()), ("p1", "d0"));
}

#[test]
fn a_class_of_its_own_promise_is_judged_by_that() {
    let mut settings = promising(Rule::SloAware, 1, 1);
    settings.slo_aware.reject = Reject::Arrival;
    let mut request = request(100);
    let none = try_pair(&mut pairing(&settings), &workers(), &request).unwrap_err();
    assert!(matches!(none.reason, NoPairReason::TooLate(_)));
    request.targets = Targets {
        ttft: Some(ms(5)),
        tpot: Some(ms(30)),
    };
    let pair = pair(&mut pairing(&settings), &workers(), &request);
    assert_eq!(pair.why.ttft, Some(Duration::from_micros(1600)));
    assert_eq!(pair.why.tpot, Some(ms(10)));
}

#[test]
fn time_that_a_request_waited_counts_towards_its_promise() {
    let mut settings = promising(Rule::KvcacheCentric, 5, 100);
    settings.kvcache_centric.reject = Reject::Arrival;
    let mut policy = pairing(&settings);
    let mut at = |now| policy.pair(Instant::from_millis(now), &workers(), &request(100));
    assert!(at(3).is_ok());
    let late = at(4).unwrap_err();
    let NoPairReason::TooLate(late) = late.reason else {
        panic!("{:?}", late.reason)
    };
    assert_eq!(
        late.to_string(),
        "predicted TTFT is 5 ms, and 5 ms were promised"
    );
}

#[test]
fn nobody_is_turned_away_on_times_that_nobody_measured() {
    let mut settings = promising(Rule::KvcacheCentric, 1, 1);
    settings.kvcache_centric.reject = Reject::Arrival;
    let fleet = fleet([worker("p").queued(1 << 20), worker("d").running(100)]);
    assert!(try_pair(&mut pairing(&settings), &fleet, &request(100)).is_ok());
}

#[test]
fn a_predicted_decode_load_counts_those_out_that_end_before_the_prompt_does() {
    // A second until the prompt is computed; all that decodes now takes a second more.
    let step = |batch: u32| Duration::from_micros(u64::from(10_000 + 1_000 * batch));
    let mut decode = worker("d").measured(step(8)).running(8);
    let mut fleet = fleet([worker("p").measured(ms(1)).queued(1_000_000), {
        decode.load.sequence = 1;
        decode
    }]);
    for (sequence, batch) in [(2, 16), (3, 40)] {
        let load = tandem_core::fleet::WorkerLoad {
            sequence,
            free_pages: 1000,
            running: batch,
            decode_step_us: step(batch).as_micros() as u32,
            ..Default::default()
        };
        fleet.report(&name("d"), tandem_core::Incarnation(1), load);
    }
    let mut settings = promising(Rule::KvcacheCentric, 10_000, 40);
    settings.kvcache_centric.reject = Reject::Arrival;
    let none = try_pair(&mut pairing(&settings), &fleet, &request(1)).unwrap_err();
    assert!(matches!(none.reason, NoPairReason::TooLate(late) if late.what == "TPOT"));
    settings.kvcache_centric.reject = Reject::Predicted;
    settings.kvcache_centric.predicted_decode = Duration::from_secs(2);
    let pair = pair(&mut pairing(&settings), &fleet, &request(1));
    let tpot = pair.why.tpot.unwrap();
    assert!((ms(30)..ms(33)).contains(&tpot), "{tpot:?}");
}

#[test]
fn a_push_that_takes_longer_than_the_prompt_decides_when_the_first_token_comes() {
    let mut settings = promising(Rule::KvcacheCentric, 1_000, 100);
    let ttft = |settings: &_| {
        let pair = pair(&mut pairing(settings), &workers(), &request(100));
        pair.why.ttft.unwrap()
    };
    let computed = ttft(&settings);
    // 1,600 tokens of 512 bytes are 6.6 Mbit.
    settings.kvcache_centric.transfer_gbps = Some(1.0);
    assert!((ms(6)..ms(7)).contains(&ttft(&settings)));
    settings.kvcache_centric.transfer_gbps = Some(100.0);
    assert_eq!(ttft(&settings), computed);
}
