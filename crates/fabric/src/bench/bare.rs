//! The bare loop: posts while the windows have room, polls when they have none, and nothing else.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use libfabric_sys as sys;
use tandem_core::plan::PlannedWrite;
use tandem_memory::{HostMemory, Memory};

use super::BenchError;
use super::case::Case;
use super::meeting::Meeting;
use super::message::{Invitation, Word};
use super::patience::{Patience, STUCK};
use crate::driver::contexts::Contexts;
use crate::driver::port::outbox_entries;
use crate::driver::room::QueueSize;
use crate::error::{CallError, Errno};
use crate::open;
use crate::provider::is_software;
use crate::safe::endpoint::{BATCH, Endpoint, RawWrite, Read};

/// One NIC's endpoint.
struct Port {
    // Closed before the cells that the provider writes into: fields drop in this order.
    endpoint: Endpoint,
    contexts: Contexts<()>,
    peer: u64,
    /// The peer's arena, as its NIC of the same number names it.
    base: u64,
    key: u64,
}

/// One side.
pub(super) struct Bare {
    ports: Vec<Port>,
    /// Where the next write goes, if it has room.
    turn: usize,
    name: Invitation,
    entries: [sys::fi_cq_data_entry; BATCH],
}

/// What a look at the completion queues gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Polled {
    /// Own writes that completed.
    pub(super) completed: usize,
    /// Writes of the other that arrived, and the sum of their immediates.
    pub(super) arrived: usize,
    pub(super) weight: u64,
}

impl Polled {
    pub(super) const fn is_empty(&self) -> bool {
        self.completed == 0 && self.arrived == 0
    }
}

impl Bare {
    pub(super) fn open(
        case: &Case,
        bind: IpAddr,
        nic_names: &[String],
        memory: &Arc<HostMemory>,
    ) -> Result<Self, BenchError> {
        let options = case.options(bind, nic_names);
        let memory: Arc<dyn Memory> = Arc::<HostMemory>::clone(memory);
        let mut name = Invitation {
            len: memory.len() as u64,
            ..Invitation::default()
        };
        let mut ports = Vec::new();
        let domains = open::open_domains(&options, &memory)?;
        // The engine's window is that of its narrowest NIC.
        let narrowest = domains.iter().map(|d| d.limits.tx_size).min();
        let window = (case.window as usize).min(narrowest.unwrap_or(1)).max(1);
        for domain in domains {
            let domain = Rc::new(domain);
            // As long as an inbox's; it sends, too, which the window bounds.
            let software = is_software(&domain.info.provider());
            let entries = QueueSize::of(options.completion_entries, software).entries;
            let entries = entries.max(outbox_entries(window));
            let endpoint = Endpoint::open(Rc::clone(&domain), entries)?;
            name.addresses.push(endpoint.address()?);
            name.keys.push((domain.base(), domain.key()));
            ports.push(Port {
                endpoint,
                contexts: Contexts::new(window),
                peer: 0,
                base: 0,
                key: 0,
            });
        }
        Ok(Self {
            ports,
            turn: 0,
            name,
            // SAFETY: numbers and pointers, all of which may be zero.
            entries: unsafe { std::mem::zeroed() },
        })
    }

    /// Where the other may write.
    pub(super) fn invitation(&self) -> Invitation {
        self.name.clone()
    }

    /// Learns where to write.
    pub(super) fn connect(&mut self, to: &Invitation) -> Result<(), BenchError> {
        let there = to.addresses.iter().zip(&to.keys);
        for (port, (address, (base, key))) in self.ports.iter_mut().zip(there) {
            port.peer = port.endpoint.insert(address)?;
            (port.base, port.key) = (*base, *key);
        }
        Ok(())
    }

    /// Posts one write. False where no window has room or the provider takes none now.
    pub(super) fn post(&mut self, write: &PlannedWrite, data: u32) -> Result<bool, BenchError> {
        for _ in 0..self.ports.len() {
            let port = &mut self.ports[self.turn];
            self.turn = (self.turn + 1) % self.name.addresses.len();
            let Some(context) = port.contexts.take(()) else {
                continue;
            };
            let raw = RawWrite {
                local_offset: write.source as usize,
                len: write.bytes as usize,
                peer: port.peer,
                address: port.base + write.target,
                key: port.key,
                immediate: data,
                context,
            };
            // SAFETY: planned writes lie inside arenas of the case's size, which both sides have
            // (`Invitation::check`); the cells outlive the endpoint, by the order of `Port`'s
            // fields.
            match unsafe { port.endpoint.write(&raw) } {
                Ok(()) => return Ok(true),
                Err(Errno::AGAIN) => drop(port.contexts.give_back(context)),
                Err(errno) => return Err(failed("fi_writemsg", errno)),
            }
        }
        Ok(false)
    }

    /// Reads what has completed and arrived, and drives the provider.
    pub(super) fn poll(&mut self) -> Result<Polled, BenchError> {
        let mut polled = Polled::default();
        for port in &mut self.ports {
            match port.endpoint.read(&mut self.entries) {
                Read::Entries(n) => {
                    for entry in &self.entries[..n] {
                        if entry.flags & u64::from(sys::FI_REMOTE_CQ_DATA) != 0 {
                            polled.arrived += 1;
                            polled.weight += entry.data;
                        } else if port.contexts.give_back(entry.op_context).is_some() {
                            polled.completed += 1;
                        }
                    }
                }
                Read::Empty => {}
                Read::Error(error) => return Err(BenchError::Write(error.text)),
                Read::Broken(errno) => return Err(failed("fi_cq_read", errno)),
            }
        }
        Ok(polled)
    }

    /// Posts all writes and waits for their completions.
    pub(super) fn push(
        &mut self,
        passes: &[Vec<PlannedWrite>],
        meeting: &mut Meeting,
    ) -> Result<u64, BenchError> {
        let total: usize = passes.iter().map(Vec::len).sum();
        let mut writes = passes.iter().flatten();
        let mut next = writes.next();
        let mut done = 0;
        let mut patience = Patience::new();
        while done < total {
            while let Some(write) = next {
                if !self.post(write, u32::from(write.pieces))? {
                    break;
                }
                next = writes.next();
            }
            match self.poll()?.completed {
                0 => {
                    patience.check(meeting)?;
                    std::thread::yield_now();
                }
                n => {
                    done += n;
                    patience.moved();
                }
            }
        }
        Ok(total as u64)
    }

    /// Polls until the other's immediates have come to this sum.
    pub(super) fn count(&mut self, sum: u64, meeting: &mut Meeting) -> Result<(), BenchError> {
        let mut weight = 0;
        let mut patience = Patience::new();
        while weight < sum {
            match self.poll()?.weight {
                0 => {
                    patience.check(meeting)?;
                    std::thread::yield_now();
                }
                n => {
                    weight += n;
                    patience.moved();
                }
            }
        }
        Ok(())
    }

    /// The other's next message; meanwhile its last writes, or acknowledgements of the own ones, may
    /// need this side's progress.
    pub(super) fn hear(&mut self, meeting: &mut Meeting) -> Result<Word, BenchError> {
        let started = Instant::now();
        while started.elapsed() < STUCK {
            self.poll()?;
            if let Some(word) = meeting.poll()? {
                return Ok(word);
            }
            std::thread::yield_now();
        }
        Err(BenchError::Stuck(STUCK))
    }
}

fn failed(call: &'static str, errno: Errno) -> BenchError {
    CallError { call, errno }.into()
}
