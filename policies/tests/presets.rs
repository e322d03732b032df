//! Each preset does what it is for: against the default on a load of its kind, in simulated time.
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

#[path = "../examples/compare/replay/mod.rs"]
mod replay;
#[path = "../examples/compare/trace.rs"]
mod trace;

use std::path::Path;
use std::time::Duration;

use replay::{Arrival, Outcome, Shape, Times, play};
use tandem_config::Config;
use tandem_core::fleet::Fleet;
use tandem_core::pairing::{Policy, RequestFacts};
use tandem_core::{Instant, RequestId};
use tandem_policies::{Pairing, PolicySettings, WhenNoPrefill};

const PAGE: u16 = 16;

fn preset(name: &str) -> PolicySettings {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets");
    let config = Config::load(&folder.join(name).with_extension("toml"));
    config.unwrap_or_else(|e| panic!("{e}")).policy.unwrap()
}

/// A small fleet of quick workers.
fn shape(prefills: usize, decodes: usize) -> Shape {
    Shape {
        prefills,
        decodes,
        page_tokens: PAGE,
        pages: 4000,
        times: Times {
            prefill_base: Duration::from_millis(2),
            prefill_token: Duration::from_micros(50),
            push: Duration::from_millis(5),
            step_base: Duration::from_millis(8),
            step_sequence: Duration::from_micros(200),
            step_kilotoken: Duration::from_micros(20),
        },
        report: Duration::from_millis(20),
    }
}

/// A request whose prompt is made of runs of blocks: a name and how many blocks of it.
fn arrival(at_ms: u64, runs: &[(u64, u32)], answer: u32, session: u64) -> Arrival {
    let blocks = runs.iter();
    let blocks: Vec<u64> = blocks
        .flat_map(|(name, count)| (0..u64::from(*count)).map(move |at| (name << 20) + at))
        .collect();
    Arrival {
        at: Duration::from_millis(at_ms),
        prompt: blocks.len() as u32 * u32::from(PAGE) + 1,
        answer,
        blocks,
        session: Some(session),
    }
}

/// Numbers that look random and are the same each time.
fn scattered(n: u64, below: u64) -> u64 {
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20) % below
}

fn ttft(out: &Outcome, share: f64) -> f64 {
    Outcome::at(&out.ttft_ms, share)
}

/// The preset's outcome and the default's.
fn against_default(name: &str, trace: &[Arrival], shape: Shape) -> (Outcome, Outcome) {
    let default = play(trace, shape, &PolicySettings::default());
    (play(trace, shape, &preset(name)), default)
}

#[test]
fn laptop_balances_and_goes_on_without_a_prefill_worker() {
    let settings = preset("laptop");
    let trace: Vec<_> = (0..300)
        .map(|n| arrival(n * 40, &[(n, 4 + scattered(n, 60) as u32)], 8, n))
        .collect();
    let out = play(&trace, shape(2, 2), &settings);
    assert_eq!((out.ttft_ms.len(), out.rejected), (300, 0));
    assert!(out.balance < 1.05, "{}", out.balance);
    let mut policy = Pairing::new(&settings, 1);
    assert_eq!(settings.when_no_prefill, WhenNoPrefill::Local);
    let none = policy.pair(
        Instant::ZERO,
        &Fleet::default(),
        &RequestFacts::new(RequestId(1), 1, 1),
    );
    assert!(none.is_err() && policy.decodes_alone());
    let alone = play(&trace, shape(0, 2), &settings);
    assert_eq!((alone.ttft_ms.len(), alone.local), (300, 300));
}

#[test]
fn chat_finds_its_turns_again_and_answers_sooner() {
    // 20 conversations of 12 turns, each some 10 blocks longer than the one before.
    let mut trace: Vec<_> = (0..240)
        .map(|n| {
            let (turn, session) = (n / 20, n % 20);
            let at = turn * 2_500 + scattered(n, 2_000);
            arrival(at, &[(session, 20 + turn as u32 * 10)], 20, session)
        })
        .collect();
    trace.sort_by_key(|a| a.at);
    let (out, default) = against_default("chat", &trace, shape(3, 3));
    assert!(
        out.hit_share > default.hit_share + 0.2,
        "{} {}",
        out.hit_share,
        default.hit_share
    );
    assert!(ttft(&out, 0.5) < 0.8 * ttft(&default, 0.5));
    assert!(
        out.local > 100,
        "{} turns stayed on their decode worker",
        out.local
    );
}

#[test]
fn long_documents_are_asked_about_where_they_lie() {
    let trace: Vec<_> = (0..160)
        .map(|n| {
            let document = scattered(n, 12);
            arrival(
                n * 130,
                &[(document, 300 + 20 * document as u32), (1000 + n, 4)],
                10,
                n,
            )
        })
        .collect();
    let (out, default) = against_default("long-documents", &trace, shape(4, 2));
    assert!(
        ttft(&out, 0.9) < 0.85 * ttft(&default, 0.9),
        "{} {}",
        ttft(&out, 0.9),
        ttft(&default, 0.9)
    );
    assert!(out.hit_share > default.hit_share);
}

#[test]
fn code_completions_do_not_wait_behind_long_prompts() {
    // Nine short prompts for each long one.
    let trace: Vec<_> = (0..400)
        .map(|n| {
            let blocks = if n % 10 == 0 {
                250
            } else {
                4 + scattered(n, 16) as u32
            };
            arrival(n * 30, &[(n, blocks)], 12, n)
        })
        .collect();
    let (out, default) = against_default("code-completion", &trace, shape(1, 4));
    assert!(
        ttft(&out, 0.8) < 0.5 * ttft(&default, 0.8),
        "{} {}",
        ttft(&out, 0.8),
        ttft(&default, 0.8)
    );
    let steps = |out: &Outcome| Outcome::at(&out.tpot_ms, 0.9);
    assert!(
        steps(&out) < 1.5 * steps(&default),
        "answers do not stutter"
    );
}

#[test]
fn agents_compute_what_they_share_once_and_nobody_is_swamped() {
    let trace: Vec<_> = (0..300)
        .map(|n| {
            let agent = scattered(n, 8);
            arrival(n * 45, &[(agent, 150), (1000 + n, 20)], 12, n)
        })
        .collect();
    let (out, default) = against_default("agents", &trace, shape(4, 3));
    assert!(
        out.hit_share > default.hit_share + 0.03,
        "{} {}",
        out.hit_share,
        default.hit_share
    );
    assert!(
        ttft(&out, 0.9) < ttft(&default, 0.9),
        "{} {}",
        ttft(&out, 0.9),
        ttft(&default, 0.9)
    );
    assert!(out.balance < 1.6, "{}", out.balance);
}

#[test]
fn mixed_tenants_keep_their_promises_more_often_than_in_turn() {
    let trace: Vec<_> = (0..240)
        .map(|n| {
            let blocks = if scattered(n, 6) == 0 { 1_000 } else { 10 };
            arrival(n * 60, &[(n, blocks)], 10, n % 5)
        })
        .collect();
    let settings = preset("mixed-tenants");
    let promised = settings.slo.ttft.unwrap().as_secs_f64() * 1e3;
    let kept = |settings: &PolicySettings| {
        let out = play(&trace, shape(3, 3), settings);
        out.ttft_ms.iter().filter(|ms| **ms <= promised).count()
    };
    let mut in_turn = PolicySettings::default();
    in_turn.prefill.choose = tandem_policies::Rule::RoundRobin;
    let (own, turns) = (kept(&settings), kept(&in_turn));
    assert!(own > turns, "{own} of 240 in time, {turns} in turn");
}

#[test]
fn every_preset_is_a_policy_and_says_what_it_is_for() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let head = text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .count();
        assert!(
            head >= 3,
            "{}: {head} lines of comment at its head",
            path.display()
        );
        names.push(path.file_stem().unwrap().to_string_lossy().into_owned());
        preset(names.last().unwrap());
    }
    names.sort();
    let all = [
        "agents",
        "chat",
        "code-completion",
        "laptop",
        "long-documents",
        "mixed-tenants",
    ];
    assert_eq!(names, all);
}

#[test]
fn a_trace_plays_the_same_each_time_and_every_request_ends() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    for (name, rows) in [
        ("mooncake-conversation-excerpt.jsonl", 120),
        ("azure-2023-code-excerpt.csv", 200),
    ] {
        let trace = trace::read(&folder.join(name), 512).unwrap();
        assert_eq!(trace.len(), rows);
        let shape = Shape {
            page_tokens: 512,
            ..shape(3, 2)
        };
        let outs = [(); 2].map(|()| play(&trace, shape, &preset("agents")));
        assert_eq!(outs[0].ttft_ms.len() + outs[0].rejected, rows);
        assert_eq!(outs[0].ttft_ms, outs[1].ttft_ms);
    }
    let wrong = trace::read(&folder.join("README.md"), 512).unwrap_err();
    assert!(wrong.ends_with("want .jsonl or .csv"), "{wrong}");
}
