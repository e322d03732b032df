//! The engine on SmolLM2-135M-Instruct itself.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod rig;

use std::sync::LazyLock;

use rig::{Answer, GREEDY, Rig, real_model, stop_after};
use tandem_core::PageIndex;
use tandem_engine::FinishReason;
use tandem_text::ChatOptions;

/// Prompts of many lengths, from one token on.
static TEXT: LazyLock<String> = LazyLock::new(|| {
    let sentence = "A decode worker leases its pages before a prompt is sent to a prefill worker, \
        which writes each layer's keys and values as soon as they are known. ";
    sentence.repeat(24)
});

fn prompts(rig: &Rig) -> Vec<Vec<u32>> {
    let tokens = rig.text.encode(&TEXT);
    [1, 2, 15, 16, 17, 33, 100, 257, 600]
        .map(|n| tokens[..n].to_vec())
        .to_vec()
}

#[test]
fn the_capital_of_france_is_paris() {
    let mut rig = Rig::new(&real_model(), 64, |_| ());
    let messages = serde_json::json!([
        { "role": "user", "content": "What is the capital of France?" }
    ]);
    let options = ChatOptions {
        add_generation_prompt: true,
        ..ChatOptions::default()
    };
    let prompt = rig.text.render_chat(&messages, options).unwrap();
    let tokens = rig.text.encode_rendered(&prompt);
    let answer = rig.generate(&tokens, 0, GREEDY, stop_after(64));
    assert!(answer.text.contains("Paris"), "{:?}", answer.text);
    assert_eq!(answer.reason, Some(FinishReason::Stop));
}

#[test]
fn greedy_tokens_do_not_depend_on_chunks_batches_or_pages() {
    let mut want: Option<Vec<Answer>> = None;
    for (chunk, together) in [(512, false), (16, true), (64, true)] {
        let mut rig = Rig::new(&real_model(), 160, |options| options.chunk_tokens = chunk);
        let prompts = prompts(&rig);
        let stop = || stop_after(24);
        let got = if together {
            let mut next = 0;
            let mut ids = Vec::new();
            for tokens in &prompts {
                let pages = rig.pages_for(next, tokens.len() + 24);
                next += pages.len() as u32;
                // Not in the order of the arena.
                let pages: std::sync::Arc<[PageIndex]> = pages.iter().rev().copied().collect();
                rig.prefill(tokens, pages.clone());
                ids.push((tokens, pages));
            }
            let ids: Vec<_> = ids
                .into_iter()
                .map(|(tokens, pages)| rig.start(tokens, 0, pages, GREEDY, stop()))
                .collect();
            rig.answers(&ids)
        } else {
            prompts
                .iter()
                .map(|tokens| rig.generate(tokens, 0, GREEDY, stop()))
                .collect()
        };
        match &want {
            None => want = Some(got),
            Some(want) => assert_eq!(*want, got, "chunk {chunk}"),
        }
    }
}
