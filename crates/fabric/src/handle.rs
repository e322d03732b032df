//! The handles by which everyone else talks to the fabric's thread.

use std::sync::{Arc, mpsc as std_mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use tandem_core::ledger::Armed;
use tandem_core::{EndpointId, FlowId};
use tandem_memory::Memory;
use tokio::sync::{mpsc, oneshot};

use crate::cpu::pin;
use crate::credit::Credits;
use crate::driver::command::{Control, Inbox, Push, RemoteRegion};
use crate::driver::outlet::Outlet;
use crate::driver::{Driver, Queues};
use crate::error::{ArmError, FabricError, OpenError};
use crate::event::FabricEvent;
use crate::info::FabricInfo;
use crate::open;
use crate::options::FabricOptions;
use crate::pusher::Pusher;
use crate::shared::{Pulse, Shared};
use crate::stats::{FabricStats, NicStats};
use crate::wake::Wake;

/// Commands that wait for the thread.
const CONTROLS: usize = 256;
/// Writes and seals on their way to the thread, of all flows.
const PUSHES: usize = 8192;
/// Events that wait for their reader before the thread stashes them.
const EVENTS: usize = 1024;

/// An open fabric: a cheap handle to the thread that owns it. When the last clone is dropped, the
/// thread closes everything and ends, which the drop waits for (milliseconds; a task of a runtime
/// calls [`Fabric::shutdown`] before). A process that exits without either leaves files in
/// `/dev/shm` where the provider is `shm`.
#[derive(Clone, Debug)]
pub struct Fabric {
    control: mpsc::Sender<Control>,
    releases: mpsc::Sender<Armed>,
    pushes: mpsc::Sender<Push>,
    shared: Arc<Shared>,
    info: Arc<FabricInfo>,
    // Last, so that this handle's channels are closed when it goes.
    _thread: Arc<Thread>,
}

/// The thread; ends with the last handle.
#[derive(Debug)]
struct Thread {
    shared: Arc<Shared>,
    handle: Option<std::thread::JoinHandle<()>>,
}

/// A thread that does not end in so long hangs inside libfabric, and is left behind (with the
/// memory that it may still write to).
const ENDING: Duration = Duration::from_secs(5);

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.wake.wake();
        let Some(handle) = self.handle.take() else {
            return;
        };
        let started = Instant::now();
        while !handle.is_finished() {
            if started.elapsed() > ENDING {
                tracing::error!("the fabric thread hangs inside libfabric");
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        if handle.join().is_err() {
            tracing::error!("the fabric thread has panicked");
        }
    }
}

/// What the fabric reports by itself, for one reader.
#[derive(Debug)]
pub struct FabricEvents(mpsc::Receiver<FabricEvent>);

impl FabricEvents {
    /// The next event; `None` when the fabric's thread has ended. Can be cancelled.
    pub async fn recv(&mut self) -> Option<FabricEvent> {
        self.0.recv().await
    }

    /// As [`FabricEvents::recv`], for who waits for several.
    pub fn poll_recv(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Option<FabricEvent>> {
        self.0.poll_recv(cx)
    }

    /// An event that is there already.
    pub fn try_recv(&mut self) -> Option<FabricEvent> {
        self.0.try_recv().ok()
    }

    /// As [`FabricEvents::recv`], for threads outside any runtime.
    pub fn blocking_recv(&mut self) -> Option<FabricEvent> {
        self.0.blocking_recv()
    }
}

impl Fabric {
    /// Opens a provider, registers the memory and starts the thread `tandem-fabric`. Blocks for
    /// that long (registration pins memory on RDMA hardware). The memory is held until the thread
    /// has ended.
    pub fn open<M: Memory>(
        options: FabricOptions,
        memory: Arc<M>,
    ) -> Result<(Self, FabricEvents), OpenError> {
        open::check(&options)?;
        let shared = Arc::new(Shared {
            stats: FabricStats::default(),
            nics: options.nics.iter().map(|_| NicStats::default()).collect(),
            credits: Credits::new(),
            wake: Wake::new()?,
            pulse: Pulse::new(),
        });
        let (control, control_out) = mpsc::channel(CONTROLS);
        let (releases, releases_out) = mpsc::channel(usize::from(options.slots) * 2);
        let (pushes, pushes_out) = mpsc::channel(PUSHES);
        let (events, events_out) = mpsc::channel(EVENTS);
        let queues = Queues {
            control: control_out,
            releases: releases_out,
            pushes: pushes_out,
        };
        let (opened, info) = std_mpsc::channel();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("tandem-fabric".into());
        let handle = thread.spawn(move || {
            let start = || -> Result<_, OpenError> {
                pin(options.cpu)?;
                let memory: Arc<dyn Memory> = memory;
                let domains = open::open_domains(&options, &memory)?;
                let info = open::describe(&domains, &options);
                Ok((domains, info))
            };
            match start() {
                Ok((domains, info)) => {
                    if opened.send(Ok(info)).is_ok() {
                        let outlet = Outlet::new(events);
                        Driver::new(domains, queues, outlet, theirs, options).run();
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        })?;
        let died = || std::io::Error::other("the fabric thread died while opening");
        let info = Arc::new(info.recv().map_err(|_| died())??);
        let thread = Arc::new(Thread {
            shared: Arc::clone(&shared),
            handle: Some(handle),
        });
        let this = Self {
            control,
            releases,
            pushes,
            shared,
            info,
            _thread: thread,
        };
        Ok((this, FabricEvents(events_out)))
    }

    /// What was opened.
    #[must_use]
    pub fn info(&self) -> &FabricInfo {
        &self.info
    }

    /// Live counters.
    #[must_use]
    pub fn stats(&self) -> &FabricStats {
        &self.shared.stats
    }

    /// Live counters of each NIC, in the order of [`FabricInfo::nics`].
    #[must_use]
    pub fn nic_stats(&self) -> &[NicStats] {
        &self.shared.nics
    }

    /// How long the thread has not been seen outside libfabric; under a second when it is well.
    ///
    /// A thread that hangs there answers nothing any more, so whoever awaits this handle's futures
    /// must watch this and end the process after some seconds. It happens on `shm`: a peer that is
    /// killed while it holds the lock of this side's queue leaves it locked for ever
    /// ([`crate::shm`]).
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        self.shared.pulse.silent_for()
    }

    /// A handle for the thread that posts writes.
    #[must_use]
    pub fn pusher(&self) -> Pusher {
        Pusher::new(self.pushes.clone(), Arc::clone(&self.shared))
    }

    /// Opens a way in for one peer.
    pub async fn open_inbox(&self) -> Result<Inbox, FabricError> {
        self.ask(Control::OpenInbox).await?
    }

    /// Opens a way out to a peer's inbox, by its addresses: one for each of the peer's NICs, of which
    /// there need not be as many as here. On providers that connect lazily (tcp) an address where
    /// nobody listens is noticed by the writes.
    pub async fn open_outbox(&self, addresses: &[Vec<u8>]) -> Result<EndpointId, FabricError> {
        let addresses = addresses.to_vec();
        self.ask(|reply| Control::OpenOutbox(addresses, reply))
            .await?
    }

    /// Closes an endpoint: the fence. Once it returns `Ok`,
    ///
    /// - of an **inbox**: nothing that the peer sent lands any more. Slots armed there stay armed
    ///   until they are released;
    /// - of an **outbox**: this process posts and sends nothing more through it, and all its
    ///   flows have ended ([`FabricEvent::FlowEnded`]). Bytes that had left may still
    ///   land: see [`crate::FlowEnded::settled`].
    ///
    /// An error other than [`FabricError::UnknownEndpoint`] means that the provider refused, and
    /// that nothing is fenced.
    pub async fn close(&self, endpoint: EndpointId) -> Result<(), FabricError> {
        self.ask(|reply| Control::Close(endpoint, Some(reply)))
            .await?
    }

    /// Arms a slot: once it returns, `expected` pieces (over 0) are counted at this inbox under
    /// the key. Give it back with [`Fabric::release`]. If the future is dropped before it is
    /// ready, the slot may stay armed (and so may endpoints stay open): run it to its end.
    pub async fn arm(&self, inbox: EndpointId, expected: u64) -> Result<Armed, ArmError> {
        self.ask(|reply| Control::Arm(inbox, expected, reply))
            .await?
    }

    /// Gives a slot back; later immediates of it are stale. Never waits and is never lost: its
    /// queue has room for every slot twice.
    pub fn release(&self, armed: Armed) -> Result<(), FabricError> {
        use mpsc::error::TrySendError;
        self.releases.try_send(armed).map_err(|error| match error {
            TrySendError::Full(_) => FabricError::ReleaseQueueFull,
            TrySendError::Closed(_) => FabricError::Closed,
        })?;
        self.shared.wake.wake();
        Ok(())
    }

    /// Opens a flow, for writes from the own arena into `target` over `outbox`. Once it
    /// returns `Ok`, one [`FabricEvent::FlowEnded`] will follow: after a seal or a stop, or
    /// when the outbox is closed.
    pub async fn open_flow(
        &self,
        flow: FlowId,
        outbox: EndpointId,
        target: RemoteRegion,
    ) -> Result<(), FabricError> {
        self.ask(|reply| Control::OpenFlow(flow, outbox, target, reply))
            .await?
    }

    /// Says that no write follows those pushed before. Waits for room in the queue of writes,
    /// behind which it goes. Unknown flows are ignored.
    pub async fn seal(&self, flow: FlowId) -> Result<(), FabricError> {
        self.pushes
            .send(Push::Seal(flow))
            .await
            .map_err(|_| FabricError::Closed)?;
        self.shared.wake.wake();
        Ok(())
    }

    /// Cancels: once it returns, no more of the flow's writes are posted. Its end is reported
    /// when those in flight have completed. Unknown flows are ignored.
    pub async fn stop(&self, flow: FlowId) -> Result<(), FabricError> {
        self.ask(|reply| Control::Stop(flow, reply)).await
    }

    /// Closes everything and waits for the thread to have done so. Open flows end without an
    /// event.
    pub async fn shutdown(self) -> Result<(), FabricError> {
        self.ask(Control::Shutdown).await
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Control,
    ) -> Result<T, FabricError> {
        let (reply, answer) = oneshot::channel();
        self.control
            .send(command(reply))
            .await
            .map_err(|_| FabricError::Closed)?;
        self.shared.wake.wake();
        answer.await.map_err(|_| FabricError::Closed)
    }
}
