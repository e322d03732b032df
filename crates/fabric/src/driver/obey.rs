//! Obeying commands.

use tandem_core::ledger::Armed;
use tandem_core::{EndpointId, FlowId};

use super::Driver;
use super::command::{Control, Inbox, RemoteRegion};
use super::inbox::InboxState;
use super::outbox::OutboxState;
use crate::error::{ArmError, FabricError};
use crate::options::MAX_NICS;
use crate::safe::endpoint::Endpoint;

impl Driver {
    pub(super) fn obey(&mut self, command: Control) {
        match command {
            Control::OpenInbox(reply) => {
                let opened = self.open_inbox();
                if let Err(Ok(inbox)) = reply.send(opened) {
                    let _ = self.close(inbox.endpoint);
                }
            }
            Control::OpenOutbox(addresses, reply) => {
                let opened = self.open_outbox(&addresses);
                if let Err(Ok(endpoint)) = reply.send(opened) {
                    let _ = self.close(endpoint);
                }
            }
            Control::Close(endpoint, reply) => {
                let closed = self.close(endpoint);
                if let Some(reply) = reply {
                    let _ = reply.send(closed);
                }
            }
            Control::Arm(inbox, expected, reply) => {
                let armed = self.arm(inbox, expected);
                if let Err(Ok(armed)) = reply.send(armed) {
                    self.release(armed);
                }
            }
            Control::OpenFlow(flow, outbox, region, reply) => {
                let opened = self.open_flow(flow, outbox, region);
                let ok = opened.is_ok();
                if reply.send(opened).is_err() && ok {
                    self.stop(flow);
                }
            }
            Control::Stop(flow, reply) => {
                self.stop(flow);
                let _ = reply.send(());
            }
            // Taken before.
            Control::Shutdown(_) => {}
        }
    }

    fn next_endpoint(&mut self) -> EndpointId {
        self.next_endpoint += 1;
        EndpointId(self.next_endpoint)
    }

    fn open_inbox(&mut self) -> Result<Inbox, FabricError> {
        let id = self.next_endpoint();
        let inbox = InboxState::open(id, &self.domains, self.queue, self.options.disorder)?;
        let addresses: Result<_, _> = inbox.endpoints().map(Endpoint::address).collect();
        self.inboxes.push(inbox);
        Ok(Inbox {
            endpoint: id,
            addresses: addresses?,
        })
    }

    fn open_outbox(&mut self, addresses: &[Vec<u8>]) -> Result<EndpointId, FabricError> {
        let shm = self.domains.iter().any(|d| d.is_shm);
        if shm && addresses.iter().any(|a| crate::shm::is_own(a)) {
            return Err(FabricError::SameProcess);
        }
        if addresses.is_empty() || addresses.len() > MAX_NICS {
            return Err(FabricError::Nics(addresses.len()));
        }
        let id = self.next_endpoint();
        let outbox = OutboxState::open(id, &self.domains, addresses, self.window, &self.options)?;
        self.outboxes.push(outbox);
        Ok(id)
    }

    fn close(&mut self, id: EndpointId) -> Result<(), FabricError> {
        if let Some(at) = self.inboxes.iter().position(|i| i.id == id) {
            return Ok(self.inboxes.swap_remove(at).close()?);
        }
        let at = self.outboxes.iter().position(|o| o.id == id);
        let at = at.ok_or(FabricError::UnknownEndpoint(id))?;
        let (outboxes, entries, mut books) = self.outboxes();
        Ok(outboxes.swap_remove(at).close(entries, &mut books)?)
    }

    fn arm(&mut self, inbox: EndpointId, expected: u64) -> Result<Armed, ArmError> {
        if expected == 0 {
            return Err(ArmError::Nothing);
        }
        // Releases are on another queue and may be older than this command.
        self.take_releases();
        let found = self.inboxes.iter_mut().find(|i| i.id == inbox);
        let found = found.ok_or(FabricError::UnknownEndpoint(inbox))?;
        found.room.check(expected)?;
        let armed = self.slots.arm(inbox, expected)?;
        found.room.take(expected);
        Ok(armed)
    }

    pub(super) fn release(&mut self, armed: Armed) {
        let Some(released) = self.slots.release(armed, self.options.slots) else {
            return self.shared.stats.bad_releases.add(1);
        };
        let mut inboxes = self.inboxes.iter_mut();
        // It may be closed, and its queue with it.
        if let Some(inbox) = inboxes.find(|i| i.id == released.inbox) {
            inbox.room.give_back(released.pieces, released.all_read);
        }
    }

    fn open_flow(
        &mut self,
        flow: FlowId,
        outbox: EndpointId,
        region: RemoteRegion,
    ) -> Result<(), FabricError> {
        let found = self.outboxes.iter().find(|o| o.id == outbox);
        let found = found.ok_or(FabricError::UnknownEndpoint(outbox))?;
        if let Some(error) = found.failure() {
            return Err(FabricError::Failed {
                endpoint: outbox,
                error: error.to_owned(),
            });
        }
        if region.keys.len() != found.remote_nics() || !self.flows.addressable(&region) {
            return Err(FabricError::Region);
        }
        if !self.flows.open(flow, outbox, region) {
            return Err(FabricError::FlowInUse(flow));
        }
        Ok(())
    }

    fn stop(&mut self, flow: FlowId) {
        let Some(id) = self.flows.outbox(flow) else {
            return;
        };
        let (outboxes, _, mut books) = self.outboxes();
        if let Some(outbox) = outboxes.iter_mut().find(|o| o.id == id) {
            outbox.stop(flow, None, &mut books);
        }
    }
}
