//! The same push through the engine: [`Fabric`], its thread, ledgers and queues.

use std::net::TcpStream;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tandem_core::FlowId;
use tandem_core::immediate::{Immediate, SlotKey};
use tandem_memory::HostMemory;

use super::meeting::{self, Invitation};
use super::{ARENA, BareError, BareReport, Load};
use crate::driver::command::{RegionKey, RemoteRegion, Write};
use crate::error::FabricError;
use crate::event::FabricEvent;
use crate::handle::{Fabric, FabricEvents};

const FLOW: FlowId = FlowId(1);

fn open(load: &Load) -> Result<(Fabric, FabricEvents), BareError> {
    let memory = Arc::new(HostMemory::create("engine", ARENA)?);
    memory.write(0, &vec![1; ARENA]);
    Ok(Fabric::open(load.options(), memory)?)
}

/// Sends one flow through a [`crate::Pusher`], as the watcher does.
pub fn engine_push(load: &Load, peer: &mut TcpStream) -> Result<BareReport, BareError> {
    let (fabric, mut events) = open(load)?;
    let invitation = Invitation::read(peer)?;
    let nonsense = || BareError::Run("no slot key".into());
    let key = SlotKey::from_bits(invitation.slot).ok_or_else(nonsense)?;
    let region = RemoteRegion {
        len: ARENA as u64,
        keys: vec![RegionKey {
            base: invitation.base,
            key: invitation.key,
        }],
    };
    let outbox = block_on(fabric.open_outbox(&[invitation.address]))?;
    block_on(fabric.open_flow(FLOW, outbox, region))?;
    let pusher = fabric.pusher();
    let started = Instant::now();
    for i in 0..load.pieces {
        let offset = load.offset(i) as u64;
        let mut write = Write {
            flow: FLOW,
            local_offset: offset,
            remote_offset: offset,
            len: load.piece as u32,
            immediate: Immediate::new(key, 1),
        };
        while let Err(back) = pusher.post(write) {
            if pusher.is_closed() {
                return Err(FabricError::Closed.into());
            }
            write = back;
            // There are a thousand queued: no hurry.
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    block_on(fabric.seal(FLOW))?;
    let end = loop {
        match events.blocking_recv() {
            Some(FabricEvent::FlowEnded(end)) => break end,
            Some(_) => {}
            None => return Err(FabricError::Closed.into()),
        }
    };
    if !end.ended.complete {
        return Err(BareError::Run(end.error.unwrap_or_default()));
    }
    let first = end.first_post.unwrap_or(started);
    let elapsed = end.last_completion.unwrap_or(first).duration_since(first);
    meeting::say_done(peer)?;
    block_on(fabric.shutdown())?;
    Ok(load.report(elapsed))
}

/// Receives one flow.
pub fn engine_receive(load: &Load, peer: &mut TcpStream) -> Result<(), BareError> {
    let (fabric, mut events) = open(load)?;
    let inbox = block_on(fabric.open_inbox())?;
    let armed = block_on(fabric.arm(inbox.endpoint, load.pieces as u64));
    let armed = armed.map_err(|error| BareError::Run(error.to_string()))?;
    let RegionKey { base, key } = fabric.info().nics[0].name;
    Invitation {
        address: inbox.addresses.concat(),
        base,
        key,
        slot: armed.key.to_bits(),
    }
    .write(peer)?;
    match events.blocking_recv() {
        Some(FabricEvent::Full { .. }) => {}
        other => return Err(BareError::Run(format!("{other:?}"))),
    }
    meeting::until_done(peer, || std::thread::sleep(Duration::from_millis(1)))?;
    block_on(fabric.shutdown())?;
    Ok(())
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread; the fabric's need no runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
