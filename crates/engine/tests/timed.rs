//! The timed engine: tokens that come from the bytes in its pages, and steps of a profile's time.

#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod rig;

use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;
use rig::{Answer, GREEDY, Rig, on, prompt, push};
use tandem_core::PageIndex;
use tandem_core::geometry::KvKind;
use tandem_engine::testing::TinyLlama;
use tandem_engine::{
    Clock, Command, Elapsed, Event, JumpClock, Penalties, Sampling, StopConditions,
};
use tandem_timing::{Attention, Chunks, Dense, KvShape, Link, Profile, StepCost, Work};

const LAYERS: u16 = 3;

fn profile(kind: KvKind) -> Profile {
    Profile {
        model: "clockwork".into(),
        context_length: 4096,
        gpus: 1,
        kv: KvShape {
            layers: LAYERS,
            kind,
            heads: if kind == KvKind::Latent { 1 } else { 4 },
            head_dim: 64,
            tokens: 100_000,
        },
        step: StepCost {
            overhead_us: 1000.0,
            layer_us: 100.0,
        },
        memory_gb_per_s: 1000.0,
        dense: Dense {
            weight_mb: 500.0,
            ns_per_token: 10_000.0,
        },
        experts: None,
        attention: Attention {
            ps_per_pair: 1000.0,
            kv_bytes_per_token: 1000.0,
        },
        exchange: None,
        link: Link {
            layer_us: 50.0,
            ns_per_token: 1000.0,
        },
    }
}

fn engine(pages: u32, page_tokens: u16, ranks: u16) -> Rig {
    Rig::timed(profile(KvKind::Heads), (pages, page_tokens, ranks), |_| ()).0
}

/// Prefills on one engine, pushes, and generates on the other.
fn disaggregated(source: &mut Rig, target: &mut Rig, tokens: &[u32], more: u32) -> Answer {
    let from = source.pages_for(0, tokens.len() - 1);
    source.prefill(tokens, from.clone());
    let to = target.pages_for(1, tokens.len() + more as usize);
    let taken = target.pages_for(1, tokens.len() - 1);
    push(source, &from, target, &taken);
    let id = target.start(tokens, 0, to, GREEDY, on(more));
    target.answers(&[id]).remove(0)
}

/// A clock of which each step's end has to be let through.
struct Gate {
    clock: JumpClock,
    passes: mpsc::Receiver<()>,
}

impl Clock for Gate {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wait_until(&mut self, at: Duration) {
        let _ = self.passes.recv();
        self.clock.wait_until(at);
    }

    fn grace(&self) -> Duration {
        Duration::ZERO
    }
}

/// An engine whose steps end when `pass` says so, and its time.
fn gated(chunk_tokens: u32) -> (Rig, Elapsed, impl Fn(usize)) {
    let (pass, passes) = mpsc::channel();
    let clock = JumpClock::default();
    let elapsed = clock.elapsed();
    let (rig, _) = Rig::timed(profile(KvKind::Heads), (80, 16, 1), |options| {
        options.clock = Box::new(Gate { clock, passes });
        options.chunk_tokens = chunk_tokens;
    });
    let pass = move |steps| (0..steps).for_each(|_| pass.send(()).unwrap());
    (rig, elapsed, pass)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn tokens_are_the_same_for_every_pairing_chunk_and_page_size(
        length in 2..200usize,
        chunk in 1..100u32,
        pages in (1..40u16, 1..40u16),
        ranks in (0..4u32, 0..4u32),
        latent in any::<bool>(),
    ) {
        let kind = if latent { KvKind::Latent } else { KvKind::Heads };
        let tokens = prompt(length as u32, length);
        let (mut alone, _) = Rig::timed(profile(kind), (20, 16, 1), |_| ());
        let want = alone.generate(&tokens, 0, GREEDY, on(9));
        let (mut source, _) = Rig::timed(profile(kind), (300, pages.0, 1 << ranks.0), |o| {
            o.chunk_tokens = chunk;
        });
        let (mut target, _) = Rig::timed(profile(kind), (300, pages.1, 1 << ranks.1), |_| ());
        let got = disaggregated(&mut source, &mut target, &tokens, 9);
        prop_assert_eq!(got, want);
    }

    #[test]
    fn any_wrong_byte_of_a_page_gives_another_answer(
        at in any::<prop::sample::Index>(), bit in 0..8u8, ranks in 0..4u32,
    ) {
        let mut rig = engine(8, 16, 1 << ranks);
        let tokens = prompt(5, 65);
        let want = rig.generate(&tokens, 0, GREEDY, on(6)).tokens;
        // 64 tokens fill 4 pages, in every layer of every shard.
        let pages = Rig::pages(0, 6);
        let places: Vec<(usize, usize)> = (0..1usize << ranks)
            .flat_map(|shard| {
                let arena = rig.arenas.layout().arena(shard as u16);
                let piece = arena.geometry().piece_bytes();
                (0..LAYERS)
                    .flat_map(move |layer| (0..4).map(move |page| arena.offset(layer, 0, PageIndex(page))))
                    .flat_map(move |from| from..from + piece)
                    .map(move |at| (shard, at))
            })
            .collect();
        let (shard, at) = places[at.index(places.len())];
        let memory = rig.arenas.memory(shard).clone();
        let mut byte = [0];
        memory.read(at, &mut byte);
        memory.write(at, &[byte[0] ^ 1 << bit]);
        let id = rig.start(&tokens, 0, pages.clone(), GREEDY, on(6));
        let got = rig.answers(&[id]).remove(0).tokens;
        prop_assert_ne!(&got, &want);
        // Set right again, so is the answer: the entries of the answer were overwritten.
        memory.write(at, &byte);
        let id = rig.start(&tokens, 0, pages, GREEDY, on(6));
        prop_assert_eq!(rig.answers(&[id]).remove(0).tokens, want);
    }
}

#[test]
fn a_page_that_is_written_over_while_its_sequence_decodes_changes_the_answer() {
    let tokens = prompt(5, 33);
    let want = engine(8, 16, 1).generate(&tokens, 0, GREEDY, on(60));
    let (mut rig, _, pass) = gated(512);
    pass(2);
    let pages = rig.pages_for(0, 33 + 60);
    rig.prefill(&tokens, pages.clone());
    let id = rig.start(&tokens, 0, pages, GREEDY, on(60));
    let Event::Token { token, .. } = rig.event() else {
        panic!("a token comes first");
    };
    assert_eq!(token, want.tokens[0]);
    rig.arenas.memory(0).write(0, &[0xaa; 4]);
    pass(60);
    let rest = rig.answers(&[id]).remove(0).tokens;
    assert_eq!(rest.len(), 59);
    assert_ne!(rest, want.tokens[1..]);
}

#[test]
fn a_pair_that_leaves_a_page_out_gives_another_answer() {
    let (mut source, mut target) = (engine(20, 16, 1), engine(20, 16, 1));
    let tokens = prompt(3, 100);
    let want = source.generate(&tokens, 0, GREEDY, on(5)).tokens;
    assert_eq!(
        disaggregated(&mut source, &mut target, &tokens, 5).tokens,
        want
    );
    // The last page but one is another prompt's.
    let from = source.pages_for(8, 99);
    source.prefill(&prompt(4, 100), from.clone());
    push(&source, &from[5..6], &target, &[PageIndex(6)]);
    let id = target.start(&tokens, 0, Rig::pages(1, 7), GREEDY, on(5));
    assert_ne!(target.answers(&[id]).remove(0).tokens, want);
}

#[test]
fn a_prefix_that_is_held_and_an_answer_that_was_begun_elsewhere_go_on_with_the_same_tokens() {
    let mut rig = engine(40, 16, 2);
    let tokens = prompt(9, 90);
    let want = rig.generate(&tokens, 0, GREEDY, on(20)).tokens;
    // 64 tokens are there: the other 25 are computed into pages of their own.
    let pages: Vec<PageIndex> = (0..4).chain(20..24).map(PageIndex).collect();
    let sequence = rig.id();
    rig.submit(Command::Prefill {
        sequence,
        tokens: tokens.as_slice().into(),
        pages: pages.as_slice().into(),
        cached: 64,
    });
    assert_eq!(rig.event(), Event::Prefilled { sequence });
    let id = rig.start(&tokens, 0, pages.into(), GREEDY, on(20));
    assert_eq!(rig.answers(&[id]).remove(0).tokens, want);
    // Prompt and the first 8 tokens are prefilled on another engine, which goes on.
    let mut other = engine(20, 32, 1);
    let mut begun = tokens.clone();
    begun.extend(&want[..8]);
    let pages = other.pages_for(0, 120);
    other.prefill(&begun, pages.clone());
    let id = other.start(&begun, 8, pages, GREEDY, on(20));
    assert_eq!(other.answers(&[id]).remove(0).tokens, want[8..]);
}

#[test]
fn answers_are_printable_and_follow_a_requests_settings() {
    let mut rig = engine(8, 16, 1);
    let tokens = prompt(2, 20);
    let plain = rig.generate(&tokens, 0, GREEDY, on(40));
    assert_eq!(plain.tokens.len(), 40);
    assert!(!plain.tokens.contains(&TinyLlama::END));
    assert!(
        !plain.text.chars().any(char::is_control),
        "{:?}",
        plain.text
    );
    // Asking for probabilities changes no token.
    let asked = Sampling {
        logprobs: Some(2),
        ..GREEDY
    };
    let asked = rig.generate(&tokens, 0, asked, on(40));
    assert_eq!(asked.tokens, plain.tokens);
    assert!(asked.logprobs.iter().all(|of| of.len() == 3));
    // A token that is barred is not said; another seed says other words.
    let barred = Sampling {
        logit_bias: vec![(plain.tokens[0], -100.0)],
        penalties: Penalties::NONE,
        ..GREEDY
    };
    let barred = rig.generate(&tokens, 0, barred, on(40)).tokens;
    assert!(!barred.contains(&plain.tokens[0]));
    let warm = |seed| Sampling {
        temperature: 1.0,
        seed,
        ..GREEDY
    };
    let one = rig.generate(&tokens, 0, warm(1), on(40)).tokens;
    let two = rig.generate(&tokens, 0, warm(2), on(40)).tokens;
    assert!(one != two && one != plain.tokens);
    assert_eq!(rig.generate(&tokens, 0, warm(1), on(40)).tokens, one);
    let stop = StopConditions {
        token_ids: vec![plain.tokens[3]],
        ..on(40)
    };
    let stopped = rig.generate(&tokens, 0, GREEDY, stop).tokens;
    assert!(stopped.len() <= 4);
}

#[test]
fn a_prompt_and_its_answer_take_the_time_of_their_profile() {
    let profile = profile(KvKind::Heads);
    let (mut rig, elapsed) = Rig::timed(profile.clone(), (80, 16, 1), |o| o.chunk_tokens = 100);
    let tokens = prompt(1, 251);
    rig.prefill(&tokens, rig.pages_for(0, 250));
    let prompt: Duration = Chunks::new(0, 250, 100).map(|w| profile.step(&w)).sum();
    assert_eq!(prompt, profile.prompt(0, 250, 100));
    assert_eq!(elapsed.get(), prompt);
    let id = rig.start(&tokens, 0, rig.pages_for(0, 261), GREEDY, on(10));
    rig.answers(&[id]);
    let answer: Duration = (250..260).map(|n| profile.step(&Work::decode(n))).sum();
    assert_eq!(elapsed.get(), prompt + answer);
}

#[test]
fn a_step_of_prompts_and_answers_takes_the_time_of_both() {
    let profile = profile(KvKind::Heads);
    let (mut rig, elapsed, pass) = gated(100);
    let (long, short) = (prompt(1, 401), prompt(2, 33));
    pass(1);
    rig.prefill(&short, rig.pages_for(0, 32));
    rig.plans.recv().unwrap();
    let before = elapsed.get();
    let sequence = rig.id();
    rig.submit(Command::Prefill {
        sequence,
        tokens: long.as_slice().into(),
        pages: rig.pages_for(10, 400),
        cached: 0,
    });
    // The first step is under way when the other sequence comes.
    rig.plans.recv().unwrap();
    let id = rig.start(&short, 0, rig.pages_for(0, 53), GREEDY, on(20));
    pass(1 + 20);
    let mut tokens = 0;
    while tokens < 20 {
        match rig.event() {
            Event::Token { sequence, .. } if sequence == id => tokens += 1,
            Event::Prefilled { .. } => assert_eq!(tokens, 2, "the fourth step ends the prompt"),
            other => panic!("{other:?}"),
        }
    }
    let chunk = |n: u32| Work::chunk(100 * n, 100);
    let shared = (1..4).map(|n| chunk(n).and(Work::decode(31 + n)));
    let alone = (35..52).map(Work::decode);
    let steps = [chunk(0)].into_iter().chain(shared).chain(alone);
    let want: Duration = steps.map(|work| profile.step(&work)).sum();
    assert_eq!(elapsed.get() - before, want);
}

#[test]
fn a_step_that_is_pushed_ends_when_its_last_layer_has_passed_the_link() {
    let profile = profile(KvKind::Heads);
    let (mut rig, elapsed) = Rig::timed(profile.clone(), (40, 16, 1), |o| o.pushes = true);
    rig.prefill(&prompt(1, 301), rig.pages_for(0, 300));
    let work = Work::chunk(0, 300);
    assert_eq!(elapsed.get(), profile.step(&work) + profile.push(300));
    assert_eq!(rig.engine.progress().layers(), u64::from(LAYERS));
    let plan = rig.plans.recv().unwrap();
    assert_eq!((plan.first_layer, plan.items.len()), (0, 1));
    assert!(plan.items[0].last);
}
