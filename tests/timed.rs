//! Fleets that take a profile's time, through a real gateway: the same answers however they are served.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::{Fleet, at_rest};

const PROFILE: &str = "qwen3-235b-tp4-h200";
const MODEL: &str = "Qwen3-235B-A22B";

/// Prompts of 1 to 9,000 tokens: more than the tokenizer's own model takes.
fn prompts() -> Vec<Vec<u32>> {
    let lengths = [1, 2, 15, 16, 17, 64, 100, 333, 1025, 9000];
    let token = |n: u32, i: u32| (i * i * 31 + n * 17 + i) % 40_000 + 100;
    lengths
        .iter()
        .map(|n| (0..*n).map(|i| token(*n, i)).collect())
        .collect()
}

async fn answer(fleet: &Fleet, prompt: &[u32]) -> Value {
    let body = json!({
        "model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 12, "ignore_eos": true,
    });
    let answer = fleet.client().post("/v1/completions", &body).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json().unwrap()
}

/// The texts of all prompts, all at once, and how many of their tokens were held.
async fn answers(fleet: &Fleet, prompts: &[Vec<u32>]) -> (Vec<String>, u64) {
    let asked = prompts.iter().map(|prompt| answer(fleet, prompt));
    let all = futures_util::future::join_all(asked).await;
    let text = |a: &Value| a["choices"][0]["text"].as_str().unwrap().to_owned();
    let cached = |a: &Value| {
        let details = &a["usage"]["prompt_tokens_details"];
        details["cached_tokens"].as_u64().unwrap_or(0)
    };
    assert!(all.iter().all(|a| a["usage"]["completion_tokens"] == 12));
    (all.iter().map(text).collect(), all.iter().map(cached).sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_fleet_answers_the_same_alone_in_pairs_in_other_pages_and_from_its_cache() {
    let prompts = prompts();
    let timed = ["--timed", PROFILE, "--time-scale", "0"];
    let up = |more: &[&str]| Fleet::up(&[&timed[..], more].concat());
    let (want, held) = {
        let fleet = up(&["--aggregated", "--chunk-tokens", "16384"]);
        answers(&fleet, &prompts).await
    };
    assert_eq!(held, 0);
    assert!(want.iter().all(|text| !text.is_empty()));
    for (page_tokens, chunk) in [("16", "8192"), ("128", "700")] {
        let more = ["--page-tokens", page_tokens, "--chunk-tokens", chunk];
        let fleet = up(&more);
        let (first, _) = answers(&fleet, &prompts).await;
        assert_eq!(first, want, "pages of {page_tokens}");
        let (again, held) = answers(&fleet, &prompts).await;
        assert_eq!(again, want, "pages of {page_tokens}, from the cache");
        assert!(held > 9000, "{held} tokens were held");
        let within = std::time::Duration::from_secs(20);
        fleet.wait_for("all pages free", within, at_rest).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_worker_says_its_profiles_model_and_chats() {
    let fleet = Fleet::up(&["--timed", PROFILE, "--time-scale", "0", "--decode", "1"]);
    let models = fleet.client().get("/v1/models").await.unwrap();
    let models: Value = models.json().unwrap();
    assert_eq!(models["data"][0]["id"], MODEL);
    let body = json!({
        "model": MODEL, "max_tokens": 20, "temperature": 1, "seed": 5,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    });
    let client = fleet.client();
    let ask = || async {
        let path = "/v1/chat/completions";
        let answer: Value = client.post(path, &body).await.unwrap().json().unwrap();
        answer["choices"][0].clone()
    };
    let (one, two) = (ask().await, ask().await);
    assert_eq!(one["finish_reason"], "length");
    assert!(!one["message"]["content"].as_str().unwrap().is_empty());
    assert_eq!(one, two);
}
