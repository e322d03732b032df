//! Latency of the engine. Every write has a slot of its own, all armed before.

use std::sync::Arc;
use std::time::Instant;

use tandem_core::FlowId;
use tandem_core::immediate::{Immediate, SLOTS, SlotKey};
use tandem_memory::HostMemory;

use super::{Samples, meet};
use crate::bench::BenchError;
use crate::bench::case::Case;
use crate::bench::engine::{name, post, slot_keys};
use crate::bench::meeting::{Meeting, unexpected};
use crate::bench::message::{Invitation, Subject, Word};
use crate::bench::patience::{STUCK, block_on, event};
use crate::driver::command::Write;
use crate::event::{FabricEvent, FlowEnded};
use crate::handle::{Fabric, FabricEvents};
use crate::options::FabricOptions;

/// The flow of all writes that are answered, and of all answers.
const ANSWERS: FlowId = FlowId(0);

struct Side {
    fabric: Fabric,
    events: FabricEvents,
    name: Invitation,
}

impl Side {
    /// Opens an inbox and arms a slot for each of `arrivals` writes.
    fn open(
        case: &Case,
        nic_names: &[String],
        arrivals: u32,
        meeting: &mut Meeting,
    ) -> Result<Self, BenchError> {
        let memory = Arc::new(HostMemory::create("bench-latency", case.arena_bytes())?);
        memory.write(0, &vec![1; case.arena_bytes()]);
        let options = FabricOptions {
            slots: SLOTS,
            ..case.options(meeting.local()?, nic_names)
        };
        let (fabric, events) = Fabric::open(options, memory)?;
        let inbox = block_on(meeting, fabric.open_inbox())??;
        let mut slots = Vec::new();
        for _ in 0..arrivals {
            let armed = block_on(meeting, fabric.arm(inbox.endpoint, 1))??;
            slots.push(armed.key.to_bits());
        }
        let name = name(&fabric, inbox.addresses, slots);
        Ok(Self {
            fabric,
            events,
            name,
        })
    }

    /// The slot of the next write that arrives.
    fn arrived(&mut self, meeting: &mut Meeting) -> Result<u32, BenchError> {
        loop {
            match event(meeting, &mut self.events)? {
                FabricEvent::Full { armed, .. } => return Ok(armed.to_bits()),
                FabricEvent::FlowEnded(_) => {}
                other => return Err(BenchError::Write(format!("unexpected: {other:?}"))),
            }
        }
    }

    fn ended(&mut self, meeting: &mut Meeting) -> Result<FlowEnded, BenchError> {
        loop {
            match event(meeting, &mut self.events)? {
                FabricEvent::FlowEnded(end) if end.ended.complete => return Ok(end),
                FabricEvent::FlowEnded(end) => {
                    return Err(BenchError::Write(end.error.unwrap_or_default()));
                }
                _ => {}
            }
        }
    }
}

fn write(case: &Case, flow: FlowId, key: SlotKey) -> Write {
    Write {
        flow,
        local_offset: 0,
        remote_offset: 0,
        len: case.piece_bytes,
        immediate: Immediate::new(key, 1),
    }
}

/// The measuring side.
pub(super) fn ask(
    case: &Case,
    nic_names: &[String],
    meeting: &mut Meeting,
) -> Result<Samples, BenchError> {
    let mut side = Side::open(case, nic_names, case.pieces, meeting)?;
    let there = meet(case, Subject::EngineLatency, side.name.clone(), meeting)?;
    let keys = slot_keys(&there.slots)?;
    if keys.len() != 2 * case.pieces as usize {
        return Err(BenchError::Protocol("not two slots for each sample".into()));
    }
    let (counted, answered) = keys.split_at(case.pieces as usize);
    let fabric = side.fabric.clone();
    let pusher = fabric.pusher();
    let outbox = block_on(meeting, fabric.open_outbox(&there.addresses))??;
    let mut samples = Samples {
        completion: Vec::new(),
        there_and_back: Vec::new(),
    };
    for (id, key) in (1..).zip(counted) {
        let flow = FlowId(id);
        block_on(meeting, fabric.open_flow(flow, outbox, there.region()))??;
        let started = Instant::now();
        post(&pusher, &[write(case, flow, *key)], meeting)?;
        block_on(meeting, fabric.seal(flow))??;
        let completed = side.ended(meeting)?.last_completion;
        let took = completed.map(|at| at.duration_since(started));
        samples
            .completion
            .push(took.unwrap_or_default().as_secs_f64());
    }
    block_on(meeting, fabric.open_flow(ANSWERS, outbox, there.region()))??;
    for key in answered {
        let started = Instant::now();
        post(&pusher, &[write(case, ANSWERS, *key)], meeting)?;
        side.arrived(meeting)?;
        samples.there_and_back.push(started.elapsed().as_secs_f64());
    }
    meeting.say(&Word::Done)?;
    match meeting.hear(STUCK)? {
        Word::Spent(_) => {}
        other => return Err(unexpected(&other)),
    }
    block_on(meeting, fabric.shutdown())??;
    Ok(samples)
}

/// The answering side.
pub(in crate::bench) fn answer(
    case: &Case,
    back: &Invitation,
    nic_names: &[String],
    meeting: &mut Meeting,
) -> Result<(), BenchError> {
    super::check(case)?;
    back.check(case)?;
    let keys = slot_keys(&back.slots)?;
    let samples = case.pieces as usize;
    if keys.len() != samples {
        return Err(BenchError::Protocol("not a slot for each answer".into()));
    }
    let mut side = Side::open(case, nic_names, 2 * case.pieces, meeting)?;
    let pusher = side.fabric.pusher();
    let outbox = block_on(meeting, side.fabric.open_outbox(&back.addresses))??;
    block_on(
        meeting,
        side.fabric.open_flow(ANSWERS, outbox, back.region()),
    )??;
    meeting.say(&Word::Ready(side.name.clone()))?;
    let mut answers = keys.into_iter();
    for _ in 0..2 * samples {
        let slot = side.arrived(meeting)?;
        if side.name.slots[samples..].contains(&slot)
            && let Some(key) = answers.next()
        {
            post(&pusher, &[write(case, ANSWERS, key)], meeting)?;
        }
    }
    match meeting.hear(STUCK)? {
        Word::Done => meeting.say(&Word::Spent(0.0))?,
        other => return Err(unexpected(&other)),
    }
    Ok(block_on(meeting, side.fabric.shutdown())??)
}
