//! The receiving process.

use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tandem_memory::HostMemory;

use super::bare::Bare;
use super::case::Case;
use super::clock::cpu_seconds;
use super::engine::EngineReceiver;
use super::meeting::{Meeting, unexpected};
use super::message::{Invitation, Subject, Word};
use super::patience::STUCK;
use super::tcp::TcpReceiver;
use super::workload::{Part, Workload};
use super::{BenchError, latency, target};

/// Between two measurements.
const PAUSE: Duration = Duration::from_secs(120);

/// Takes part in one measurement as its receiver, for the process that waits at `address`
/// (`host:port`); what [`super::Receiver::Spawn`] starts calls this. `nic_names` are libfabric's names
/// of the NICs to use here, in order; the provider's first one where there are none.
pub fn receive(address: impl ToSocketAddrs, nic_names: &[String]) -> Result<(), BenchError> {
    session(TcpStream::connect(address)?, nic_names)
}

/// Waits for one measuring process ([`super::Receiver::Connect`]) and takes part as its receiver.
/// Whoever can connect may take memory and processor time here.
pub fn serve(listener: &TcpListener, nic_names: &[String]) -> Result<(), BenchError> {
    session(listener.accept()?.0, nic_names)
}

fn session(stream: TcpStream, nic_names: &[String]) -> Result<(), BenchError> {
    let mut meeting = Meeting::open(stream)?;
    let ended = obey(&mut meeting, nic_names);
    if let Err(error) = &ended {
        // Where the other is gone, nobody is there to be told.
        let _ = meeting.say(&Word::Failed(error.to_string()));
    }
    ended
}

fn obey(meeting: &mut Meeting, nic_names: &[String]) -> Result<(), BenchError> {
    loop {
        let (case, subject, verify, back) = match meeting.hear(PAUSE)? {
            Word::End => return Ok(()),
            Word::Prepare {
                case,
                subject,
                verify,
                back,
            } => (case, subject, verify, back),
            other => return Err(unexpected(&other)),
        };
        case.check()?;
        match (subject, back) {
            (Subject::EngineLatency, Some(back)) => {
                latency::engine_answer(&case, &back, nic_names, meeting)?;
            }
            (Subject::BareLatency, Some(back)) => {
                latency::bare_answer(&case, &back, nic_names, meeting)?;
            }
            (Subject::Target { expected }, None) => {
                target::answer(&case, expected, nic_names, meeting)?;
            }
            (Subject::Engine | Subject::Bare | Subject::Tcp, None) => {
                throughput(&case, subject, verify, nic_names, meeting)?;
            }
            _ => return Err(BenchError::Protocol("half of a measurement".into())),
        }
    }
}

enum Side {
    Engine(EngineReceiver),
    Bare(Box<Bare>),
    Tcp(TcpReceiver),
}

fn throughput(
    case: &Case,
    subject: Subject,
    verify: bool,
    nic_names: &[String],
    meeting: &mut Meeting,
) -> Result<(), BenchError> {
    let load = Workload::new(case)?;
    let bytes = case.arena_bytes();
    let bind = meeting.local()?;
    let memory = Arc::new(HostMemory::create("bench-into", bytes)?);
    let mut side = match subject {
        Subject::Tcp => Side::Tcp(TcpReceiver::listen(bind, bytes)?),
        Subject::Bare => {
            load.clear(&memory);
            Side::Bare(Box::new(Bare::open(case, bind, nic_names, &memory)?))
        }
        _ => {
            load.clear(&memory);
            let side = EngineReceiver::open(case, bind, nic_names, &memory, &load, meeting)?;
            Side::Engine(side)
        }
    };
    meeting.say(&Word::Ready(side.invitation()?))?;
    side.count(&load, Part::Warm, meeting)?;
    meeting.say(&Word::Full)?;
    side.expect(Word::Begin, meeting)?;
    let before = cpu_seconds();
    meeting.say(&Word::Begun)?;
    side.count(&load, Part::Timed, meeting)?;
    meeting.say(&Word::Full)?;
    side.expect(Word::Done, meeting)?;
    let spent = cpu_seconds() - before;
    if verify && subject != Subject::Tcp {
        load.verify(&memory)?;
    }
    meeting.say(&Word::Spent(spent))?;
    side.close(meeting)
}

impl Side {
    fn invitation(&self) -> Result<Invitation, BenchError> {
        Ok(match self {
            Self::Engine(engine) => engine.invitation(),
            Self::Bare(bare) => bare.invitation(),
            Self::Tcp(tcp) => Invitation {
                port: tcp.port()?,
                ..Invitation::default()
            },
        })
    }

    fn count(
        &mut self,
        load: &Workload,
        part: Part,
        meeting: &mut Meeting,
    ) -> Result<(), BenchError> {
        match self {
            Self::Engine(engine) => engine.count(part, meeting),
            Self::Bare(bare) => bare.count(load.expected(part), meeting),
            Self::Tcp(tcp) => tcp.count(load.expected(part), meeting),
        }
    }

    fn expect(&mut self, word: Word, meeting: &mut Meeting) -> Result<(), BenchError> {
        let heard = match self {
            Self::Bare(bare) => bare.hear(meeting)?,
            Self::Engine(_) | Self::Tcp(_) => meeting.hear(STUCK)?,
        };
        if heard == word {
            return Ok(());
        }
        Err(unexpected(&heard))
    }

    fn close(self, meeting: &mut Meeting) -> Result<(), BenchError> {
        match self {
            Self::Engine(engine) => engine.close(meeting),
            Self::Bare(_) | Self::Tcp(_) => Ok(()),
        }
    }
}
