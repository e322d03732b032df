//! I5: the same tokens, whatever the pairing.
//!
//! Each prompt's greedy tokens, and the log probabilities of each, are compared bit for bit between
//! one worker that does everything and disaggregated fleets over tcp and shm with several chunk
//! sizes. `TANDEM_LONG=1` runs every chunk size over every provider; without it each appears once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::Fleet;

/// Prompts of 1 to 2,000 tokens, most not a multiple of the page size (16).
fn prompts() -> Vec<Vec<u32>> {
    let lengths = [
        1, 2, 3, 5, 7, 8, 9, 11, 13, 15, 16, 17, 18, 19, 21, 23, 25, 28, 30, 31, 32, 33, 34, 37,
        41, 43, 47, 48, 49, 53, 59, 63, 64, 65, 66, 71, 79, 95, 97, 101, 113, 127, 128, 129, 151,
        200, 257, 333, 512, 513, 777, 1025, 1500, 2000,
    ];
    // Any tokens do; a multiplicative generator makes the same ones each time.
    let mut state: u64 = 0x2545_f491_4f6c_dd1d;
    let mut token = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % 49_000 + 17
    };
    lengths
        .iter()
        .map(|n| (0..*n).map(|_| token()).collect())
        .collect()
}

/// The choices (texts and log probabilities) of every prompt, four at a time, so that batches mix.
async fn answers(fleet: &Fleet, prompts: &[Vec<u32>]) -> Vec<Value> {
    let one = |prompt: &Vec<u32>| {
        let body = json!({
            "model": "SmolLM2-135M-Instruct",
            "prompt": prompt,
            "temperature": 0,
            "max_tokens": 12,
            "logprobs": 3,
            "ignore_eos": true,
        });
        let client = fleet.client();
        async move {
            let answer = client.post("/v1/completions", &body).await.unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json().unwrap()["choices"][0].clone()
        }
    };
    let mut all = Vec::new();
    for four in prompts.chunks(4) {
        all.extend(futures_util::future::join_all(four.iter().map(one)).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_the_same_for_every_pairing_and_chunk_size() {
    let prompts = prompts();
    assert!(prompts.len() >= 50);
    let reference = {
        let fleet = Fleet::up(&["--aggregated", "--chunk-tokens", "512"]);
        answers(&fleet, &prompts).await
    };
    assert!(
        reference
            .iter()
            .all(|c| c["logprobs"]["tokens"].as_array().unwrap().len() == 12)
    );
    let short = [("tcp", "16"), ("shm", "64"), ("tcp", "512")];
    let long = [
        ("tcp", "16"),
        ("tcp", "64"),
        ("tcp", "512"),
        ("shm", "16"),
        ("shm", "64"),
        ("shm", "512"),
    ];
    let all = if std::env::var_os("TANDEM_LONG").is_some() {
        &long[..]
    } else {
        &short[..]
    };
    for (provider, chunk) in all {
        let fleet = Fleet::up(&["--provider", provider, "--chunk-tokens", chunk]);
        let answers = answers(&fleet, &prompts).await;
        for ((prompt, wanted), got) in prompts.iter().zip(&reference).zip(&answers) {
            let tokens = prompt.len();
            assert_eq!(
                got, wanted,
                "{tokens} prompt tokens over {provider}, chunks of {chunk}"
            );
        }
    }
}
