//! Requests and the completion queue that their pages' immediates arrive in.

use tandem_engine::testing::TinyLlama;

use crate::fleet::{Fleet, generate};

/// 150 of them are 10 pages of 16 in 3 layers, 2 heads and 2 planes: 120 pieces.
fn prompt(tokens: u32) -> Vec<u32> {
    (0..tokens).map(|i| (i * 7 + 3) % 256).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_for_room_in_a_peer_s_queue_and_one_that_never_fits_is_refused() {
    let fleet = Fleet::new(TinyLlama::default());
    let lines = "page_tokens = 16\nkv_pages = 256\nprefix_cache = false";
    let alone = fleet.start("both", lines, "").await;
    let prefill = fleet.start("prefill", lines, "").await;
    // Room for one such request, and not for two.
    let decode = fleet
        .start("decode", lines, "completion_entries = 150")
        .await;
    let want = alone.tokens(generate(1, &prompt(150), 4, None)).await;
    let ask = |n: u128| decode.tokens(generate(n, &prompt(150), 4, Some(prefill.peer())));
    let (a, b, c, d) = tokio::join!(ask(1), ask(2), ask(3), ask(4));
    for answer in [a, b, c, d] {
        assert_eq!(answer, want);
    }
    let long = generate(9, &prompt(400), 4, Some(prefill.peer()));
    let error = decode.tokens(long).await.unwrap_err();
    assert!(error.contains("150 entries"), "{error}");
    assert!(error.contains("completion_entries"), "{error}");
    decode.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_does_not_start_without_the_libfabric_that_is_configured() {
    let fleet = Fleet::new(TinyLlama::default());
    let library = "library = \"/nonexistent/libfabric.so.1\"";
    let error = fleet
        .fails_to_start("decode", "", library)
        .await
        .to_string();
    assert!(
        error.contains("libfabric cannot be loaded from /nonexistent/libfabric.so.1"),
        "{error}"
    );
}
