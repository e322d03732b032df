//! Prefix reuse: what is held is neither computed nor sent again, and the tokens stay.

use tandem_engine::testing::TinyLlama;
use tandem_wire::proto;

use crate::fleet::{Fleet, Worker, generate};

const ANSWER: u32 = 8;

fn prompt(seed: u32, tokens: u32) -> Vec<u32> {
    (0..tokens)
        .map(|i| (i * i * 31 + seed * 17 + i) % 256)
        .collect()
}

fn worker(ranks: u16, page_tokens: u16) -> String {
    let pages = 1024 / u32::from(page_tokens);
    format!("tensor_parallel = {ranks}\npage_tokens = {page_tokens}\nkv_pages = {pages}")
}

/// A request of its own number.
fn ask(n: u128, tokens: &[u32], prefill: &Worker) -> proto::Generate {
    generate(n, tokens, ANSWER, Some(prefill.peer()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_begins_like_an_earlier_one_is_reused_on_both_sides() {
    let fleet = Fleet::new(TinyLlama::default());
    let alone = fleet
        .start(
            "both",
            &format!("{}\nprefix_cache = false", worker(1, 16)),
            "",
        )
        .await;
    let (p1, p2) = (
        fleet.start("prefill", &worker(2, 32), "").await,
        fleet.start("prefill", &worker(1, 16), "").await,
    );
    let (d1, d2) = (
        fleet.start("decode", &worker(1, 16), "").await,
        fleet.start("decode", &worker(4, 64), "").await,
    );
    let long = prompt(1, 150);
    // The same first 100 tokens, then others.
    let mut other = long[..100].to_vec();
    other.extend(prompt(9, 77));
    let mut n = 0;
    // Tokens held by the decode worker, and those that the prefill worker had.
    let cases = [
        (&p1, &d1, &long, 0, 0),
        // Again: all whole pages of 149 tokens; of pages of 32, the last token's is computed.
        (&p1, &d1, &long, 144, 128),
        // Another prefill worker knows nothing, the decode worker does.
        (&p2, &d1, &long, 144, 0),
        // And the other way round, in other pages.
        (&p2, &d2, &long, 0, 144),
        (&p1, &d1, &other, 96, 96),
        (&p2, &d2, &other, 64, 96),
        (&p1, &d2, &other, 128, 160),
    ];
    for (prefill, decode, tokens, held, cached) in cases {
        n += 1;
        let want = alone
            .tokens(generate(n, tokens, ANSWER, None))
            .await
            .unwrap();
        let got = decode.answer(ask(n, tokens, prefill)).await.unwrap();
        assert_eq!(got.tokens, want, "case {n}");
        assert_eq!((got.held, got.cached), (held, cached), "case {n}");
    }
    for worker in [p1, p2, d1, d2, alone] {
        worker.at_rest().await;
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_turn_finds_prompt_and_answer() {
    let fleet = Fleet::new(TinyLlama::default());
    let prefill = fleet.start("prefill", &worker(1, 16), "").await;
    let decode = fleet.start("decode", &worker(1, 16), "").await;
    let mut tokens = prompt(2, 60);
    let first = decode
        .answer(generate(1, &tokens, 30, Some(prefill.peer())))
        .await
        .unwrap();
    tokens.extend(&first.tokens);
    tokens.extend(prompt(3, 20));
    let second = decode.answer(ask(2, &tokens, &prefill)).await.unwrap();
    // 60 + 30 - 1 tokens had entries: 5 whole pages.
    assert_eq!(second.held, 80);
    let aggregated = fleet.start("both", &worker(1, 16), "").await;
    let want = aggregated.tokens(generate(3, &tokens, ANSWER, None)).await;
    assert_eq!(Ok(second.tokens), want);
    // The whole prompt is held now, and its answer: nothing is prefilled.
    let third = aggregated.answer(generate(4, &tokens, ANSWER, None)).await;
    let third = third.unwrap();
    assert_eq!((third.held, third.cached), (96, 96));
    assert_eq!(Ok(third.tokens), want);
    for worker in [prefill, decode, aggregated] {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_are_reported_evicted_last_and_kept_apart_by_salt() {
    let fleet = Fleet::new(TinyLlama::default());
    let prefill = fleet.start("prefill", &worker(1, 16), "").await;
    let decode = fleet.start("decode", "kv_pages = 16", "").await;
    assert_eq!(decode.cached_blocks().await, 0);
    let one = prompt(1, 65);
    decode.answer(ask(1, &one, &prefill)).await.unwrap();
    // 65 + 8 - 1 tokens have entries.
    assert_eq!(decode.cached_blocks().await, 4);
    let salted = proto::Generate {
        cache_salt: "another".into(),
        ..ask(2, &one, &prefill)
    };
    let answer = decode.answer(salted).await.unwrap();
    assert_eq!((answer.held, answer.cached), (0, 0), "another salt");
    assert_eq!(decode.cached_blocks().await, 8);
    // 15 of 16 pages: blocks must go, the longest unused first.
    decode
        .answer(ask(3, &prompt(5, 230), &prefill))
        .await
        .unwrap();
    decode.at_rest().await;
    assert_eq!(decode.cached_blocks().await, 15);
    let again = decode.answer(ask(4, &one, &prefill)).await.unwrap();
    assert_eq!(again.held, 0);
    for worker in [prefill, decode] {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decode_worker_computes_a_prompt_that_names_no_prefill_worker() {
    let fleet = Fleet::new(TinyLlama::default());
    let aggregated = fleet.start("both", &worker(1, 16), "").await;
    let decode = fleet
        .start(
            "decode",
            &format!("{}\nlabels = {{ rack = \"r1\" }}", worker(2, 16)),
            "",
        )
        .await;
    let tokens = prompt(4, 90);
    let want = aggregated.tokens(generate(1, &tokens, ANSWER, None)).await;
    let first = decode.answer(generate(1, &tokens, ANSWER, None)).await;
    assert_eq!(first.map(|a| a.tokens), want);
    // And finds it again.
    let second = decode.answer(generate(2, &tokens, ANSWER, None)).await;
    let second = second.unwrap();
    assert_eq!((second.held, second.cached), (80, 80));
    assert_eq!(Ok(second.tokens), want);
    decode.at_rest().await;
    // It says how it names blocks, where it stands, how quick its steps are, and until when its
    // certificate holds.
    let welcome = &decode.welcome;
    assert_eq!(welcome.block_seed.len(), 16);
    assert_eq!(welcome.labels["rack"], "r1");
    assert!(!welcome.labels["host"].is_empty());
    let load = decode.load().await;
    assert!(load.decode_step_us > 0 && load.queued_prompt_tokens == 0);
    assert!(load.certificate_expiry > 1_700_000_000);
    for worker in [aggregated, decode] {
        worker.stop().await;
    }
}
