//! Two fabrics with an arena each, and a session between them.

use std::sync::Arc;
use std::time::Duration;

use tandem_core::{EndpointId, FlowId};
use tandem_fabric::{
    Fabric, FabricEvent, FabricEvents, FabricOptions, FlowEnded, Immediate, Inbox, Pusher,
    RemoteRegion, Write,
};
use tandem_memory::HostMemory;

use crate::remote::Receiver;

/// Longer than any healthy machine takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn options(provider: &str) -> FabricOptions {
    FabricOptions {
        provider: provider.into(),
        ..FabricOptions::default()
    }
}

/// A fabric, its events and its arena.
pub(crate) struct Side {
    pub(crate) fabric: Fabric,
    pub(crate) events: FabricEvents,
    pub(crate) memory: Arc<HostMemory>,
}

impl Side {
    pub(crate) fn open(options: FabricOptions, bytes: usize) -> Self {
        let memory = Arc::new(HostMemory::create("fabric-test", bytes).unwrap());
        let (fabric, events) = Fabric::open(options, Arc::clone(&memory)).unwrap();
        Self {
            fabric,
            events,
            memory,
        }
    }

    pub(crate) fn region(&self) -> RemoteRegion {
        self.fabric.info().region()
    }

    pub(crate) async fn event(&mut self) -> FabricEvent {
        let event = within(self.events.recv()).await;
        event.expect("the fabric's thread lives")
    }

    pub(crate) async fn flow_ended(&mut self) -> FlowEnded {
        loop {
            match self.event().await {
                FabricEvent::FlowEnded(ended) => return ended,
                FabricEvent::EndpointFailed { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A sender, a receiver, and one session.
pub(crate) struct Pair {
    pub(crate) from: Side,
    pub(crate) into: Receiver,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: EndpointId,
}

impl Pair {
    pub(crate) async fn open(provider: &str, bytes: usize) -> Self {
        Self::with(options(provider), bytes).await
    }

    /// With as many NICs on either side.
    pub(crate) async fn with_nics(provider: &str, bytes: usize, nics: (usize, usize)) -> Self {
        let with = |nics| FabricOptions {
            nics: vec![None; nics],
            // A NIC whose window is full is passed over: here none ever is.
            in_flight_writes: 256,
            ..options(provider)
        };
        let into = Receiver::open(&with(nics.1), bytes);
        let from = Side::open(with(nics.0), bytes);
        let inbox = into.open_inbox().await;
        let outbox = from.fabric.open_outbox(&inbox.addresses).await.unwrap();
        Self {
            from,
            into,
            inbox,
            outbox,
        }
    }

    pub(crate) async fn with(options: FabricOptions, bytes: usize) -> Self {
        let into = Receiver::open(&options, bytes);
        let from = Side::open(options, bytes);
        let inbox = into.open_inbox().await;
        let outbox = from.fabric.open_outbox(&inbox.addresses).await.unwrap();
        Self {
            from,
            into,
            inbox,
            outbox,
        }
    }

    pub(crate) async fn flow(&self, id: u64) -> FlowId {
        let id = FlowId(id);
        self.from
            .fabric
            .open_flow(id, self.outbox, self.into.region())
            .await
            .unwrap();
        id
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("in time")
}

/// Posts, waiting for room.
pub(crate) async fn post(pusher: &Pusher, write: Write) {
    let mut write = write;
    let posted = async {
        while let Err(back) = pusher.post(write) {
            assert!(!pusher.is_closed());
            write = back;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(posted).await;
}

/// A write from an offset to the same offset.
pub(crate) fn same_place(flow: FlowId, offset: u64, len: u32, imm: Immediate) -> Write {
    Write {
        flow,
        local_offset: offset,
        remote_offset: offset,
        len,
        immediate: imm,
    }
}

/// Bytes that differ by place and by seed.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mix = |i: u64| (i ^ seed.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (0..bytes as u64).map(|i| mix(i) as u8).collect()
}

pub(crate) fn bytes_of(memory: &HostMemory, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes);
    bytes
}

/// Waits until something holds.
pub(crate) async fn until(what: impl Fn() -> bool) {
    within(async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
