//! Which tokens an answer has, when it ends, and what it tells of its tokens, on a tiny random model.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod rig;

use rig::{GREEDY, Rig, on, prompt, push, stop_after, tiny};
use tandem_core::geometry::KvOrder;
use tandem_engine::testing::TinyLlama;
use tandem_engine::{FinishReason, ModelOptions, Penalties, Sampling, StopConditions};

/// By chance, from all tokens.
fn sampled(seed: u64) -> Sampling {
    Sampling {
        temperature: 1.0,
        seed,
        ..GREEDY
    }
}

#[test]
fn answers_do_not_depend_on_chunks_company_or_where_the_pages_came_from() {
    let mut alone = tiny(64, |_| ());
    let prompts: Vec<_> = [1, 2, 40, 150].map(|n| prompt(n, n as usize)).to_vec();
    let sampled = Sampling {
        top_p: 0.95,
        ..sampled(9)
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
    let penalised = Sampling {
        penalties: Penalties {
            presence: 0.5,
            frequency: 0.5,
            repetition: 1.2,
        },
        ..GREEDY
    };
    let [sampled, penalised] = [sampled(5), penalised].map(goes_on_as_if_it_had_begun_here);
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
    let sampling = sampled(8);
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
    let sampling = sampled(9);
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
    let sampling = sampled(8);
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
