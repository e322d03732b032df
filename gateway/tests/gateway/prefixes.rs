//! Workers' reports of what they hold, and where requests go because of them.

use serde_json::json;
use tandem_core::blocks::{BlockHash, BlockSeed};
use tandem_policies::{LocalPrefill, Rule};
use tandem_wire::proto;
use tandem_wire::proto::cache_change::Kind;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::client::post;
use crate::harness::{COMPLETIONS, Gateway, config, eventually, pki};
use crate::scripted_worker::{MODEL, PAGE_TOKENS, PATIENCE, ScriptedWorker, welcome};

const SEED: [u8; 16] = [9; 16];

fn keeps_blocks(id: &str, role: proto::Role) -> proto::Welcome {
    proto::Welcome {
        block_seed: SEED.to_vec().into(),
        ..welcome(id, role)
    }
}

/// A prompt of four blocks and a token.
fn prompt(from: u32) -> Vec<u32> {
    (from..=from + 4 * PAGE_TOKENS).collect()
}

/// A report that the worker holds a prompt's blocks.
fn held(first: u64, reset: bool, prompt: &[u32]) -> proto::CacheReport {
    let seed = BlockSeed::announced(BlockHash(SEED), PAGE_TOKENS as u16);
    let stored = |block: BlockHash| proto::CacheChange {
        kind: Some(Kind::Stored(block.0.to_vec().into())),
    };
    let changes: Vec<_> = seed.chain(&[], prompt).into_iter().map(stored).collect();
    proto::CacheReport {
        first,
        unnumbered: if reset { changes.len() as u32 } else { 0 },
        changes,
        reset,
    }
}

/// A gateway that follows what workers hold, in front of two that do both.
async fn prefix_aware() -> (TempDir, Gateway, [ScriptedWorker; 2]) {
    let pki = pki();
    let worker = |id| ScriptedWorker::start(pki.path(), keeps_blocks(id, proto::Role::Both));
    let workers = [worker("both-0"), worker("both-1")];
    let mut config = config(&pki, workers.iter().map(|w| w.address).collect());
    config.policy.decode.choose = Rule::PrefixAware;
    let gateway = Gateway::start(config).await;
    eventually("both are there", || async {
        gateway
            .metric("tandem_worker_up{worker=\"both-0\",role=\"both\"}")
            .await
            == Some(1.0)
            && gateway
                .metric("tandem_worker_up{worker=\"both-1\",role=\"both\"}")
                .await
                == Some(1.0)
    })
    .await;
    (pki, gateway, workers)
}

async fn knows(gateway: &Gateway, blocks: usize) {
    eventually("the index knows them", || async {
        gateway.metric("tandem_prefix_index_blocks").await == Some(blocks as f64)
    })
    .await;
}

/// Which of the workers answers a request with this prompt.
async fn answered_by(
    gateway: &Gateway,
    workers: &mut [ScriptedWorker; 2],
    prompt: &[u32],
) -> usize {
    let body = json!({ "model": MODEL, "prompt": prompt, "max_tokens": 1 });
    let [first, second] = workers;
    let answering = async {
        let (mut call, by) = tokio::select! {
            call = first.call() => (call, 0),
            call = second.call() => (call, 1),
        };
        call.start().await;
        call.token(5, "x").await;
        call.finish("", proto::FinishReason::Length).await;
        by
    };
    let (reply, by) = tokio::join!(post(gateway.address, COMPLETIONS, &body), answering);
    assert_eq!(reply.status, 200, "{}", reply.body);
    by
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_goes_to_the_worker_that_reported_its_blocks() {
    let (_pki, gateway, mut workers) = prefix_aware().await;
    let prompts = [prompt(100), prompt(1000)];
    for (worker, prompt) in workers.iter().zip(&prompts) {
        worker.report_cache(held(1, true, prompt));
    }
    knows(&gateway, 8).await;
    for _ in 0..5 {
        for (at, prompt) in prompts.iter().enumerate() {
            assert_eq!(answered_by(&gateway, &mut workers, prompt).await, at);
        }
    }
    // What is withdrawn is known no more.
    let mut gone = held(1, false, &prompts[0]);
    for change in &mut gone.changes {
        if let Some(Kind::Stored(name)) = change.kind.take() {
            change.kind = Some(Kind::Evicted(name));
        }
    }
    workers[0].report_cache(gone);
    knows(&gateway, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_in_the_reports_is_answered_by_asking_for_everything() {
    let (_pki, gateway, mut workers) = prefix_aware().await;
    let (old, new) = (prompt(100), prompt(1000));
    workers[0].report_cache(held(1, true, &old));
    knows(&gateway, 4).await;
    // Changes 1 to 9 never came.
    workers[0].report_cache(held(10, false, &new));
    eventually("asked", || async { workers[0].was_asked_anew() }).await;
    workers[0].report_cache(held(14, true, &new));
    // As many as before, so that their number does not tell when they are known.
    let deadline = Instant::now() + PATIENCE;
    while answered_by(&gateway, &mut workers, &new).await != 0 {
        assert!(Instant::now() < deadline, "the new ones are not known");
    }
    for _ in 0..5 {
        assert_eq!(answered_by(&gateway, &mut workers, &new).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_starts_anew_learns_what_workers_hold_and_serves_meanwhile() {
    let (pki, gateway, mut workers) = prefix_aware().await;
    workers[1].report_cache(held(1, true, &prompt(100)));
    knows(&gateway, 4).await;
    let mut again = config(&pki, workers.iter().map(|w| w.address).collect());
    again.policy.decode.choose = Rule::PrefixAware;
    gateway.stop().await;
    let gateway = Gateway::start(again).await;
    gateway.ready().await;
    // Nobody has reported yet: served all the same.
    answered_by(&gateway, &mut workers, &prompt(100)).await;
    workers[1].report_cache(held(1, true, &prompt(100)));
    knows(&gateway, 4).await;
    for _ in 0..5 {
        assert_eq!(answered_by(&gateway, &mut workers, &prompt(100)).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_prompt_is_left_to_the_decode_worker_and_counted() {
    let pki = pki();
    let prefill = ScriptedWorker::start(pki.path(), welcome("prefill-0", proto::Role::Prefill));
    let mut decode = ScriptedWorker::start(pki.path(), welcome("decode-0", proto::Role::Decode));
    let mut config = config(&pki, vec![prefill.address, decode.address]);
    config.policy.local_prefill = LocalPrefill {
        max_prompt_tokens: 10,
        ..LocalPrefill::default()
    };
    let gateway = Gateway::start(config).await;
    gateway.ready().await;
    for (prompt, here) in [(vec![1, 2, 3], true), ((0..11).collect(), false)] {
        let body = json!({ "model": MODEL, "prompt": prompt, "max_tokens": 1 });
        let answering = async {
            let mut call = decode.call().await;
            call.start().await;
            call.token(5, "x").await;
            call.finish("", proto::FinishReason::Length).await;
            call.generate.prefill.is_none()
        };
        let (reply, alone) = tokio::join!(post(gateway.address, COMPLETIONS, &body), answering);
        assert_eq!((reply.status.as_u16(), alone), (200, here));
    }
    let count = "tandem_local_prefills_total{reason=\"short_prompt\"}";
    assert_eq!(gateway.metric(count).await, Some(1.0));
}
