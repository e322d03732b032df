//! Two processes, and the death of one.

use std::sync::Arc;
use std::time::Duration;

use tandem_core::FlowId;
use tandem_fabric::{Fabric, FabricError, FabricEvent, Immediate, RemoteRegion, SlotKey};
use tandem_memory::HostMemory;

use crate::child::{Process, hear, say};
use crate::pair::{Side, options, pattern, post, same_place, until, within};
use crate::remote::{Receiver, hex_all, read_region, unhex_all, write_region};

crate::on_every_provider!(
    bytes_arrive_in_another_process,
    a_killed_receiver_ends_flows_by_the_close_at_the_latest,
    a_killed_sender_leaves_other_sessions_alone,
);

const ARENA: usize = 8 << 20;
const PIECE: u32 = 64 << 10;
const PIECES: u32 = ARENA as u32 / PIECE;
const PROVIDER: &str = "TANDEM_FABRIC_TEST_PROVIDER";

/// `addresses slot-key len base key`, as one line.
fn invitation(addresses: &[Vec<u8>], region: &RemoteRegion, key: SlotKey) -> String {
    let (addresses, region) = (hex_all(addresses), write_region(region));
    format!("{addresses} {} {region}", key.to_bits())
}

fn invited(line: &str) -> (Vec<Vec<u8>>, RemoteRegion, SlotKey) {
    let (addresses, rest) = line.split_once(' ').unwrap();
    let (key, region) = rest.split_once(' ').unwrap();
    let key = SlotKey::from_bits(key.parse().unwrap()).unwrap();
    (unhex_all(addresses), read_region(region), key)
}

/// The child's part: sends to where it is told. A whole arena, or one piece until it is killed, or
/// some and then none.
pub(crate) fn send() {
    let provider = std::env::var(PROVIDER).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut side = Side::open(options(&provider), ARENA);
        side.memory.write(0, &pattern(42, ARENA));
        let line = hear();
        let (task, invitation) = line.split_once(' ').unwrap();
        let (addresses, region, key) = invited(invitation);
        let outbox = side.fabric.open_outbox(&addresses).await.unwrap();
        side.fabric
            .open_flow(FlowId(1), outbox, region)
            .await
            .unwrap();
        if task == "all" {
            push_all(&side, FlowId(1), key).await;
            assert!(side.flow_ended().await.ended.complete);
            return side.fabric.shutdown().await.unwrap();
        }
        let pusher = side.fabric.pusher();
        for i in 0.. {
            if i == 60 && task == "some" {
                let stats = side.fabric.clone();
                until(|| stats.stats().writes_completed.get() == 60).await;
                say("sent");
                hear();
            }
            post(
                &pusher,
                same_place(FlowId(1), 0, PIECE, Immediate::new(key, 0)),
            )
            .await;
        }
    });
}

async fn push_all(side: &Side, flow: FlowId, key: SlotKey) {
    let pusher = side.fabric.pusher();
    for i in 0..PIECES {
        let offset = u64::from(i * PIECE);
        post(
            &pusher,
            same_place(flow, offset, PIECE, Immediate::new(key, 1)),
        )
        .await;
    }
    pusher.seal(flow).unwrap();
}

async fn bytes_arrive_in_another_process(provider: &str) {
    let mut receiver = Receiver::start(&options(provider), ARENA);
    let inbox = receiver.open_inbox().await;
    let armed = receiver.arm(inbox.endpoint, PIECES.into()).await;
    let mut side = Side::open(options(provider), ARENA);
    side.memory.write(0, &pattern(42, ARENA));
    let outbox = side.fabric.open_outbox(&inbox.addresses).await.unwrap();
    side.fabric
        .open_flow(FlowId(1), outbox, receiver.region())
        .await
        .unwrap();
    push_all(&side, FlowId(1), armed.key).await;
    receiver.full(armed).await;
    assert!(receiver.holds_pattern(42, 0, ARENA));
    let end = side.flow_ended().await;
    assert!(end.ended.complete && end.settled, "{end:?}");
}

async fn a_killed_receiver_ends_flows_by_the_close_at_the_latest(provider: &str) {
    let receiver = Receiver::start(&options(provider), ARENA);
    let inbox = receiver.open_inbox().await;
    let armed = receiver.arm(inbox.endpoint, 1).await;
    let mut options = options(provider);
    options.post_timeout = Duration::from_millis(500);
    let mut side = Side::open(options, ARENA);
    let outbox = side.fabric.open_outbox(&inbox.addresses).await.unwrap();
    side.fabric
        .open_flow(FlowId(1), outbox, receiver.region())
        .await
        .unwrap();
    let pusher = side.fabric.pusher();
    let write = same_place(FlowId(1), 0, PIECE, Immediate::new(armed.key, 0));
    let fabric = side.fabric.clone();
    // Until the receiver is dead, and some more behind that.
    while fabric.stats().writes_completed.get() < 100 {
        let _ = pusher.post(write);
        tokio::task::yield_now().await;
    }
    receiver.kill();
    for _ in 0..200 {
        let _ = pusher.post(write);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    within(side.fabric.close(outbox)).await.unwrap();
    let end = side.flow_ended().await;
    assert!(!end.ended.complete && !end.settled, "{end:?}");
    assert_eq!(side.fabric.stats().unknown_contexts.get(), 0);
}

async fn a_killed_sender_leaves_other_sessions_alone(provider: &str) {
    let mut side = Side::open(options(provider), ARENA);
    let doomed = side.fabric.open_inbox().await.unwrap();
    let armed = side.fabric.arm(doomed.endpoint, 1).await.unwrap();
    let mut child = Process::start("send", &[(PROVIDER, provider)]);
    // shm does not survive the death of a sender that holds the queue's lock (see `shm`).
    let task = if provider == "shm" { "some" } else { "on" };
    child.tell(&format!(
        "{task} {}",
        invitation(&doomed.addresses, &side.region(), armed.key)
    ));
    let fabric = side.fabric.clone();
    within(async {
        while fabric.stats().immediates.get() < 50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    if task == "some" {
        assert_eq!(child.line(), "sent");
    }
    child.kill();
    let inbox = side.fabric.open_inbox().await.unwrap();
    let other = side
        .fabric
        .arm(inbox.endpoint, PIECES.into())
        .await
        .unwrap();
    let mut peer = Process::start("send", &[(PROVIDER, provider)]);
    within(side.fabric.close(doomed.endpoint)).await.unwrap();
    peer.tell(&format!(
        "all {}",
        invitation(&inbox.addresses, &side.region(), other.key)
    ));
    loop {
        match side.event().await {
            FabricEvent::Full { armed, .. } if armed == other.key => break,
            FabricEvent::EndpointFailed { endpoint, .. } => assert_eq!(endpoint, doomed.endpoint),
            unexpected => panic!("{unexpected:?}"),
        }
    }
    let mut bytes = vec![0; ARENA];
    side.memory.read(0, &mut bytes);
    assert!(bytes == pattern(42, ARENA));
    assert!(peer.wait());
}

#[tokio::test]
async fn shm_refuses_a_peer_in_its_own_process() {
    let side = Side::open(options("shm"), 1 << 20);
    let inbox = side.fabric.open_inbox().await.unwrap();
    let refused = side.fabric.open_outbox(&inbox.addresses).await;
    assert_eq!(refused, Err(FabricError::SameProcess));
    side.fabric.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_a_killed_process_left_in_dev_shm_goes_with_the_next_opening() {
    let receiver = Receiver::start(&options("shm"), ARENA);
    let inbox = receiver.open_inbox().await;
    let name = String::from_utf8(inbox.addresses.concat()).unwrap();
    let name = name
        .trim_end_matches('\0')
        .trim_start_matches("fi_shm://")
        .to_owned();
    let left = std::path::Path::new("/dev/shm").join(name);
    assert!(left.exists(), "{left:?}");
    receiver.kill();
    let memory = Arc::new(HostMemory::create("fabric-test", 4096).unwrap());
    let (fabric, _events) = Fabric::open(options("shm"), memory).unwrap();
    assert!(!left.exists());
    fabric.shutdown().await.unwrap();
    drop(receiver);
    tandem_fabric::shm::remove_leftovers().unwrap();
}
