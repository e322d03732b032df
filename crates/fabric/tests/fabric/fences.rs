//! Closing an endpoint is the fence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tandem_core::{EndpointId, FlowId};
use tandem_fabric::{FabricError, Immediate, Pusher, SlotKey};

use crate::pair::{LONG, Pair, pattern, post, same_place, until};

crate::on_every_provider!(
    nothing_lands_behind_a_closed_inbox,
    closing_an_inbox_disturbs_no_other_peer,
    closing_an_outbox_ends_its_flows,
    a_session_can_be_opened_again,
    a_hundred_sessions_in_one_domain,
);

const ARENA: usize = 32 << 20;
const PIECE: u32 = 256 << 10;

/// A thread that posts over the first half of the arena until dropped.
struct Stream {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Stream {
    fn start(pusher: Pusher, flow: FlowId, imm: Immediate) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let pieces = (ARENA as u64 / 2) / u64::from(PIECE);
        let thread = std::thread::spawn(move || {
            for i in 0.. {
                let write = same_place(flow, (i % pieces) * u64::from(PIECE), PIECE, imm);
                while pusher.post(write).is_err() && !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A stream at full rate into an inbox, its immediates counted by the stale ones.
async fn streaming(pair: &Pair) -> (FlowId, Stream) {
    pair.from.memory.write(0, &vec![0x11; ARENA]);
    let flow = pair.flow(77).await;
    let imm = Immediate::new(SlotKey::new(0, 0), 1);
    let stream = Stream::start(pair.from.fabric.pusher(), flow, imm);
    until(|| pair.into.immediates().1 > 40).await;
    (flow, stream)
}

async fn nothing_lands_behind_a_closed_inbox(provider: &str) {
    for _ in 0..5 {
        let pair = Pair::open(provider, ARENA).await;
        let (_, stream) = streaming(&pair).await;
        // Until the close, they do land.
        pair.into.fill(0xee);
        until(|| !pair.into.holds(0xee, 0, ARENA)).await;
        pair.into.close(pair.inbox.endpoint).await;
        // The pages are somebody else's now.
        pair.into.fill(0xee);
        let counted = pair.into.immediates().1;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(pair.into.holds(0xee, 0, ARENA), "{provider}");
        assert_eq!(pair.into.immediates().1, counted);
        drop(stream);
        pair.from.fabric.close(pair.outbox).await.unwrap();
    }
}

async fn closing_an_inbox_disturbs_no_other_peer(provider: &str) {
    let mut pair = Pair::open(provider, ARENA).await;
    let inbox = pair.into.open_inbox().await;
    let outbox = pair
        .from
        .fabric
        .open_outbox(&inbox.addresses)
        .await
        .unwrap();
    let (_, stream) = streaming(&pair).await;
    let half = ARENA / 2;
    let bytes = pattern(3, half);
    pair.from.memory.write(half, &bytes);
    let armed = pair.into.arm(inbox.endpoint, 64).await;
    let flow = FlowId(78);
    pair.from
        .fabric
        .open_flow(flow, outbox, pair.into.region())
        .await
        .unwrap();
    let pusher = pair.from.fabric.pusher();
    for i in 0..64u64 {
        if i == 20 {
            pair.into.close(pair.inbox.endpoint).await;
        }
        let offset = half as u64 + i * u64::from(PIECE);
        post(
            &pusher,
            same_place(flow, offset, PIECE, Immediate::new(armed.key, 1)),
        )
        .await;
    }
    pusher.seal(flow).unwrap();
    pair.into.full(armed).await;
    assert!(pair.into.holds_pattern(3, half, half));
    drop(stream);
    pair.from.fabric.close(pair.outbox).await.unwrap();
    let mut ends = [pair.from.flow_ended().await, pair.from.flow_ended().await];
    ends.sort_by_key(|end| end.ended.flow);
    assert!(!ends[0].ended.complete && !ends[0].settled, "{ends:?}");
    assert!(ends[1].ended.complete && ends[1].settled, "{ends:?}");
}

async fn closing_an_outbox_ends_its_flows(provider: &str) {
    let mut pair = Pair::open(provider, ARENA).await;
    let (flow, stream) = streaming(&pair).await;
    let idle = pair.flow(5).await;
    pair.from.fabric.close(pair.outbox).await.unwrap();
    drop(stream);
    let mut ended = [pair.from.flow_ended().await, pair.from.flow_ended().await];
    ended.sort_by_key(|end| end.ended.flow);
    assert_eq!(ended.each_ref().map(|end| end.ended.flow), [idle, flow]);
    assert!(ended[0].settled && !ended[0].ended.complete);
    assert!(!ended[1].ended.complete);
    let gone = pair.from.fabric.close(pair.outbox).await;
    assert_eq!(gone, Err(FabricError::UnknownEndpoint(pair.outbox)));
}

async fn a_session_can_be_opened_again(provider: &str) {
    let mut pair = Pair::open(provider, 1 << 20).await;
    for round in 0..10 {
        let armed = pair.into.arm(pair.inbox.endpoint, 1).await;
        let flow = pair.flow(round).await;
        let pusher = pair.from.fabric.pusher();
        post(
            &pusher,
            same_place(flow, 0, 8192, Immediate::new(armed.key, 1)),
        )
        .await;
        pusher.seal(flow).unwrap();
        pair.into.full(armed).await;
        assert!(pair.from.flow_ended().await.ended.complete);
        pair.into.release(armed).await;
        pair.into.close(pair.inbox.endpoint).await;
        pair.from.fabric.close(pair.outbox).await.unwrap();
        pair.inbox = pair.into.open_inbox().await;
        pair.outbox = pair
            .from
            .fabric
            .open_outbox(&pair.inbox.addresses)
            .await
            .unwrap();
    }
}

async fn a_hundred_sessions_in_one_domain(provider: &str) {
    let mut pair = Pair::open(provider, 1 << 20).await;
    let mut sessions: Vec<(EndpointId, EndpointId)> = Vec::new();
    for _ in 0..100 {
        let inbox = pair.into.open_inbox().await;
        let outbox = pair
            .from
            .fabric
            .open_outbox(&inbox.addresses)
            .await
            .unwrap();
        sessions.push((inbox.endpoint, outbox));
    }
    let pusher = pair.from.fabric.pusher();
    for (i, (inbox, outbox)) in (0..).zip(&sessions) {
        let armed = pair.into.arm(*inbox, 1).await;
        let flow = FlowId(i);
        pair.from
            .fabric
            .open_flow(flow, *outbox, pair.into.region())
            .await
            .unwrap();
        post(
            &pusher,
            same_place(flow, 0, 8192, Immediate::new(armed.key, 1)),
        )
        .await;
        pusher.seal(flow).unwrap();
    }
    let started = std::time::Instant::now();
    for _ in &sessions {
        pair.into.event().await;
        assert!(pair.from.flow_ended().await.ended.complete);
    }
    assert!(started.elapsed() < LONG);
    pair.from.fabric.shutdown().await.unwrap();
}
