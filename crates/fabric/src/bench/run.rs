//! The measuring process.

use std::sync::Arc;
use std::time::Instant;

use libfabric_sys::Library;
use tandem_core::plan::PlannedWrite;
use tandem_memory::HostMemory;

use super::bare::Bare;
use super::case::Case;
use super::clock::cpu_seconds;
use super::engine::EngineSender;
use super::meeting::{Meeting, unexpected};
use super::memcpy::Copier;
use super::message::{Invitation, Subject, Word};
use super::patience::STUCK;
use super::plan::Plan;
use super::receiver::{Process, Receiver};
use super::report::{CaseResult, LatencyResult, Measured, Report, Round};
use super::target::Target;
use super::tcp::TcpSender;
use super::workload::{Part, Workload};
use super::{BenchError, latency};
use crate::error::OpenError;

/// Measures a whole plan with one receiver.
pub fn run(plan: &Plan, receiver: &Receiver) -> Result<Report, BenchError> {
    let library = Library::get().map_err(OpenError::from)?;
    let mut bench = Bench::open(receiver, plan.nic_names.clone())?;
    let mut report = Report {
        libfabric: library.version().to_string(),
        cases: bench.cases(&plan.cases, plan.rounds)?,
        latencies: Vec::new(),
    };
    for bytes in &plan.latency_bytes {
        let latency = bench.latency(&plan.provider, *bytes, plan.samples)?;
        report.latencies.push(latency);
    }
    bench.close()?;
    Ok(report)
}

/// A measuring process that has met its receiver.
pub struct Bench {
    meeting: Meeting,
    process: Option<Process>,
    nic_names: Vec<String>,
}

impl Bench {
    /// Starts the receiver or connects to it. `nic_names` are libfabric's names of this side's NICs.
    pub fn open(receiver: &Receiver, nic_names: Vec<String>) -> Result<Self, BenchError> {
        let (meeting, process) = receiver.meet()?;
        Ok(Self {
            meeting,
            process,
            nic_names,
        })
    }

    /// The receiver's process, where it is a child.
    #[must_use]
    pub fn receiver_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Throughput of one case over `rounds` rounds (at least 1). In the first round the receiver checks
    /// every byte that the engine and the bare loop brought.
    pub fn case(&mut self, case: &Case, rounds: usize) -> Result<CaseResult, BenchError> {
        let rounds = (0..rounds.max(1)).map(|n| self.round(case, n));
        let measured: Vec<Round> = rounds.collect::<Result<_, _>>()?;
        Ok(CaseResult::of(case, case.bytes(), &measured))
    }

    /// As [`Bench::case`], with all cases in each round, so that they can be compared with one another.
    pub fn cases(&mut self, cases: &[Case], rounds: usize) -> Result<Vec<CaseResult>, BenchError> {
        let mut measured = vec![Vec::new(); cases.len()];
        for n in 0..rounds.max(1) {
            for (case, rounds) in cases.iter().zip(&mut measured) {
                rounds.push(self.round(case, n)?);
            }
        }
        let results = cases.iter().zip(&measured);
        Ok(results
            .map(|(case, rounds)| CaseResult::of(case, case.bytes(), rounds))
            .collect())
    }

    fn round(&mut self, case: &Case, n: usize) -> Result<Round, BenchError> {
        let load = Workload::new(case)?;
        let memory = Arc::new(HostMemory::create("bench-from", case.arena_bytes())?);
        load.fill(&memory);
        let plan = |part| {
            load.passes(part)
                .into_iter()
                .map(|pages| load.writes(pages))
        };
        let planned: Planned = Part::ALL.map(|part| plan(part).collect());
        let mut round = Round::default();
        let verify = n == 0;
        // Whoever comes first finds another machine than whoever comes after it.
        let engine_first = n.is_multiple_of(2);
        if engine_first {
            round.engine = self.engine(case, &load, &memory, verify)?;
        }
        round.bare = self.bare(case, &planned, &memory, verify)?;
        if !engine_first {
            round.engine = self.engine(case, &load, &memory, verify)?;
        }
        round.tcp = self.tcp(case, &planned)?;
        round.memcpy = memcpy(case, &planned);
        Ok(round)
    }

    /// Latency of `samples` writes (1 to 1000) of so many bytes, through the engine and through the bare
    /// loop.
    pub fn latency(
        &mut self,
        provider: &str,
        bytes: u32,
        samples: u32,
    ) -> Result<LatencyResult, BenchError> {
        let case = Case::new(provider, bytes, samples);
        latency::measure(&case, &self.nic_names, &mut self.meeting)
    }

    /// Has the receiver open an inbox for this case's provider, window and NICs, with memory of
    /// [`Case::bytes`] (of [`super::ARENA`] at most) and one slot armed for `expected` pieces (over 0).
    /// For measurements whose writes are posted elsewhere; [`Bench::counted`] ends it.
    pub fn target(&mut self, case: &Case, expected: u64) -> Result<Target, BenchError> {
        case.check()?;
        let invitation = self.prepare(case, Subject::Target { expected }, false)?;
        Target::of(&invitation, self.meeting.local()?)
    }

    /// Waits until the slot of the last [`Bench::target`] is full, at most half a minute; the receiver
    /// then closes that inbox.
    pub fn counted(&mut self) -> Result<(), BenchError> {
        expect(self.meeting.hear(STUCK)?, &Word::Full)?;
        self.meeting.say(&Word::Done)
    }

    /// Lets the receiver go.
    pub fn close(mut self) -> Result<(), BenchError> {
        self.meeting.say(&Word::End)?;
        self.process.map_or(Ok(()), Process::finish)
    }

    fn prepare(
        &mut self,
        case: &Case,
        subject: Subject,
        verify: bool,
    ) -> Result<Invitation, BenchError> {
        self.meeting.say(&Word::Prepare {
            case: case.clone(),
            subject,
            verify,
            back: None,
        })?;
        match self.meeting.hear(STUCK)? {
            Word::Ready(invitation) if subject == Subject::Tcp => Ok(invitation),
            Word::Ready(invitation) => invitation.check(case).map(|()| invitation),
            other => Err(unexpected(&other)),
        }
    }

    fn engine(
        &mut self,
        case: &Case,
        load: &Workload,
        memory: &Arc<HostMemory>,
        verify: bool,
    ) -> Result<Measured, BenchError> {
        let invitation = self.prepare(case, Subject::Engine, verify)?;
        let meeting = &mut self.meeting;
        let mut engine = EngineSender::open(case, &self.nic_names, memory, &invitation, meeting)?;
        let measured = timed(meeting, |part, meeting| {
            let writes = engine.push(load, part, meeting)?;
            expect(meeting.hear(STUCK)?, &Word::Full)?;
            Ok(writes)
        })?;
        engine.close(meeting)?;
        Ok(measured)
    }

    fn bare(
        &mut self,
        case: &Case,
        planned: &Planned,
        memory: &Arc<HostMemory>,
        verify: bool,
    ) -> Result<Measured, BenchError> {
        let invitation = self.prepare(case, Subject::Bare, verify)?;
        let meeting = &mut self.meeting;
        let mut bare = Bare::open(case, meeting.local()?, &self.nic_names, memory)?;
        bare.connect(&invitation)?;
        timed(meeting, |part, meeting| {
            let writes = bare.push(&planned[part as usize], meeting)?;
            expect(bare.hear(meeting)?, &Word::Full)?;
            Ok(writes)
        })
    }

    fn tcp(&mut self, case: &Case, planned: &Planned) -> Result<Measured, BenchError> {
        let port = self.prepare(case, Subject::Tcp, false)?.port;
        let meeting = &mut self.meeting;
        let mut tcp = TcpSender::connect(meeting.remote()?, port, case.arena_bytes())?;
        timed(meeting, |part, meeting| {
            let writes = tcp.push(&planned[part as usize], meeting)?;
            expect(meeting.hear(STUCK)?, &Word::Full)?;
            Ok(writes)
        })
    }
}

/// The writes of each pass, for each part.
type Planned = [Vec<Vec<PlannedWrite>>; 2];

/// Runs both parts, with the clocks of both processes over the second one.
fn timed(
    meeting: &mut Meeting,
    mut push: impl FnMut(Part, &mut Meeting) -> Result<u64, BenchError>,
) -> Result<Measured, BenchError> {
    push(Part::Warm, meeting)?;
    meeting.say(&Word::Begin)?;
    expect(meeting.hear(STUCK)?, &Word::Begun)?;
    let (cpu, started) = (cpu_seconds(), Instant::now());
    let writes = push(Part::Timed, meeting)?;
    let (own, seconds) = (cpu_seconds() - cpu, started.elapsed().as_secs_f64());
    meeting.say(&Word::Done)?;
    match meeting.hear(STUCK)? {
        Word::Spent(theirs) => Ok(Measured {
            seconds,
            cpu_seconds: own + theirs,
            writes,
        }),
        other => Err(unexpected(&other)),
    }
}

fn memcpy(case: &Case, planned: &Planned) -> Measured {
    let mut copier = Copier::new(case.arena_bytes());
    copier.push(&planned[Part::Warm as usize]);
    let (cpu, started) = (cpu_seconds(), Instant::now());
    copier.push(&planned[Part::Timed as usize]);
    Measured {
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        writes: 0,
    }
}

fn expect(heard: Word, word: &Word) -> Result<(), BenchError> {
    if heard == *word {
        return Ok(());
    }
    Err(unexpected(&heard))
}
