//! What the engine does with commands, on a tiny random model.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod rig;

use std::sync::Arc;

use rig::{GREEDY, Rig, on, prompt, push, stop_after};
use tandem_core::geometry::KvOrder;
use tandem_core::{PageIndex, SequenceId};
use tandem_engine::testing::TinyLlama;
use tandem_engine::{
    Command, EmbeddedEngine, EmbeddedModel, Engine, EngineOptions, Event, FinishReason,
    ModelOptions, Penalties, Sampling, StepPlan, StepWatch, StopConditions,
};

fn tiny(pages: u32, adjust: impl FnOnce(&mut EngineOptions)) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TinyLlama::default().write_gguf(&path).unwrap();
    Rig::new(&path, pages, adjust)
}

#[test]
fn steps_are_announced_and_every_layer_is_counted_once() {
    let mut rig = tiny(64, |options| options.chunk_tokens = 20);
    let (a, b) = (rig.id(), rig.id());
    let progress = rig.engine.progress();
    rig.submit(Command::Prefill {
        sequence: a,
        tokens: prompt(1, 31).into(),
        pages: Rig::pages(0, 2),
        cached: 0,
    });
    rig.submit(Command::Prefill {
        sequence: b,
        tokens: prompt(2, 21).into(),
        pages: Rig::pages(2, 2),
        cached: 0,
    });
    let mut ended = [rig.event(), rig.event()];
    ended.sort_by_key(|e| matches!(e, Event::Prefilled { sequence } if *sequence == b));
    assert_eq!(ended, [a, b].map(|sequence| Event::Prefilled { sequence }));
    let plans: Vec<StepPlan> = rig.plans.try_iter().collect();
    let layers = u64::from(rig.arenas.layout().geometry().layers);
    assert_eq!(progress.layers(), plans.len() as u64 * layers);
    for (index, plan) in plans.iter().enumerate() {
        assert_eq!(plan.first_layer, index as u64 * layers);
        let shares: Vec<u32> = plan.items.iter().map(|i| i.end - i.start).collect();
        assert!(shares.iter().sum::<u32>() <= 20);
        // A step is shared equally, but for what one of them does not need.
        let unequal = shares.len() == 2 && shares[0] != shares[1];
        assert!(!unequal || plan.items.iter().any(|i| i.last), "{plan:?}");
    }
    for (id, end) in [(a, 30), (b, 20)] {
        let items: Vec<_> = plans
            .iter()
            .flat_map(|p| &p.items)
            .filter(|i| i.sequence == id)
            .collect();
        assert_eq!(items[0].start, 0);
        assert!(
            items
                .windows(2)
                .all(|pair| pair[0].end == pair[1].start && !pair[0].last)
        );
        let last = items.last().unwrap();
        assert_eq!((last.end, last.last), (end, true));
    }
    // Decode steps are neither announced nor counted.
    let id = rig.start(&prompt(1, 31), 0, Rig::pages(0, 3), GREEDY, on(4));
    rig.answers(&[id]);
    assert_eq!(progress.layers(), plans.len() as u64 * layers);
    assert_eq!(rig.plans.try_iter().count(), 0);
}

#[test]
fn answers_do_not_depend_on_chunks_company_or_where_the_pages_came_from() {
    let mut alone = tiny(64, |_| ());
    let prompts: Vec<_> = [1, 2, 40, 150].map(|n| prompt(n, n as usize)).to_vec();
    let sampled = Sampling {
        temperature: 1.0,
        top_p: 0.95,
        seed: 9,
        ..GREEDY
    };
    for sampling in [GREEDY, sampled] {
        let want: Vec<_> = prompts
            .iter()
            .map(|p| alone.generate(p, 0, sampling.clone(), on(40)))
            .collect();
        for chunk in [1, 16, 64] {
            let mut prefill = tiny(64, |options| options.chunk_tokens = chunk);
            let mut decode = tiny(64, |options| options.max_batch = 3);
            let mut ids = Vec::new();
            for (i, tokens) in prompts.iter().enumerate() {
                let from = prefill.pages_for(3, tokens.len());
                prefill.prefill(tokens, from.clone());
                let to = Rig::pages(16 * i as u32, 16);
                push(&prefill, &from, &decode, &to);
                ids.push(decode.start(tokens, 0, to, sampling.clone(), on(40)));
            }
            assert_eq!(decode.answers(&ids), want, "chunk {chunk}");
        }
    }
}

/// A model with eight KV heads (or two, which more ranks replicate), cut into ranks.
fn sharded(kv_heads: usize, ranks: u16, page_tokens: u16, kv_order: KvOrder) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let model = TinyLlama {
        heads: 8,
        kv_heads,
        ..TinyLlama::default()
    };
    model.write_gguf(&path).unwrap();
    let options = ModelOptions {
        page_tokens,
        kv_order,
        ..ModelOptions::default()
    };
    let pages = 1024 / u32::from(page_tokens);
    Rig::sharded(&path, pages, (ranks, options), |_| ())
}

#[test]
fn answers_do_not_depend_on_how_the_cache_is_cut() {
    for kv_heads in [8, 2] {
        let tokens = prompt(7, 101);
        let want = sharded(kv_heads, 1, 16, KvOrder::Together).generate(&tokens, 0, GREEDY, on(12));
        for (from, to) in [(1, 8), (8, 1), (2, 4), (4, 2), (8, 8)] {
            for (from_page, to_page) in [(16, 16), (32, 16), (16, 64)] {
                let mut prefill = sharded(kv_heads, from, from_page, KvOrder::Apart);
                let mut decode = sharded(kv_heads, to, to_page, KvOrder::Together);
                let source = prefill.pages_for(2, 100);
                prefill.prefill(&tokens, source.clone());
                let target = decode.pages_for(1, 101 + 12);
                push(&prefill, &source, &decode, &target);
                let id = decode.start(&tokens, 0, target, GREEDY, on(12));
                let got = decode.answers(&[id]).remove(0);
                assert_eq!(got, want, "{kv_heads} heads, {from} to {to} ranks");
            }
        }
    }
}

#[test]
fn an_answer_begun_elsewhere_goes_on_as_if_it_had_begun_here() {
    let sampled = Sampling {
        temperature: 1.0,
        seed: 5,
        ..GREEDY
    };
    let penalised = Sampling {
        penalties: Penalties {
            presence: 0.5,
            frequency: 0.5,
            repetition: 1.2,
        },
        ..GREEDY
    };
    let [sampled, penalised] = [sampled, penalised].map(goes_on_as_if_it_had_begun_here);
    assert_ne!(sampled, penalised);
}

fn goes_on_as_if_it_had_begun_here(sampling: Sampling) -> Vec<u32> {
    let mut rig = tiny(64, |_| ());
    let tokens = prompt(3, 20);
    let whole = rig.generate(&tokens, 0, sampling.clone(), on(30));
    assert_eq!(
        (whole.tokens.len(), whole.reason),
        (30, Some(FinishReason::Length))
    );
    let begun: Vec<u32> = tokens.iter().chain(&whole.tokens[..12]).copied().collect();
    let pages = Rig::pages(20, 4);
    rig.prefill(&begun, pages.clone());
    let id = rig.start(&begun, 12, pages, sampling.clone(), on(30));
    let rest = rig.answers(&[id]).remove(0);
    assert_eq!(rest.tokens, whole.tokens[12..]);
    assert!(whole.text.ends_with(&rest.text));
    // One that was complete has nothing to add.
    let done: Vec<u32> = tokens.iter().chain(&whole.tokens).copied().collect();
    let id = rig.start(&done, 30, Rig::pages(20, 4), sampling.clone(), on(30));
    let nothing = rig.answers(&[id]).remove(0);
    assert_eq!(
        (nothing.tokens.len(), nothing.reason),
        (0, Some(FinishReason::Length))
    );
    whole.tokens
}

#[test]
fn a_stop_token_ends_the_answer_but_not_among_the_first_ones() {
    let mut rig = tiny(64, |_| ());
    let tokens = prompt(3, 20);
    let whole = rig.generate(&tokens, 0, GREEDY, on(40));
    let end = whole.tokens[12];
    let first = whole.tokens.iter().position(|t| *t == end).unwrap();
    let stop = |min_tokens| StopConditions {
        token_ids: vec![end],
        min_tokens,
        ..on(40)
    };
    let cut = rig.generate(&tokens, 0, GREEDY, stop(0));
    assert_eq!(cut.tokens, whole.tokens[..=first]);
    assert_eq!(cut.reason, Some(FinishReason::Stop));
    assert!(whole.text.starts_with(&cut.text) && cut.stop_text.is_none());
    // Where it may not be chosen, something else is.
    let long = rig.generate(&tokens, 0, GREEDY, stop(first as u32 + 5));
    assert!(long.tokens.len() > first + 5);
    let before = &long.tokens[..first + 5];
    assert!(!before.contains(&end) && before.starts_with(&whole.tokens[..first]));
}

#[test]
fn a_stop_text_among_the_first_tokens_is_text_like_any_other() {
    let mut rig = tiny(64, |_| ());
    let tokens = prompt(3, 20);
    let sampling = Sampling {
        temperature: 1.0,
        seed: 8,
        ..GREEDY
    };
    let whole = rig.generate(&tokens, 0, sampling.clone(), on(60));
    let letter = whole.text.chars().find(char::is_ascii_graphic).unwrap();
    let stop = |min_tokens| StopConditions {
        stop: vec![letter.to_string()],
        min_tokens,
        ..on(60)
    };
    let cut = rig.generate(&tokens, 0, sampling.clone(), stop(0));
    assert_eq!(cut.stop_text, Some(letter.to_string()));
    let min = cut.tokens.len() as u32;
    let longer = rig.generate(&tokens, 0, sampling, stop(min));
    assert!(longer.text.starts_with(&format!("{}{letter}", cut.text)));
}

/// Its tokens are halves of characters, and beginnings of a stop text that never comes.
#[test]
fn an_answer_cut_anywhere_goes_on_with_the_very_next_letter() {
    let mut rig = tiny(64, |_| ());
    let sampling = Sampling {
        temperature: 1.0,
        seed: 9,
        ..GREEDY
    };
    let tokens = prompt(4, 12);
    let plain = rig.generate(&tokens, 0, sampling.clone(), on(40));
    let letters: Vec<char> = plain.text.chars().collect();
    let held: String = letters[8..11].iter().chain(&['\u{1}', '\u{1}']).collect();
    let stop = StopConditions {
        stop: vec![held],
        ..on(40)
    };
    let whole = rig.generate(&tokens, 0, sampling.clone(), stop.clone());
    assert_eq!(whole.text, plain.text);
    assert_ne!(whole.pieces, plain.pieces, "nothing was held back");
    for cut in 1..40 {
        let begun: Vec<u32> = tokens.iter().chain(&whole.tokens[..cut]).copied().collect();
        let pages = rig.pages_for(0, 52);
        rig.prefill(&begun, pages.clone());
        let id = rig.start(&begun, cut as u32, pages, sampling.clone(), stop.clone());
        let rest = rig.answers(&[id]).remove(0);
        let text = whole.pieces[..cut].concat() + &rest.text;
        assert_eq!(
            (text, rest.tokens.as_slice()),
            (whole.text.clone(), &whole.tokens[cut..]),
            "{cut}"
        );
    }
}

#[test]
fn answers_end_at_stop_texts_at_end_tokens_and_where_pages_end() {
    let mut rig = tiny(64, |_| ());
    let tokens = prompt(3, 20);
    let sampling = Sampling {
        temperature: 1.0,
        seed: 8,
        ..GREEDY
    };
    let whole = rig.generate(&tokens, 0, sampling.clone(), on(60));
    let letters: Vec<char> = whole
        .text
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let word = letters.last().expect("some letter").to_string();
    let stop = StopConditions {
        stop: vec![word.clone()],
        ..on(60)
    };
    let cut = rig.generate(&tokens, 0, sampling.clone(), stop);
    assert_eq!(cut.reason, Some(FinishReason::Stop));
    assert_eq!(cut.text, whole.text.split(&word).next().unwrap());
    assert_eq!(cut.stop_text, Some(word));

    // 20 tokens and one page more: positions 0 to 31, so 12 steps.
    rig.prefill(&tokens, Rig::pages(0, 2));
    let id = rig.start(&tokens, 0, Rig::pages(0, 2), GREEDY, on(60));
    let short = rig.answers(&[id]).remove(0);
    assert_eq!(
        (short.tokens.len(), short.reason),
        (13, Some(FinishReason::Length))
    );

    // Random weights end an answer sooner or later.
    let hot = Sampling {
        temperature: 50.0,
        seed: 3,
        ..GREEDY
    };
    let ended = rig.generate(&tokens, 0, hot, stop_after(900));
    assert_eq!(ended.reason, Some(FinishReason::Stop));
    assert_eq!(ended.tokens.last(), Some(&TinyLlama::END));
}

#[test]
fn logprobs_tell_the_chosen_token_and_the_likeliest_ones() {
    let mut rig = tiny(16, |_| ());
    let sampling = Sampling {
        logprobs: Some(5),
        ..GREEDY
    };
    let answer = rig.generate(&prompt(1, 10), 0, sampling.clone(), on(6));
    for (token, logprobs) in answer.tokens.iter().zip(&answer.logprobs) {
        assert_eq!(logprobs.len(), 6);
        assert_eq!((logprobs[0].token, logprobs[1].token), (*token, *token));
        assert!(
            logprobs[1..]
                .windows(2)
                .all(|pair| pair[0].logprob >= pair[1].logprob)
        );
        assert!(logprobs[0].logprob <= 0.0);
        assert_eq!(logprobs[0].bytes, rig.text.token_bytes(*token));
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one case after another")]
fn a_malformed_command_fails_its_sequence_and_nothing_else() {
    let mut rig = tiny(64, |_| ());
    let prefill = |tokens: Vec<u32>, pages: Arc<[PageIndex]>| {
        move |sequence| Command::Prefill {
            sequence,
            tokens: tokens.into(),
            pages,
            cached: 0,
        }
    };
    let admit = |generated: u32, sampling: Sampling, max_tokens: u32, pages: u32| {
        move |sequence| Command::Admit {
            sequence,
            tokens: prompt(1, 16).into(),
            generated,
            pages: Rig::pages(0, pages),
            sampling,
            stop: on(max_tokens),
        }
    };
    let nan = Sampling {
        temperature: f32::NAN,
        ..GREEDY
    };
    let no_mass = Sampling {
        top_p: 0.0,
        ..GREEDY
    };
    type Make = Box<dyn FnOnce(SequenceId) -> Command>;
    let cases: Vec<(&str, Make)> = vec![
        ("no tokens", Box::new(prefill(vec![], Rig::pages(0, 1)))),
        (
            "token 400 at 1 is outside",
            Box::new(prefill(vec![1, 400], Rig::pages(0, 1))),
        ),
        (
            "room for 16 tokens, 17",
            Box::new(prefill(vec![1; 18], Rig::pages(0, 1))),
        ),
        (
            "page 64 is outside",
            Box::new(prefill(vec![1; 4], Rig::pages(64, 1))),
        ),
        (
            "over the context length of 1024",
            Box::new(prefill(vec![1; 1025], Rig::pages(0, 64))),
        ),
        ("room for 0 tokens, 16", Box::new(admit(0, GREEDY, 4, 0))),
        ("leave no prompt", Box::new(admit(16, GREEDY, 40, 2))),
        ("temperature", Box::new(admit(0, nan, 4, 2))),
        ("top_p", Box::new(admit(0, no_mass, 4, 2))),
        ("max_tokens", Box::new(admit(0, GREEDY, 0, 2))),
        (
            "unknown",
            Box::new(|sequence| Command::MakeReady {
                sequence,
                context: true,
            }),
        ),
    ];
    for (want, make) in cases {
        let sequence = rig.id();
        rig.submit(make(sequence));
        let Event::Failed {
            sequence: failed,
            message,
        } = rig.event()
        else {
            panic!("{want}")
        };
        assert_eq!(failed, sequence);
        assert!(message.contains(want), "{message:?} does not say {want:?}");
    }
    let whole = rig.generate(&prompt(1, 16), 0, GREEDY, on(5));
    assert_eq!(whole.tokens.len(), 5);
}

#[test]
fn an_engine_holds_no_more_sequences_than_it_may() {
    let mut rig = tiny(8, |options| options.max_sequences = 3);
    let admit = |sequence| Command::Admit {
        sequence,
        tokens: prompt(1, 16).into(),
        generated: 0,
        pages: Rig::pages(0, 2),
        sampling: GREEDY,
        stop: on(4),
    };
    let held: Vec<_> = (0..3).map(|_| rig.id()).collect();
    for id in &held {
        rig.submit(admit(*id));
    }
    let one_too_many = rig.id();
    rig.submit(admit(one_too_many));
    let Event::Failed { sequence, message } = rig.event() else {
        panic!("it was taken")
    };
    assert_eq!(
        (sequence, message.contains("holds 3")),
        (one_too_many, true)
    );
    for sequence in held {
        rig.submit(Command::Cancel { sequence });
        assert_eq!(rig.event(), Event::Cancelled { sequence });
    }
}

#[test]
fn cancelling_ends_a_sequence_at_every_stage_and_only_once() {
    let mut rig = tiny(64, |options| options.chunk_tokens = 1);
    let prefilling = rig.id();
    let tokens: Arc<[u32]> = prompt(1, 900).into();
    let pages = Rig::pages(0, 57);
    rig.submit(Command::Prefill {
        sequence: prefilling,
        tokens,
        pages,
        cached: 0,
    });
    rig.plans.recv().unwrap();
    rig.submit(Command::Cancel {
        sequence: prefilling,
    });
    assert_eq!(
        rig.event(),
        Event::Cancelled {
            sequence: prefilling
        }
    );
    let decoding = rig.start(&prompt(1, 1), 0, Rig::pages(0, 60), GREEDY, on(900));
    assert!(matches!(rig.event(), Event::Token { sequence, .. } if sequence == decoding));
    rig.submit(Command::Cancel { sequence: decoding });
    while let Event::Token { .. } = rig.event() {}
    // Ended and unknown sequences are ignored: the next event is another one's.
    rig.submit(Command::Cancel { sequence: decoding });
    rig.submit(Command::Cancel {
        sequence: SequenceId(99),
    });
    let one = rig.id();
    let tokens = prompt(1, 1).into();
    rig.submit(Command::Prefill {
        sequence: one,
        tokens,
        pages: Rig::pages(0, 0),
        cached: 0,
    });
    assert_eq!(rig.event(), Event::Prefilled { sequence: one });
    assert_eq!(
        rig.engine.progress().layers() % 3,
        0,
        "a step that was announced counts all its layers"
    );
}

struct Broken;

impl StepWatch for Broken {
    fn step_planned(&mut self, _: StepPlan) {
        panic!("the watch is broken, as this test wants it");
    }
}

#[test]
fn a_dead_engine_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TinyLlama::default().write_gguf(&path).unwrap();
    let rig = Rig::new(&path, 8, |_| ());
    let model = EmbeddedModel::load(&path, ModelOptions::default()).unwrap();
    let options = EngineOptions::new(rig.arenas.clone(), rig.text.clone());
    let (sender, mut events) = tokio::sync::mpsc::channel(8);
    let engine = EmbeddedEngine::start(model, options, Box::new(Broken), sender).unwrap();
    let command = Command::Prefill {
        sequence: SequenceId(1),
        tokens: prompt(1, 9).into(),
        pages: Rig::pages(0, 1),
        cached: 0,
    };
    assert!(engine.submit(command.clone()).is_ok());
    assert_eq!(events.blocking_recv(), None);
    // The dying thread drops its queue just after its events.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while engine.submit(command.clone()).is_ok() {
        assert!(std::time::Instant::now() < deadline, "it takes no commands");
        std::thread::yield_now();
    }
}

#[test]
fn a_dropped_engine_ends_its_thread() {
    let rig = tiny(8, |_| ());
    let Rig {
        engine, mut events, ..
    } = rig;
    drop(engine);
    assert_eq!(events.blocking_recv(), None);
}
