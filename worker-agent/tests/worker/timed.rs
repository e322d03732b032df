//! Workers that take a profile's time: the same tokens however a request is served, and many in one
//! process.

use std::time::{Duration, Instant};

use tandem_engine::testing::TinyLlama;
use tandem_wire::proto;

use crate::fleet::{Fleet, Worker, generate};

const ANSWER: u32 = 8;

/// A profile of few layers; `kind` and `heads` are the KV cache's.
fn profile(kind: &str, heads: u16) -> String {
    format!(
        "[profile]\nmodel = \"clockwork\"\ncontext_length = 8192\ngpus = 1\n\
         [kv]\nlayers = 5\nkind = {kind:?}\nheads = {heads}\nhead_dim = 64\ntokens = 100000\n\
         [step]\noverhead_us = 200\nlayer_us = 100\n[memory]\ngb_per_s = 1000\n\
         [dense]\nweight_mb = 100\nns_per_token = 2000\n\
         [attention]\nps_per_pair = 100\nkv_bytes_per_token = 256\n\
         [link]\nlayer_us = 100\nns_per_token = 100\n"
    )
}

fn fleet(kind: &str, heads: u16) -> Fleet {
    let fleet = Fleet::new(TinyLlama::default());
    std::fs::write(fleet.folder().join("profile.toml"), profile(kind, heads)).unwrap();
    fleet
}

fn prompt(seed: u32, tokens: u32) -> Vec<u32> {
    (0..tokens)
        .map(|i| (i * i * 31 + seed * 17 + i) % 256)
        .collect()
}

fn worker(ranks: u16, page_tokens: u16, chunk: u32) -> String {
    let pages = 4096 / u32::from(page_tokens);
    format!(
        "tensor_parallel = {ranks}\npage_tokens = {page_tokens}\nchunk_tokens = {chunk}\n\
         kv_pages = {pages}"
    )
}

fn ask(n: u128, tokens: &[u32], prefill: Option<&Worker>) -> proto::Generate {
    generate(n, tokens, ANSWER, prefill.map(Worker::peer))
}

/// Disaggregated over several shardings, page sizes and chunks, local, and with a prefix that is held.
async fn same_tokens(kind: &str, heads: u16) {
    let fleet = fleet(kind, heads);
    let start = |role, lines: String| {
        let fleet = &fleet;
        async move { fleet.start_timed(role, &lines, "time_scale = 0").await }
    };
    let alone = start(
        "both",
        format!("{}\nprefix_cache = false", worker(1, 16, 512)),
    )
    .await;
    let prefills = [
        start("prefill", worker(1, 16, 512)).await,
        start("prefill", worker(4, 64, 7)).await,
    ];
    let decodes = [
        start("decode", worker(1, 16, 512)).await,
        start("decode", worker(2, 32, 64)).await,
        start("decode", worker(8, 64, 64)).await,
    ];
    let mut n = 0;
    let mut held = 0;
    // Each prompt begins as the one before it; the first is one token.
    for length in [1, 2, 17, 64, 150, 333] {
        let tokens = prompt(3, length);
        n += 1;
        let want = alone.tokens(ask(n, &tokens, None)).await.unwrap();
        assert_eq!(want.len(), ANSWER as usize);
        for decode in &decodes {
            for prefill in prefills.iter().map(Some).chain([None]) {
                n += 1;
                let got = decode.answer(ask(n, &tokens, prefill)).await.unwrap();
                held += got.held;
                assert_eq!(got.tokens, want, "{length} tokens, to {}", decode.id);
            }
        }
    }
    assert!(held > 0, "prefixes were found");
    for worker in prefills.into_iter().chain(decodes).chain([alone]) {
        worker.at_rest().await;
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timed_fleet_gives_the_same_tokens_for_every_pairing() {
    same_tokens("heads", 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timed_fleet_with_a_latent_gives_the_same_tokens_for_every_pairing() {
    same_tokens("latent", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_that_differs_in_times_alone_pairs_and_one_of_another_model_does_not() {
    let fleet = fleet("heads", 4);
    let path = fleet.folder().join("profile.toml");
    let decode = fleet.start_timed("decode", "", "time_scale = 0").await;
    let slower = profile("heads", 4).replace("layer_us = 100", "layer_us = 900");
    std::fs::write(&path, slower).unwrap();
    let prefill = fleet.start_timed("prefill", "", "time_scale = 0").await;
    let tokens = prompt(1, 50);
    decode
        .tokens(ask(1, &tokens, Some(&prefill)))
        .await
        .unwrap();
    let other = profile("heads", 4).replace("clockwork", "other");
    std::fs::write(&path, other).unwrap();
    let stranger = fleet.start_timed("prefill", "", "time_scale = 0").await;
    let refused = decode.tokens(ask(2, &tokens, Some(&stranger))).await;
    let refused = refused.unwrap_err();
    assert!(refused.contains("fingerprint"), "{refused}");
    for worker in [decode, prefill, stranger] {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_workers_in_one_process_answer_at_once_and_none_before_its_time() {
    let fleet = fleet("heads", 4);
    let mut prefills = Vec::new();
    let mut decodes = Vec::new();
    for _ in 0..10 {
        prefills.push(fleet.start_timed("prefill", &worker(1, 16, 512), "").await);
        decodes.push(fleet.start_timed("decode", &worker(1, 16, 512), "").await);
    }
    let tokens = prompt(5, 500);
    let asked = (0u128..10)
        .zip(&decodes)
        .zip(&prefills)
        .map(|((n, decode), prefill)| {
            let began = Instant::now();
            let ask = ask(n + 1, &tokens, Some(prefill));
            async move { (decode.tokens(ask).await, began.elapsed()) }
        });
    // 499 tokens in five layers, of 100 us + 100 us + 499 x 2 us and attention, and eight steps.
    let least = Duration::from_micros(5 * 1200 + 8 * 1200);
    let answers = futures_util::future::join_all(asked).await;
    let (first, _) = &answers[0];
    for (answer, took) in &answers {
        assert_eq!(answer, first);
        assert!(*took >= least, "{took:?}");
    }
    assert_eq!(first.as_ref().map(Vec::len), Ok(ANSWER as usize));
    for worker in prefills.into_iter().chain(decodes) {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_larger_than_the_models_are_refused_with_both_numbers() {
    let fleet = fleet("heads", 4);
    let path = fleet.folder().join("profile.toml");
    let wrong = fleet
        .timed_fails_to_start("entry_bytes = 130")
        .await
        .to_string();
    assert_eq!(
        wrong,
        "[engine] entry_bytes is 130; clockwork has entries of 128: want an even number up to that"
    );
    std::fs::write(&path, "[profile]\n").unwrap();
    let wrong = fleet.timed_fails_to_start("").await.to_string();
    assert!(wrong.contains("profile.toml"), "{wrong}");
}
