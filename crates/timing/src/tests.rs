use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use tandem_core::geometry::KvKind;

use super::*;

fn profile() -> impl Strategy<Value = Profile> {
    let cost = || 0.0..500.0f64;
    let experts = proptest::option::of((1..300u32, 1..10u32, 0.01..50.0f64, 1..9u32));
    let points = proptest::collection::vec((1.0..1e6f64, 0.0..1.0f64), 1..5);
    (
        (1..100u16, cost(), cost(), 100.0..5000.0f64),
        (cost(), 0.0..2000.0f64, experts),
        (0.0..100.0f64, 0.0..5000.0f64),
        (proptest::option::of(points), cost(), 0.0..500.0f64),
    )
        .prop_map(|(step, weights, attention, between)| Profile {
            model: "m".into(),
            context_length: 1 << 20,
            gpus: 8,
            kv: KvShape {
                layers: step.0,
                kind: KvKind::Heads,
                heads: 4,
                head_dim: 128,
                tokens: 1 << 20,
            },
            step: StepCost {
                overhead_us: step.1,
                layer_us: step.2,
            },
            memory_gb_per_s: step.3,
            dense: Dense {
                weight_mb: weights.0,
                ns_per_token: weights.1,
            },
            experts: weights.2.map(|(more, active, expert_mb, ranks)| Experts {
                count: active + more,
                active,
                expert_mb,
                ranks,
            }),
            attention: Attention {
                ps_per_pair: attention.0,
                kv_bytes_per_token: attention.1,
            },
            exchange: between.0.map(exchange),
            link: Link {
                layer_us: between.1,
                ns_per_token: between.2,
            },
        })
}

/// Through a first point of 5 us, by steps whose slopes fall.
fn exchange(steps: Vec<(f64, f64)>) -> Exchange {
    let mut points = vec![(100.0, 5.0)];
    let mut slope = 0.1;
    for (width, less) in steps {
        let (x, y) = points[points.len() - 1];
        slope *= less;
        points.push((x + width, y + width * slope));
    }
    Exchange {
        per_layer: 2,
        bytes_per_token: 8192.0,
        us: Points::new(points).unwrap(),
    }
}

proptest! {
    #[test]
    fn a_step_is_its_overhead_and_its_layers(p in profile(), start in 0..9000u32, n in 1..9000u32) {
        let work = Work::chunk(start, n).and(Work::decode(n));
        let layers = p.layer(&work).total() * u32::from(p.kv.layers);
        prop_assert_eq!(p.step(&work), p.overhead() + layers);
        prop_assert_eq!(p.layer_ends(&work, 0).last(), Some(p.step(&work)));
        prop_assert_eq!(p.layer_ends(&work, 0).count(), usize::from(p.kv.layers));
    }

    #[test]
    fn more_tokens_and_longer_contexts_never_take_less(
        p in profile(), start in 0..9000u32, n in 1..9000u32, more in 0..9000u32,
    ) {
        let chunk = |start, n| p.step(&Work::chunk(start, n));
        prop_assert!(chunk(start, n + more) >= chunk(start, n));
        prop_assert!(chunk(start + more, n) >= chunk(start, n));
        let decode = |before| p.step(&Work::decode(before));
        prop_assert!(decode(start + more) >= decode(start));
        let batch = |n: u32| p.step(&(0..n).map(|_| Work::decode(start)).sum());
        prop_assert!(batch(1 + n % 64 + more % 64) >= batch(1 + n % 64));
        prop_assert!(p.push(u64::from(n + more)) >= p.push(u64::from(n)));
    }

    #[test]
    fn a_prompt_in_chunks_takes_as_long_as_the_whole_at_least(
        p in profile(), cached in 0..500u32, n in 1..5000u32, chunk in 1..700u32,
    ) {
        let whole = p.prompt(cached, cached + n, u32::MAX);
        let chunked = p.prompt(cached, cached + n, chunk);
        // Each layer of each step is rounded to a nanosecond.
        let rounding = Duration::from_nanos(u64::from(p.kv.layers) * u64::from(n));
        prop_assert!(chunked + rounding >= whole, "{chunked:?} < {whole:?}");
        let tokens: u64 = Chunks::new(cached, cached + n, chunk).map(|w| w.tokens).sum();
        let pairs: u64 = Chunks::new(cached, cached + n, chunk).map(|w| w.pairs).sum();
        prop_assert_eq!((tokens, pairs), (u64::from(n), Work::chunk(cached, n).pairs));
    }

    #[test]
    fn batching_takes_no_longer_than_one_after_the_other(p in profile(), n in 2..64u32, before in 0..9000u32) {
        let one = p.step(&Work::decode(before));
        let rounding = Duration::from_nanos(u64::from(p.kv.layers) * u64::from(n));
        let all = p.step(&(0..n).map(|_| Work::decode(before)).sum());
        prop_assert!(all <= one * n + rounding);
    }

    #[test]
    fn a_layer_has_passed_the_link_after_it_is_computed_and_after_the_one_before(
        p in profile(), n in 1..9000u32,
    ) {
        let work = Work::chunk(0, n);
        let push = p.push(u64::from(n));
        let mut before = Duration::ZERO;
        for (pushed, computed) in p.layer_ends(&work, u64::from(n)).zip(p.layer_ends(&work, 0)) {
            prop_assert!(pushed >= computed + push && pushed >= before + push);
            before = pushed;
        }
        // A quick link adds one layer's transfer, a slow one all of them.
        let layer = p.layer(&work).total();
        let slowest = layer.max(push) * u32::from(p.kv.layers - 1);
        prop_assert_eq!(before, p.overhead() + layer + slowest + push);
    }
}

#[test]
fn nothing_to_do_takes_no_time() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let profile = profile().new_tree(&mut runner).unwrap().current();
    assert_eq!(profile.step(&Work::default()), Duration::ZERO);
    assert_eq!(profile.push(0), Duration::ZERO);
    assert_eq!(profile.prompt(7, 7, 100), Duration::ZERO);
}

#[test]
fn an_expert_is_read_once_however_many_tokens_take_it() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut profile = profile().new_tree(&mut runner).unwrap().current();
    profile.memory_gb_per_s = 1000.0;
    profile.dense.weight_mb = 100.0;
    profile.experts = Some(Experts {
        count: 256,
        active: 8,
        expert_mb: 1.0,
        ranks: 1,
    });
    let weights = |n| profile.layer(&Work::chunk(0, n)).weights_us;
    // A microsecond for each megabyte: those of 8 experts, of nearly 16, of all.
    assert!((weights(1) - 108.0).abs() < 1e-9);
    assert!((115.0..116.0).contains(&weights(2)));
    assert!((355.9..=356.0).contains(&weights(4096)));
}
