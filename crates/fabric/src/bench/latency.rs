//! One write at a time: until its completion, and there and back.
//!
//! A case's pieces are its samples. First so many writes that are only counted, then so many that are
//! answered; the first tenth of either is not reported.

mod bare;
mod engine;

pub(super) use bare::answer as bare_answer;
pub(super) use engine::answer as engine_answer;

use super::BenchError;
use super::case::Case;
use super::meeting::{Meeting, unexpected};
use super::message::{Invitation, Subject, Word};
use super::patience::STUCK;
use super::report::{LatencyResult, Microseconds};

/// Slots are armed before, and one fabric has 4096.
const MOST_SAMPLES: u32 = 1000;

/// Seconds of each sample.
struct Samples {
    completion: Vec<f64>,
    there_and_back: Vec<f64>,
}

/// Measures the engine, then the bare loop.
pub(super) fn measure(
    case: &Case,
    nic_names: &[String],
    meeting: &mut Meeting,
) -> Result<LatencyResult, BenchError> {
    check(case)?;
    let engine = engine::ask(case, nic_names, meeting)?;
    let bare = bare::ask(case, nic_names, meeting)?;
    let warm = case.pieces as usize / 10;
    let tail = |seconds: &[f64]| seconds[warm..].to_vec();
    let half = |seconds: &[f64]| seconds[warm..].iter().map(|s| s / 2.0).collect();
    Ok(LatencyResult {
        provider: case.provider.clone(),
        bytes: case.piece_bytes,
        samples: case.pieces as usize - warm,
        engine_completion_us: Microseconds::of(tail(&engine.completion)),
        bare_completion_us: Microseconds::of(tail(&bare.completion)),
        engine_counted_us: Microseconds::of(half(&engine.there_and_back)),
        bare_counted_us: Microseconds::of(half(&bare.there_and_back)),
    })
}

fn check(case: &Case) -> Result<(), BenchError> {
    case.check()?;
    if case.pieces > MOST_SAMPLES {
        let text = format!("at most {MOST_SAMPLES} samples");
        return Err(BenchError::Case(text));
    }
    Ok(())
}

/// Exchanges invitations.
fn meet(
    case: &Case,
    subject: Subject,
    back: Invitation,
    meeting: &mut Meeting,
) -> Result<Invitation, BenchError> {
    meeting.say(&Word::Prepare {
        case: case.clone(),
        subject,
        verify: false,
        back: Some(back),
    })?;
    match meeting.hear(STUCK)? {
        Word::Ready(there) => there.check(case).map(|()| there),
        other => Err(unexpected(&other)),
    }
}
