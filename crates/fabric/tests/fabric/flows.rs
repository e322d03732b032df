//! What a flow promises.

use std::time::Duration;

use tandem_core::FlowId;
use tandem_fabric::{
    ArmError, FabricError, FabricOptions, IdlePolicy, Immediate, RegionKey, RemoteRegion,
};

use crate::pair::{Pair, options, pattern, post, same_place, until};

crate::on_every_provider_and_rxm!(
    every_byte_is_there_when_the_count_is_full,
    weights_of_merged_writes_add_up,
    a_late_immediate_counts_for_nothing,
    a_stop_drains_before_the_end,
    a_write_out_of_range_fails_its_flow_and_no_other,
    many_flows_share_an_outbox,
    too_many_pieces_are_reported_once,
    a_write_of_no_bytes_is_refused,
    queues_push_back_and_lose_nothing,
    a_thread_with_a_core_to_itself_waits_for_nothing_while_a_flow_is_open,
);

async fn every_byte_is_there_when_the_count_is_full(provider: &str) {
    const PIECE: usize = 64 << 10;
    let mut pair = Pair::open(provider, 16 << 20).await;
    let pieces = (16 << 20) / PIECE;
    for round in 0..4 {
        let bytes = pattern(round, 16 << 20);
        pair.from.memory.write(0, &bytes);
        let inbox = pair.inbox.endpoint;
        let armed = pair.into.arm(inbox, pieces as u64).await;
        let flow = pair.flow(round).await;
        let pusher = pair.from.fabric.pusher();
        for i in 0..pieces {
            let imm = Immediate::new(armed.key, 1);
            post(
                &pusher,
                same_place(flow, (i * PIECE) as u64, PIECE as u32, imm),
            )
            .await;
        }
        pusher.seal(flow).unwrap();
        pair.into.full(armed).await;
        assert!(pair.into.holds_pattern(round, 0, 16 << 20), "round {round}");
        pair.into.release(armed).await;
        let end = pair.from.flow_ended().await;
        assert!(
            end.ended.complete && end.settled && end.error.is_none(),
            "{end:?}"
        );
        assert_eq!(end.ended.writes as usize, pieces);
        assert_eq!(end.ended.bytes, 16 << 20);
        assert!(end.last_completion.unwrap() >= end.first_post.unwrap());
    }
    assert_eq!(pair.into.immediates().1, 0);
}

async fn weights_of_merged_writes_add_up(provider: &str) {
    let mut pair = Pair::open(provider, 1 << 20).await;
    let armed = pair.into.arm(pair.inbox.endpoint, 3 + 1 + 4000).await;
    let flow = pair.flow(1).await;
    let pusher = pair.from.fabric.pusher();
    for weight in [3, 1, 4000] {
        post(
            &pusher,
            same_place(flow, 0, 4096, Immediate::new(armed.key, weight)),
        )
        .await;
    }
    pair.from.fabric.seal(flow).await.unwrap();
    pair.into.full(armed).await;
    assert!(pair.from.flow_ended().await.ended.complete);
}

async fn a_late_immediate_counts_for_nothing(provider: &str) {
    let mut pair = Pair::open(provider, 1 << 20).await;
    let inbox = pair.inbox.endpoint;
    let old = pair.into.arm(inbox, 1).await;
    pair.into.release(old).await;
    let other = pair.into.open_inbox().await;
    let elsewhere = pair.into.arm(other.endpoint, 1).await;
    let armed = pair.into.arm(inbox, 1).await;
    let flow = pair.flow(1).await;
    let pusher = pair.from.fabric.pusher();
    for key in [old.key, elsewhere.key, armed.key] {
        post(&pusher, same_place(flow, 0, 8192, Immediate::new(key, 1))).await;
    }
    pusher.seal(flow).unwrap();
    pair.into.full(armed).await;
    assert!(pair.from.flow_ended().await.ended.complete);
    assert_eq!(pair.into.immediates().1, 2);
    assert_eq!(pair.into.immediates().0, 1);
}

async fn a_stop_drains_before_the_end(provider: &str) {
    let mut pair = Pair::open(provider, 32 << 20).await;
    let armed = pair.into.arm(pair.inbox.endpoint, 1 << 20).await;
    let flow = pair.flow(1).await;
    let pusher = pair.from.fabric.pusher();
    let imm = Immediate::new(armed.key, 1);
    for i in 0..500u64 {
        post(&pusher, same_place(flow, (i % 32) << 20, 1 << 20, imm)).await;
    }
    let fabric = pair.from.fabric.clone();
    until(|| fabric.stats().writes_posted.get() > 0).await;
    pair.from.fabric.stop(flow).await.unwrap();
    let end = pair.from.flow_ended().await;
    assert!(!end.ended.complete && end.settled, "{end:?}");
    // All that was posted has landed and been counted: nothing can follow.
    let stats = pair.from.fabric.stats();
    assert_eq!(u64::from(end.ended.writes), stats.writes_completed.get());
    pair.into.fill(0xee);
    post(&pusher, same_place(flow, 0, 4096, imm)).await;
    let probe = pair.flow(2).await;
    let other = pair.into.arm(pair.inbox.endpoint, 1).await;
    post(
        &pusher,
        same_place(probe, 0, 1, Immediate::new(other.key, 1)),
    )
    .await;
    pair.from.fabric.seal(probe).await.unwrap();
    pair.into.full(other).await;
    assert!(pair.into.holds(0xee, 1, (32 << 20) - 1));
    assert!(pair.from.flow_ended().await.ended.complete);
}

async fn a_write_out_of_range_fails_its_flow_and_no_other(provider: &str) {
    let mut pair = Pair::open(provider, 1 << 20).await;
    let armed = pair.into.arm(pair.inbox.endpoint, 1).await;
    let imm = Immediate::new(armed.key, 1);
    let (good, bad) = (pair.flow(1).await, pair.flow(2).await);
    let pusher = pair.from.fabric.pusher();
    post(&pusher, same_place(bad, (1 << 20) - 1, 2, imm)).await;
    let end = pair.from.flow_ended().await;
    assert!(
        end.ended.flow == bad && !end.ended.complete && end.settled,
        "{end:?}"
    );
    assert!(end.error.unwrap().contains("outside"));
    post(&pusher, same_place(good, 0, 4096, imm)).await;
    pusher.seal(good).unwrap();
    pair.into.full(armed).await;
    assert!(pair.from.flow_ended().await.ended.complete);
    assert_eq!(pair.from.fabric.stats().writes_posted.get(), 1);
    let (base, key) = (u64::MAX, 0);
    let keys = vec![RegionKey { base, key }];
    let wrong = RemoteRegion { len: 2, keys };
    let refused = pair
        .from
        .fabric
        .open_flow(FlowId(9), pair.outbox, wrong)
        .await;
    assert_eq!(refused, Err(FabricError::Region));
}

async fn many_flows_share_an_outbox(provider: &str) {
    const PIECES: u64 = 16;
    let mut pair = Pair::open(provider, 4 << 20).await;
    let bytes = pattern(7, 4 << 20);
    pair.from.memory.write(0, &bytes);
    let pusher = pair.from.fabric.pusher();
    let mut open = Vec::new();
    for id in 0..32 {
        let armed = pair.into.arm(pair.inbox.endpoint, PIECES).await;
        open.push((pair.flow(id).await, armed));
    }
    for piece in 0..PIECES {
        for (flow, armed) in &open {
            let offset = (flow.0 * PIECES + piece) * 8192;
            post(
                &pusher,
                same_place(*flow, offset, 8192, Immediate::new(armed.key, 1)),
            )
            .await;
        }
    }
    for (flow, _) in &open {
        pair.from.fabric.seal(*flow).await.unwrap();
    }
    for _ in &open {
        assert!(pair.into.event().await.starts_with("full"));
        assert!(pair.from.flow_ended().await.ended.complete);
    }
    assert!(pair.into.holds_pattern(7, 0, 4 << 20));
}

async fn too_many_pieces_are_reported_once(provider: &str) {
    let mut pair = Pair::open(provider, 1 << 20).await;
    let armed = pair.into.arm(pair.inbox.endpoint, 2).await;
    let flow = pair.flow(1).await;
    let pusher = pair.from.fabric.pusher();
    for _ in 0..3 {
        post(
            &pusher,
            same_place(flow, 0, 4096, Immediate::new(armed.key, 3)),
        )
        .await;
    }
    pusher.seal(flow).unwrap();
    assert_eq!(
        pair.into.event().await,
        format!("overfull {} 2", armed.key.to_bits())
    );
    assert!(pair.from.flow_ended().await.ended.complete);
    while pair.into.immediates().0 < 3 {
        tokio::task::yield_now().await;
    }
    let other = pair.into.arm(pair.inbox.endpoint, 1).await;
    let flow = pair.flow(2).await;
    post(
        &pusher,
        same_place(flow, 0, 4096, Immediate::new(other.key, 1)),
    )
    .await;
    pair.into.full(other).await;
}

async fn a_write_of_no_bytes_is_refused(provider: &str) {
    let mut pair = Pair::open(provider, 1 << 20).await;
    let armed = pair.into.arm(pair.inbox.endpoint, 1).await;
    let flow = pair.flow(1).await;
    let pusher = pair.from.fabric.pusher();
    post(
        &pusher,
        same_place(flow, 0, 0, Immediate::new(armed.key, 1)),
    )
    .await;
    let end = pair.from.flow_ended().await;
    assert!(
        end.settled && end.error.as_deref() == Some("a write of no bytes"),
        "{end:?}"
    );
}

async fn queues_push_back_and_lose_nothing(provider: &str) {
    const WRITES: u32 = 20_000;
    let mut options = options(provider);
    options.in_flight_writes = 4;
    let mut pair = Pair::with(options, 1 << 20).await;
    let armed = pair.into.arm(pair.inbox.endpoint, WRITES.into()).await;
    let flow = pair.flow(1).await;
    let pusher = pair.from.fabric.pusher();
    let mut pushed_back = 0;
    for _ in 0..WRITES {
        let write = same_place(flow, 0, 512, Immediate::new(armed.key, 1));
        if let Err(write) = pusher.post(write) {
            pushed_back += 1;
            post(&pusher, write).await;
        }
    }
    pair.from.fabric.seal(flow).await.unwrap();
    pair.into.full(armed).await;
    let end = pair.from.flow_ended().await;
    assert!(end.ended.complete && end.ended.writes == WRITES, "{end:?}");
    assert!(
        pushed_back > 0,
        "the queue of one flow is shorter than that"
    );
    let twice = pair.from.fabric.arm(pair.inbox.endpoint, 0).await;
    assert_eq!(twice, Err(ArmError::Nothing));
}

async fn a_thread_with_a_core_to_itself_waits_for_nothing_while_a_flow_is_open(provider: &str) {
    let idle = IdlePolicy {
        // However long this machine forgets the thread.
        open_spin: Duration::from_secs(3600),
        ..IdlePolicy::dedicated()
    };
    let with = FabricOptions {
        idle,
        ..options(provider)
    };
    let mut pair = Pair::with(with, 4096).await;
    let flow = pair.flow(1).await;
    let waits = || pair.from.fabric.stats().waits.get();
    let before = waits();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(waits(), before);
    pair.from.fabric.seal(flow).await.unwrap();
    pair.from.flow_ended().await;
    until(|| pair.from.fabric.stats().waits.get() > before).await;
}
