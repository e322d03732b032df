//! An inbox at the receiver's side, for writes that another part of the program posts.

use std::net::IpAddr;
use std::sync::Arc;

use tandem_core::immediate::SlotKey;
use tandem_memory::HostMemory;

use super::BenchError;
use super::case::Case;
use super::engine::{name, slot_keys};
use super::meeting::{Meeting, unexpected};
use super::message::{Invitation, Word};
use super::patience::{STUCK, block_on, event};
use crate::driver::command::RemoteRegion;
use crate::event::FabricEvent;
use crate::handle::Fabric;

/// Where to write to, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// This side's address towards the receiver, for [`crate::FabricOptions::bind`].
    pub local: IpAddr,
    /// For [`Fabric::open_outbox`]: one for each NIC.
    pub addresses: Vec<Vec<u8>>,
    /// For [`Fabric::open_flow`].
    pub region: RemoteRegion,
    /// Of the armed slot.
    pub key: SlotKey,
}

impl Target {
    pub(super) fn of(invitation: &Invitation, local: IpAddr) -> Result<Self, BenchError> {
        let keys = slot_keys(&invitation.slots)?;
        let [key] = keys.as_slice() else {
            return Err(BenchError::Protocol("not one slot".into()));
        };
        Ok(Self {
            local,
            addresses: invitation.addresses.clone(),
            region: invitation.region(),
            key: *key,
        })
    }
}

/// The receiving side.
pub(super) fn answer(
    case: &Case,
    expected: u64,
    nic_names: &[String],
    meeting: &mut Meeting,
) -> Result<(), BenchError> {
    let memory = Arc::new(HostMemory::create("bench-target", case.arena_bytes())?);
    let options = case.options(meeting.local()?, nic_names);
    let (fabric, mut events) = Fabric::open(options, memory)?;
    let inbox = block_on(meeting, fabric.open_inbox())??;
    let armed = block_on(meeting, fabric.arm(inbox.endpoint, expected))??;
    let slots = vec![armed.key.to_bits()];
    meeting.say(&Word::Ready(name(&fabric, inbox.addresses, slots)))?;
    match event(meeting, &mut events)? {
        FabricEvent::Full { .. } => meeting.say(&Word::Full)?,
        other => return Err(BenchError::Write(format!("unexpected: {other:?}"))),
    }
    match meeting.hear(STUCK)? {
        Word::Done => {}
        other => return Err(unexpected(&other)),
    }
    Ok(block_on(meeting, fabric.shutdown())??)
}
