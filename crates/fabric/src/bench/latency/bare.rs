//! Latency of the bare loop.

use std::sync::Arc;
use std::time::Instant;

use tandem_core::plan::PlannedWrite;
use tandem_memory::HostMemory;

use super::{Samples, meet};
use crate::bench::BenchError;
use crate::bench::bare::{Bare, Polled};
use crate::bench::case::Case;
use crate::bench::meeting::{Meeting, unexpected};
use crate::bench::message::{Invitation, Subject, Word};
use crate::bench::patience::Patience;

/// Immediates: one that is counted, one that wants an answer.
const COUNT: u32 = 1;
const ANSWER: u32 = 2;

fn open(case: &Case, nic_names: &[String], meeting: &Meeting) -> Result<Bare, BenchError> {
    let memory = Arc::new(HostMemory::create("bench-latency", case.arena_bytes())?);
    memory.write(0, &vec![1; case.arena_bytes()]);
    Bare::open(case, meeting.local()?, nic_names, &memory)
}

fn piece(case: &Case) -> PlannedWrite {
    PlannedWrite {
        source: 0,
        target: 0,
        bytes: case.piece_bytes,
        pieces: 1,
    }
}

fn post(bare: &mut Bare, case: &Case, data: u32, meeting: &mut Meeting) -> Result<(), BenchError> {
    let mut patience = Patience::new();
    while !bare.post(&piece(case), data)? {
        bare.poll()?;
        patience.check(meeting)?;
    }
    Ok(())
}

fn until(
    bare: &mut Bare,
    meeting: &mut Meeting,
    has: impl Fn(&Polled) -> bool,
) -> Result<Polled, BenchError> {
    let mut patience = Patience::new();
    loop {
        let polled = bare.poll()?;
        if has(&polled) {
            return Ok(polled);
        }
        if polled.is_empty() {
            patience.check(meeting)?;
            std::thread::yield_now();
        }
    }
}

/// The measuring side.
pub(super) fn ask(
    case: &Case,
    nic_names: &[String],
    meeting: &mut Meeting,
) -> Result<Samples, BenchError> {
    let mut bare = open(case, nic_names, meeting)?;
    let there = meet(case, Subject::BareLatency, bare.invitation(), meeting)?;
    bare.connect(&there)?;
    let mut samples = Samples {
        completion: Vec::new(),
        there_and_back: Vec::new(),
    };
    for _ in 0..case.pieces {
        let started = Instant::now();
        post(&mut bare, case, COUNT, meeting)?;
        until(&mut bare, meeting, |p| p.completed > 0)?;
        samples.completion.push(started.elapsed().as_secs_f64());
    }
    for _ in 0..case.pieces {
        let started = Instant::now();
        post(&mut bare, case, ANSWER, meeting)?;
        until(&mut bare, meeting, |p| p.arrived > 0)?;
        samples.there_and_back.push(started.elapsed().as_secs_f64());
    }
    meeting.say(&Word::Done)?;
    match bare.hear(meeting)? {
        Word::Spent(_) => Ok(samples),
        other => Err(unexpected(&other)),
    }
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
    let mut bare = open(case, nic_names, meeting)?;
    bare.connect(back)?;
    meeting.say(&Word::Ready(bare.invitation()))?;
    let mut arrived = 0;
    while arrived < 2 * case.pieces as usize {
        let polled = until(&mut bare, meeting, |p| p.arrived > 0)?;
        arrived += polled.arrived;
        for _ in polled.arrived as u64..polled.weight {
            post(&mut bare, case, COUNT, meeting)?;
        }
    }
    match bare.hear(meeting)? {
        Word::Done => meeting.say(&Word::Spent(0.0)),
        other => Err(unexpected(&other)),
    }
}
