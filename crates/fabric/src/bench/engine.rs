//! The engine: page numbers, planned writes, [`crate::Pusher`], the fabric's thread, and the count at
//! an inbox, as between two workers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::FlowId;
use tandem_core::immediate::{Immediate, SlotKey};
use tandem_core::plan::PlannedWrite;
use tandem_memory::HostMemory;

use super::BenchError;
use super::case::Case;
use super::meeting::Meeting;
use super::message::Invitation;
use super::patience::{Patience, block_on, event};
use super::workload::{Part, Workload};
use crate::driver::command::{RegionKey, Write};
use crate::error::FabricError;
use crate::event::FabricEvent;
use crate::handle::{Fabric, FabricEvents};
use crate::pusher::Pusher;

/// Where the fabric takes no more for now: a thousand writes are queued, so there is no hurry.
const NAP: Duration = Duration::from_millis(1);

/// What a fabric's inbox is called elsewhere.
pub(super) fn name(fabric: &Fabric, addresses: Vec<Vec<u8>>, slots: Vec<u32>) -> Invitation {
    let info = fabric.info();
    let key = |nic: &crate::NicInfo| {
        let RegionKey { base, key } = nic.name;
        (base, key)
    };
    Invitation {
        addresses,
        keys: info.nics.iter().map(key).collect(),
        len: info.len,
        slots,
        port: 0,
    }
}

pub(super) fn slot_keys(bits: &[u32]) -> Result<Vec<SlotKey>, BenchError> {
    let keys: Option<_> = bits.iter().map(|b| SlotKey::from_bits(*b)).collect();
    keys.ok_or_else(|| BenchError::Protocol("no slot key".into()))
}

/// The sending side, with a flow for each part.
pub(super) struct EngineSender {
    fabric: Fabric,
    events: FabricEvents,
    pusher: Pusher,
    keys: Vec<SlotKey>,
}

const fn flow(part: Part) -> FlowId {
    FlowId(1 + part as u64)
}

impl EngineSender {
    pub(super) fn open(
        case: &Case,
        nic_names: &[String],
        memory: &Arc<HostMemory>,
        to: &Invitation,
        meeting: &mut Meeting,
    ) -> Result<Self, BenchError> {
        let options = case.options(meeting.local()?, nic_names);
        let (fabric, events) = Fabric::open(options, Arc::clone(memory))?;
        let keys = slot_keys(&to.slots)?;
        if keys.len() != Part::ALL.len() {
            return Err(BenchError::Protocol(
                "a slot for each part is missing".into(),
            ));
        }
        let outbox = block_on(meeting, fabric.open_outbox(&to.addresses))??;
        for part in Part::ALL {
            block_on(meeting, fabric.open_flow(flow(part), outbox, to.region()))??;
        }
        Ok(Self {
            pusher: fabric.pusher(),
            fabric,
            events,
            keys,
        })
    }

    /// Plans and pushes a part and waits for its completions; returns how many writes it took.
    pub(super) fn push(
        &mut self,
        load: &Workload,
        part: Part,
        meeting: &mut Meeting,
    ) -> Result<u64, BenchError> {
        let flow = flow(part);
        let write = |planned: PlannedWrite| Write {
            flow,
            local_offset: planned.source,
            remote_offset: planned.target,
            len: planned.bytes,
            immediate: Immediate::new(self.keys[part as usize], planned.pieces),
        };
        for pages in load.passes(part) {
            let writes: Vec<Write> = load.writes(pages).into_iter().map(write).collect();
            post(&self.pusher, &writes, meeting)?;
        }
        block_on(meeting, self.fabric.seal(flow))??;
        loop {
            match event(meeting, &mut self.events)? {
                FabricEvent::FlowEnded(end) if end.ended.flow == flow => {
                    if end.ended.complete {
                        return Ok(end.ended.writes.into());
                    }
                    return Err(BenchError::Write(end.error.unwrap_or_default()));
                }
                _ => {}
            }
        }
    }

    pub(super) fn close(self, meeting: &mut Meeting) -> Result<(), BenchError> {
        Ok(block_on(meeting, self.fabric.shutdown())??)
    }
}

/// Posts writes, waiting for room.
pub(super) fn post(
    pusher: &Pusher,
    mut writes: &[Write],
    meeting: &mut Meeting,
) -> Result<(), BenchError> {
    let mut patience = Patience::new();
    loop {
        let posted = pusher.post_many(writes);
        writes = &writes[posted..];
        if writes.is_empty() {
            return Ok(());
        }
        if pusher.is_closed() {
            return Err(FabricError::Closed.into());
        }
        if posted > 0 {
            patience.moved();
        }
        std::thread::sleep(NAP);
        patience.check(meeting)?;
    }
}

/// The receiving side, with a slot for each part.
pub(super) struct EngineReceiver {
    fabric: Fabric,
    events: FabricEvents,
    name: Invitation,
}

impl EngineReceiver {
    pub(super) fn open(
        case: &Case,
        bind: IpAddr,
        nic_names: &[String],
        memory: &Arc<HostMemory>,
        load: &Workload,
        meeting: &mut Meeting,
    ) -> Result<Self, BenchError> {
        let options = case.options(bind, nic_names);
        let (fabric, events) = Fabric::open(options, Arc::clone(memory))?;
        let inbox = block_on(meeting, fabric.open_inbox())??;
        let mut slots = Vec::new();
        for part in Part::ALL {
            let armed = block_on(meeting, fabric.arm(inbox.endpoint, load.expected(part)))??;
            slots.push(armed.key.to_bits());
        }
        let name = name(&fabric, inbox.addresses, slots);
        Ok(Self {
            fabric,
            events,
            name,
        })
    }

    pub(super) fn invitation(&self) -> Invitation {
        self.name.clone()
    }

    /// Waits until a part's count is full.
    pub(super) fn count(&mut self, part: Part, meeting: &mut Meeting) -> Result<(), BenchError> {
        match event(meeting, &mut self.events)? {
            FabricEvent::Full { armed, .. }
                if armed.to_bits() == self.name.slots[part as usize] =>
            {
                Ok(())
            }
            other => Err(BenchError::Write(format!("unexpected: {other:?}"))),
        }
    }

    pub(super) fn close(self, meeting: &mut Meeting) -> Result<(), BenchError> {
        Ok(block_on(meeting, self.fabric.shutdown())??)
    }
}
