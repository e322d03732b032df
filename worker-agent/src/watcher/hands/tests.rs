//! Over two real fabrics, and a listener that never answers.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::EndpointId;
use tandem_core::immediate::{Immediate, SlotKey};
use tandem_fabric::{Fabric, FabricEvent, FabricEvents, FabricOptions, FlowEnded};
use tandem_memory::HostMemory;

use super::*;

const LIVE: FlowId = FlowId(1);
const STUCK: FlowId = FlowId(2);
/// More than a flow may have queued in a fabric.
const WRITES: u32 = 3000;
const SHORT: Duration = Duration::from_millis(1);

struct Rig {
    from: Fabric,
    events: FabricEvents,
    into: Fabric,
    counted: FabricEvents,
    /// Of the inbox of `into`.
    address: Vec<u8>,
    key: SlotKey,
    hands: Hands,
}

fn fabric() -> (Fabric, FabricEvents) {
    let options = FabricOptions {
        post_timeout: Duration::from_secs(60),
        ..FabricOptions::default()
    };
    let memory = HostMemory::create("hands", 4096).unwrap();
    Fabric::open(options, Arc::new(memory)).unwrap()
}

impl Rig {
    async fn open() -> Self {
        let ((from, events), (into, counted)) = (fabric(), fabric());
        let inbox = into.open_inbox().await.unwrap();
        let armed = into.arm(inbox.endpoint, u64::from(WRITES)).await.unwrap();
        let rig = Self {
            hands: Hands::new(vec![from.pusher()]),
            from,
            events,
            into,
            counted,
            address: inbox.addresses[0].clone(),
            key: armed.key,
        };
        let outbox = rig.outbox(&rig.address).await;
        rig.flow(LIVE, outbox).await;
        rig
    }

    async fn outbox(&self, address: &[u8]) -> EndpointId {
        self.from.open_outbox(&[address.to_vec()]).await.unwrap()
    }

    async fn flow(&self, flow: FlowId, outbox: EndpointId) {
        let region = self.into.info().region();
        self.from.open_flow(flow, outbox, region).await.unwrap();
    }

    fn write(&mut self, flow: FlowId) {
        let write = Write {
            flow,
            local_offset: 0,
            remote_offset: 0,
            len: 64,
            immediate: Immediate::new(self.key, 1),
        };
        self.hands.write(0, write);
    }

    /// Tries again until nothing of the flow is kept.
    async fn taken(&mut self, flow: FlowId) {
        while self.hands.keeps(flow) {
            tokio::time::sleep(SHORT).await;
            self.hands.retry();
        }
    }

    async fn ended(&mut self) -> FlowEnded {
        match self.events.recv().await {
            Some(FabricEvent::FlowEnded(ended)) => ended,
            other => panic!("{other:?}"),
        }
    }

    async fn posted(&self, writes: u64) {
        while self.from.stats().writes_posted.get() < writes {
            tokio::time::sleep(SHORT).await;
        }
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let long = Duration::from_secs(50);
    tokio::time::timeout(long, future).await.expect("in time")
}

#[tokio::test]
async fn a_stuck_flow_holds_up_no_other_and_loses_nothing_of_it() {
    let mut rig = within(Rig::open()).await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut address = rig.address.clone();
    // sockaddr_in: family, port, address.
    address[2..4].copy_from_slice(&silent.local_addr().unwrap().port().to_be_bytes());
    let outbox = within(rig.outbox(&address)).await;
    within(rig.flow(STUCK, outbox)).await;
    for write in 0..WRITES {
        rig.write(STUCK);
        rig.write(LIVE);
        if write % 100 == 99 {
            rig.hands.flush();
            rig.hands.retry();
        }
    }
    rig.hands.seal(0, STUCK);
    rig.hands.seal(0, LIVE);
    rig.hands.flush();
    within(rig.taken(LIVE)).await;
    // A write behind the seal would have failed the flow.
    let ended = within(rig.ended()).await.ended;
    assert_eq!(
        (ended.flow, ended.complete, ended.writes),
        (LIVE, true, WRITES)
    );
    let counted = within(rig.counted.recv()).await;
    assert!(
        matches!(counted, Some(FabricEvent::Full { .. })),
        "{counted:?}"
    );
    assert!(rig.hands.keeps(STUCK), "its queue has room for 1024 only");
    // Once it is stopped the fabric takes, and drops, what was kept.
    within(rig.from.stop(STUCK)).await.unwrap();
    within(rig.taken(STUCK)).await;
    assert!(rig.hands.is_empty());
}

#[tokio::test]
async fn the_first_write_after_a_look_goes_out_before_the_batch_behind_it() {
    let mut rig = within(Rig::open()).await;
    for look in 0..2 {
        for _ in 0..5 {
            rig.write(LIVE);
        }
        within(rig.posted(5 * look + 1)).await;
        tokio::time::sleep(20 * SHORT).await;
        assert_eq!(rig.from.stats().writes_posted.get(), 5 * look + 1);
        rig.hands.flush();
        within(rig.posted(5 * look + 5)).await;
    }
}

#[tokio::test]
async fn nothing_is_kept_for_a_fabric_that_has_ended() {
    let mut rig = within(Rig::open()).await;
    within(rig.from.clone().shutdown()).await.unwrap();
    rig.write(LIVE);
    rig.hands.flush();
    rig.hands.seal(0, LIVE);
    assert!(rig.hands.is_empty());
}
