//! A measure for the engine: the leanest correct loop of `fi_writemsg`, and the same push through
//! [`crate::Fabric`], with the same provider, flags, window, arena and pattern of offsets.
//!
//! Each is a pair of functions for two processes that meet over a TCP stream: the receiver sends
//! its address and region, the sender measures from the first write that the provider took (so
//! without the connection's set-up) to its last completion (which, with `FI_DELIVERY_COMPLETE`, is
//! the target's word), the receiver counts. Runs are meaningful only against each other and on one
//! machine at one time.
//!
//! The bare loop yields the core where it finds nothing. One that spins hard is no fair measure on
//! a machine with as many busy threads as cores: there it starves its own other half.

mod engine;
mod meeting;

pub use engine::{engine_push, engine_receive};

use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libfabric_sys as sys;
use tandem_memory::{HostMemory, Memory};

use crate::driver::contexts::Contexts;
use crate::error::{CallError, Errno, FabricError, OpenError};
use crate::open;
use crate::options::FabricOptions;
use crate::safe::domain::Domain;
use crate::safe::endpoint::{BATCH, Endpoint, RawWrite, Read};
use meeting::Invitation;

/// Both arenas, in bytes. Pieces are written round and round.
pub const ARENA: usize = 64 << 20;
/// Without a completion for so long, a run has failed.
const STUCK: Duration = Duration::from_secs(30);

/// What to push.
#[derive(Clone, Debug)]
pub struct Load {
    /// As in [`FabricOptions::provider`].
    pub provider: String,
    /// Bytes per write, at most [`ARENA`].
    pub piece: usize,
    /// Writes.
    pub pieces: usize,
    /// Writes in flight.
    pub window: u32,
}

/// What a push took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BareReport {
    /// Bytes written.
    pub bytes: u64,
    /// From the first post to the last completion.
    pub seconds: f64,
}

impl BareReport {
    /// Bytes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum BareError {
    /// The provider could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The fabric refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The other process is gone, or sent nonsense.
    #[error("the rendezvous failed: {0}")]
    Meeting(#[from] std::io::Error),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] tandem_memory::CreateError),
    /// A write failed, or the run stands still.
    #[error("{0}")]
    Run(String),
}

impl Load {
    fn options(&self) -> FabricOptions {
        FabricOptions {
            provider: self.provider.clone(),
            in_flight_writes: self.window,
            ..FabricOptions::default()
        }
    }

    fn offset(&self, i: usize) -> usize {
        (i % (ARENA / self.piece)) * self.piece
    }

    fn report(&self, elapsed: Duration) -> BareReport {
        BareReport {
            bytes: (self.piece * self.pieces) as u64,
            seconds: elapsed.as_secs_f64(),
        }
    }
}

fn open(load: &Load) -> Result<(Rc<Domain>, Endpoint), BareError> {
    let memory = Arc::new(HostMemory::create("bare", ARENA)?);
    // Touched, so that the run pays for no page faults.
    memory.write(0, &vec![1; ARENA]);
    let options = load.options();
    let memory: Arc<dyn Memory> = memory;
    let mut domains = open::open_domains(&options, &memory)?;
    let domain = Rc::new(domains.remove(0));
    let endpoint = Endpoint::open(Rc::clone(&domain), options.completion_entries)?;
    Ok((domain, endpoint))
}

/// Sends: posts while the window has room, polls when it has none.
pub fn bare_push(load: &Load, peer: &mut TcpStream) -> Result<BareReport, BareError> {
    let (domain, endpoint) = open(load)?;
    let invitation = Invitation::read(peer)?;
    let address = endpoint.insert(&invitation.address)?;
    let window = (load.window as usize).min(domain.limits.tx_size).max(1);
    let mut contexts = Contexts::new(window);
    // SAFETY: numbers and pointers, all of which may be zero.
    let mut entries: [sys::fi_cq_data_entry; BATCH] = unsafe { std::mem::zeroed() };
    let (mut posted, mut done) = (0, 0);
    let mut started = None;
    let mut last = Instant::now();
    while done < load.pieces {
        while posted < load.pieces {
            let Some(context) = contexts.take(()) else {
                break;
            };
            let offset = load.offset(posted);
            let write = RawWrite {
                local_offset: offset,
                len: load.piece,
                peer: address,
                address: invitation.base + offset as u64,
                key: invitation.key,
                immediate: 1,
                context,
            };
            // SAFETY: `offset` keeps the piece inside the arena; the cells outlive the endpoint's
            // use of them, since this loop leaves early only towards the end of the process.
            match unsafe { endpoint.write(&write) } {
                Ok(()) => {
                    started.get_or_insert_with(Instant::now);
                    posted += 1;
                }
                Err(Errno::AGAIN) => {
                    contexts.give_back(context);
                    break;
                }
                Err(errno) => {
                    return Err(CallError {
                        call: "fi_writemsg",
                        errno,
                    }
                    .into());
                }
            }
        }
        match endpoint.read(&mut entries) {
            Read::Entries(n) => {
                for entry in &entries[..n] {
                    done += usize::from(contexts.give_back(entry.op_context).is_some());
                }
                last = Instant::now();
            }
            Read::Empty if last.elapsed() > STUCK => return Err(stuck()),
            Read::Empty => std::thread::yield_now(),
            Read::Error(error) => return Err(BareError::Run(error.text)),
            Read::Broken(errno) => {
                return Err(CallError {
                    call: "fi_cq_read",
                    errno,
                }
                .into());
            }
        }
    }
    meeting::say_done(peer)?;
    drop(endpoint);
    Ok(load.report(last.duration_since(started.unwrap_or(last))))
}

/// Receives: polls and counts.
pub fn bare_receive(load: &Load, peer: &mut TcpStream) -> Result<(), BareError> {
    let (domain, endpoint) = open(load)?;
    let address = endpoint.address()?;
    Invitation {
        address,
        base: domain.base(),
        key: domain.key(),
        slot: 0,
    }
    .write(peer)?;
    // SAFETY: numbers and pointers, all of which may be zero.
    let mut entries: [sys::fi_cq_data_entry; BATCH] = unsafe { std::mem::zeroed() };
    let mut count = 0u64;
    let mut last = Instant::now();
    while count < load.pieces as u64 {
        match endpoint.read(&mut entries) {
            Read::Entries(n) => {
                let remote = u64::from(sys::FI_REMOTE_CQ_DATA);
                let counted = entries[..n].iter().filter(|e| e.flags & remote != 0);
                count += counted.map(|e| e.data).sum::<u64>();
                last = Instant::now();
            }
            Read::Empty if last.elapsed() > STUCK => return Err(stuck()),
            Read::Empty => std::thread::yield_now(),
            Read::Error(error) => return Err(BareError::Run(error.text)),
            Read::Broken(errno) => {
                return Err(CallError {
                    call: "fi_cq_read",
                    errno,
                }
                .into());
            }
        }
    }
    // Acknowledgements of the last writes may need this side's progress.
    meeting::until_done(peer, || drop(endpoint.read(&mut entries)))?;
    Ok(())
}

fn stuck() -> BareError {
    BareError::Run(format!("nothing has completed for {STUCK:?}"))
}
