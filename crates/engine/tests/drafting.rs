//! Speculative decoding with a draft head, on tiny models.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod rig;

use rig::{Answer, GREEDY, Rig, on, prompt, push};
use tandem_core::PageIndex;
use tandem_engine::testing::{TinyDraft, TinyLlama};
use tandem_engine::{
    Command, EmbeddedModel, Event, ModelOptions, Penalties, Sampling, StopConditions,
};

const CLOSE: TinyLlama = TinyLlama {
    seed: 3,
    layers: 1,
    context: 1024,
    heads: 8,
    kv_heads: 4,
    draft: Some(TinyDraft::Close),
};
const RANDOM: TinyLlama = TinyLlama {
    layers: 2,
    draft: Some(TinyDraft::Random),
    ..CLOSE
};
fn sampled() -> Sampling {
    Sampling {
        temperature: 0.8,
        top_p: 0.9,
        seed: 5,
        logprobs: Some(2),
        ..GREEDY
    }
}

/// Greedy, but what was said before counts.
fn penalised() -> Sampling {
    Sampling {
        penalties: Penalties {
            presence: 0.3,
            frequency: 0.2,
            repetition: 1.1,
        },
        logit_bias: vec![(65, 1.5), (7, -100.0)],
        ..GREEDY
    }
}

/// How to run a model.
#[derive(Clone, Copy)]
struct Way {
    guesses: u32,
    chunk: u32,
    ranks: u16,
    page_tokens: u16,
}

const PLAIN: Way = Way {
    guesses: 3,
    chunk: 512,
    ranks: 1,
    page_tokens: 16,
};

fn rig(model: TinyLlama, way: Way) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    model.write_gguf(&path).unwrap();
    let options = ModelOptions {
        page_tokens: way.page_tokens,
        ..ModelOptions::default()
    };
    let pages = 1024 / u32::from(way.page_tokens);
    Rig::sharded(&path, pages, (way.ranks, options), |engine| {
        engine.speculative_tokens = way.guesses;
        engine.chunk_tokens = way.chunk;
    })
}

/// What clients see of an answer.
fn told(answer: &Answer) -> (&[u32], &str, impl PartialEq + std::fmt::Debug + use<'_>) {
    (&answer.tokens, &answer.text, &answer.logprobs)
}

fn guesses(answer: &Answer) -> (usize, u32) {
    let proposed = answer.verified.iter().map(|(p, _)| p.len()).sum();
    (proposed, answer.verified.iter().map(|(_, a)| a).sum())
}

#[test]
fn a_draft_head_changes_no_token() {
    for model in [CLOSE, RANDOM] {
        let without = TinyLlama {
            draft: None,
            ..model
        };
        let mut alone = rig(without, PLAIN);
        let mut total = (0, 0);
        for count in [0, 1, 2, 5] {
            let way = Way {
                guesses: count,
                ..PLAIN
            };
            let mut drafting = rig(model, way);
            for tokens in [1, 2, 17, 40, 97].map(|n| prompt(n, n as usize)) {
                for sampling in [GREEDY, sampled(), penalised()] {
                    let stop = StopConditions {
                        min_tokens: 10,
                        token_ids: vec![101, 102, 103],
                        ..on(30)
                    };
                    let want = alone.generate(&tokens, 0, sampling.clone(), stop.clone());
                    let got = drafting.generate(&tokens, 0, sampling, stop);
                    assert_eq!(told(&got), told(&want), "{count} guesses");
                    assert_eq!(got.reason, want.reason);
                    let (proposed, accepted) = guesses(&got);
                    assert_eq!(proposed == 0, count == 0);
                    total = (total.0 + proposed, total.1 + accepted as usize);
                }
            }
        }
        let right = total.1 as f64 / total.0 as f64;
        if model.draft == Some(TinyDraft::Close) {
            assert!((0.1..1.0).contains(&right), "both ways are tried: {right}");
        }
    }
}

#[test]
fn right_guesses_save_steps() {
    let mut drafting = rig(CLOSE, PLAIN);
    let answer = drafting.generate(&prompt(1, 20), 0, GREEDY, on(40));
    let (_, accepted) = guesses(&answer);
    let steps = 40 - accepted;
    assert!(accepted > 10, "{answer:?}");
    assert!(answer.verified.len() as u32 <= steps);
}

#[test]
fn guesses_are_the_same_however_the_prompt_was_computed() {
    for (model, tokens) in [(CLOSE, 77), (RANDOM, 33), (RANDOM, 2), (CLOSE, 1)] {
        let tokens = prompt(4, tokens);
        let want = rig(model, PLAIN).generate(&tokens, 0, GREEDY, on(20));
        for chunk in [1, 7, 16] {
            for (ranks, page_tokens) in [(1, 16), (4, 8), (8, 32)] {
                let way = Way {
                    chunk,
                    ranks,
                    page_tokens,
                    ..PLAIN
                };
                let mut other = rig(model, way);
                let got = other.generate(&tokens, 1, GREEDY, on(20));
                assert_eq!(got, want, "chunk {chunk}, {ranks} ranks");
            }
        }
    }
}

#[test]
fn guesses_are_the_same_with_and_without_disaggregation() {
    let tokens = prompt(6, 90);
    for model in [CLOSE, RANDOM] {
        let want = rig(model, PLAIN).generate(&tokens, 0, GREEDY, on(20));
        for (from, to, from_page, to_page) in
            [(1, 1, 16, 16), (4, 1, 16, 16), (2, 8, 32, 8), (8, 4, 8, 64)]
        {
            let side = |ranks, page_tokens| Way {
                ranks,
                page_tokens,
                chunk: 30,
                ..PLAIN
            };
            let mut prefill = rig(model, side(from, from_page));
            let mut decode = rig(model, side(to, to_page));
            let source = prefill.pages_for(2, 89);
            prefill.prefill(&tokens, source.clone());
            let target = decode.pages_for(1, 90 + 20);
            let travel = decode.pages_for(1, 89);
            push(&prefill, &source, &decode, &travel);
            let id = decode.start(&tokens, 0, target, GREEDY, on(20));
            let got = decode.answers(&[id]).remove(0);
            assert_eq!(got, want, "{from} to {to} ranks");
            // Prefill neither samples nor guesses.
            assert!(prefill.events.try_recv().is_err());
        }
    }
}

/// Prefills behind `cached` tokens whose entries are in the pages, and generates.
fn go_on(rig: &mut Rig, tokens: &[u32], cached: u32, context: bool) -> Answer {
    let pages = rig.pages_for(0, tokens.len() + 20);
    if cached < tokens.len() as u32 - 1 {
        let sequence = rig.id();
        rig.submit(Command::Prefill {
            sequence,
            tokens: tokens.into(),
            pages: pages.clone(),
            cached,
        });
        assert_eq!(rig.event(), Event::Prefilled { sequence });
    }
    let id = rig.id();
    rig.submit(Command::Admit {
        sequence: id,
        tokens: tokens.into(),
        generated: 0,
        pages,
        sampling: GREEDY,
        stop: on(20),
    });
    rig.submit(Command::MakeReady {
        sequence: id,
        context,
    });
    rig.answers(&[id]).remove(0)
}

#[test]
fn guesses_are_the_same_behind_a_prefix_that_was_there() {
    for model in [CLOSE, RANDOM] {
        let first = prompt(7, 50);
        let mut used = rig(model, PLAIN);
        let answer = used.generate(&first, 0, GREEDY, on(20));
        // The next turn begins with the prompt and its answer, whose last token has no entry.
        let mut tokens = [first, answer.tokens].concat();
        let whole = (tokens.len() as u32 - 1) / 16 * 16;
        tokens.extend(prompt(8, 31));
        let want = rig(model, PLAIN).generate(&tokens, 0, GREEDY, on(20));
        for cached in [16, whole] {
            assert_eq!(go_on(&mut used, &tokens, cached, true), want);
        }
        // Everything is there but the context.
        let all = &tokens[..97];
        let want = rig(model, PLAIN).generate(all, 0, GREEDY, on(20));
        assert_eq!(go_on(&mut used, all, 96, false), want);
    }
}

#[test]
fn guesses_are_the_same_behind_pages_that_the_last_step_completed() {
    let mut used = rig(CLOSE, PLAIN);
    let mut several = 0;
    for seed in 0..12 {
        // The answer's last entry but one completes a page, often as one of several of a step.
        let first = prompt(seed, 50);
        let answer = used.generate(&first, 0, GREEDY, on(15));
        several += u32::from(answer.verified.last().is_some_and(|(_, right)| *right > 0));
        let tokens = [first, answer.tokens, prompt(8, 9)].concat();
        let want = rig(CLOSE, PLAIN).generate(&tokens, 0, GREEDY, on(20));
        assert_eq!(go_on(&mut used, &tokens, 64, true), want, "prompt {seed}");
    }
    assert!(several > 3, "{several} ended with a guess that was right");
}

#[test]
fn a_step_counts_the_draft_layer_and_the_context() {
    let mut rig = rig(RANDOM, Way { chunk: 16, ..PLAIN });
    let layers = rig.arenas.layout().layers().to_vec();
    assert_eq!(layers, ["layers.0", "layers.1", "mtp.0"]);
    rig.prefill(&prompt(1, 40), Rig::pages(0, 3));
    let plans: Vec<_> = rig.plans.try_iter().collect();
    assert_eq!(plans.len(), 3);
    for (index, plan) in (0u64..).zip(&plans) {
        assert_eq!(plan.first_layer, index * 4);
    }
    assert_eq!(rig.engine.progress().layers(), 12);
}

#[test]
fn the_last_tokens_that_there_is_room_for_are_generated() {
    for guesses in [0, 3] {
        let mut rig = rig(CLOSE, Way { guesses, ..PLAIN });
        // Two pages: 31 entries behind which a last token fits.
        let tokens = prompt(2, 20);
        let pages: std::sync::Arc<[PageIndex]> = Rig::pages(0, 2);
        rig.prefill(&tokens, pages.clone());
        let id = rig.start(&tokens, 0, pages, GREEDY, on(100));
        assert_eq!(rig.answers(&[id])[0].tokens.len(), 13, "{guesses} guesses");
    }
}

#[test]
fn both_formats_hold_the_same_head() {
    let folder = tempfile::tempdir().unwrap();
    RANDOM.write_safetensors(folder.path()).unwrap();
    let other = EmbeddedModel::load(folder.path(), ModelOptions::default()).unwrap();
    let gguf = folder.path().join("tiny.gguf");
    RANDOM.write_gguf(&gguf).unwrap();
    let model = EmbeddedModel::load(&gguf, ModelOptions::default()).unwrap();
    let (a, b) = (model.describe(), other.describe());
    assert_eq!((a.geometry, a.layers), (b.geometry, b.layers));
    assert_eq!(a.geometry.context_bytes, 64 * 4);
    let mut answers = Vec::new();
    for model in [model, other] {
        let mut rig = Rig::of(model, &gguf, 16, 1, |o| o.speculative_tokens = 4);
        answers.push(rig.generate(&prompt(1, 20), 0, GREEDY, on(10)));
    }
    assert_eq!(answers[0], answers[1]);
    assert!(guesses(&answers[0]).0 > 0);
}
