//! I5 over every pair of shardings: the same tokens as one unsharded worker, over real libfabric.

use tandem_engine::testing::TinyLlama;

use crate::fleet::{Fleet, Worker, generate};

const RANKS: [u16; 4] = [1, 2, 4, 8];
const PAGES: [u16; 3] = [16, 32, 64];
const CHUNKS: [u32; 3] = [7, 64, 512];
/// A tail in every page size, more than a page of each, and more than two chunks of 64.
const PROMPT: usize = 150;
const ANSWER: u32 = 6;

fn prompt(seed: u32) -> Vec<u32> {
    (0..PROMPT as u32)
        .map(|i| (i * i * 31 + seed * 17 + i) % 256)
        .collect()
}

fn worker(ranks: u16, page_tokens: u16, chunk: u32, order: &str) -> String {
    format!(
        "tensor_parallel = {ranks}\npage_tokens = {page_tokens}\nchunk_tokens = {chunk}\n\
         kv_order = {order:?}\nkv_pages = {}\nprefix_cache = false",
        2048 / u32::from(page_tokens)
    )
}

/// Every pair of ranks, page sizes and chunk sizes of a model with so many KV heads: where there are
/// more ranks than heads, ranks form replica sets.
async fn every_pair(kv_heads: usize) {
    let fleet = Fleet::new(TinyLlama {
        heads: 8,
        kv_heads,
        ..TinyLlama::default()
    });
    let alone = fleet
        .start("both", &worker(1, 16, 512, "together"), "")
        .await;
    let mut decodes = Vec::new();
    for ranks in RANKS {
        for page_tokens in PAGES {
            // Planes lie otherwise here than there.
            let order = if ranks > 2 { "apart" } else { "together" };
            let worker = worker(ranks, page_tokens, 64, order);
            decodes.push(fleet.start("decode", &worker, "").await);
        }
    }
    let mut request = 0;
    for ranks in RANKS {
        for page_tokens in PAGES {
            for chunk in CHUNKS {
                let worker = worker(ranks, page_tokens, chunk, "together");
                let prefill = fleet.start("prefill", &worker, "").await;
                let asked = prompt(u32::from(ranks + page_tokens) + chunk);
                let want = alone.tokens(generate(1, &asked, ANSWER, None)).await;
                let want = want.unwrap();
                assert_eq!(want.len(), ANSWER as usize);
                for decode in &decodes {
                    request += 1;
                    let ask = generate(
                        request << 64 | request,
                        &asked,
                        ANSWER,
                        Some(prefill.peer()),
                    );
                    let got = decode.tokens(ask).await;
                    assert_eq!(
                        got.as_ref(),
                        Ok(&want),
                        "{} to {}",
                        what(&prefill),
                        what(decode)
                    );
                }
                prefill.at_rest().await;
                prefill.stop().await;
            }
        }
    }
    for decode in decodes {
        decode.at_rest().await;
        decode.stop().await;
    }
    alone.stop().await;
}

fn what(worker: &Worker) -> String {
    let g = worker.welcome.geometry.clone().unwrap();
    let (id, shards) = (&worker.id, g.shards.len());
    format!("{id} ({shards} shards, pages of {})", g.page_tokens)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pair_of_shardings_gives_the_tokens_of_one_worker() {
    every_pair(8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pair_of_replica_sets_gives_the_tokens_of_one_worker() {
    every_pair(2).await;
}

/// Order is never assumed: with several NICs, and with writes, completions and immediates delayed and
/// reordered at random, the tokens stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nics_and_their_disorder_change_no_token() {
    let fleet = Fleet::new(TinyLlama::default());
    let alone = fleet
        .start("both", &worker(1, 16, 512, "together"), "")
        .await;
    for (seed, (ours, theirs)) in [(1, 4), (4, 2), (3, 3)].into_iter().enumerate() {
        let fabric =
            |nics: u16| format!("nics = {nics}\ndisorder = {seed}\nmax_write_bytes = 4096");
        let prefill = worker(2, 32, 64, "together");
        let prefill = fleet.start("prefill", &prefill, &fabric(ours)).await;
        let decode = worker(4, 16, 64, "apart");
        let decode = fleet.start("decode", &decode, &fabric(theirs)).await;
        for n in 0..12u32 {
            let asked = prompt(n);
            let want = alone.tokens(generate(1, &asked, ANSWER, None)).await;
            let ask = generate(u128::from(n) + 2, &asked, ANSWER, Some(prefill.peer()));
            assert_eq!(decode.tokens(ask).await, want, "{ours} to {theirs} NICs");
        }
        decode.at_rest().await;
        prefill.at_rest().await;
        prefill.stop().await;
        decode.stop().await;
    }
    alone.stop().await;
}
