//! Where all records come together: figures, the timeline and the file of requests.

use std::io::Write;

use tokio::sync::mpsc;

use crate::distribution::Distribution;
use crate::record::{Outcome, Record, keep_slowest};
use crate::results::Second;
use crate::stream::AnswerTimes;
use crate::summary::Phases;

/// One request, with the times of its answer where it has one.
pub(super) struct Sample {
    pub(super) record: Record,
    pub(super) times: Option<AnswerTimes>,
}

/// Records that may wait to be counted.
pub(super) const WAITING: usize = 4096;
/// Seconds of a timeline, a week: later ones are counted in the last.
const LONGEST_TIMELINE: usize = 7 * 86_400;

/// What was collected.
pub(super) struct Collected {
    pub(super) phases: Phases,
    pub(super) lateness: Distribution,
    pub(super) timeline: Vec<Second>,
    pub(super) slowest: Vec<Record>,
    /// Why the file of requests ends early, where it does.
    pub(super) unwritten: Option<std::io::Error>,
}

/// Counts all records until their senders are gone. Runs on a thread of its own.
pub(super) fn collect(
    mut samples: mpsc::Receiver<Sample>,
    classes: &[String],
    mut requests: Option<&mut (dyn Write + Send)>,
) -> Collected {
    let mut collected = Collected {
        phases: Phases::of_classes(classes),
        lateness: Distribution::default(),
        timeline: Vec::new(),
        slowest: Vec::new(),
        unwritten: None,
    };
    while let Some(sample) = samples.blocking_recv() {
        if let Some(file) = &mut requests
            && let Err(error) = write(file, &sample.record)
        {
            collected.unwritten = Some(error);
            requests = None;
        }
        collected.count(&sample);
    }
    if let Some(file) = requests
        && let Err(error) = file.flush()
    {
        collected.unwritten = Some(error);
    }
    collected
}

fn write(file: &mut dyn Write, record: &Record) -> std::io::Result<()> {
    serde_json::to_writer(&mut *file, record)?;
    file.write_all(b"\n")
}

impl Collected {
    fn count(&mut self, sample: &Sample) {
        let record = &sample.record;
        self.phases.count(record, sample.times.as_ref());
        keep_slowest(&mut self.slowest, record);
        let end = record.scheduled_us + record.e2e_us;
        self.second(record.scheduled_us).scheduled += 1;
        if record.outcome != Outcome::Unsent {
            self.lateness.record(record.lateness_us);
        }
        let Some(times) = &sample.times else {
            self.second(end).failed += 1;
            return;
        };
        self.second(end).answered += 1;
        self.tokens(record.scheduled_us, times);
    }

    /// Spreads an answer's tokens over the seconds in which they came.
    fn tokens(&mut self, scheduled_us: u64, times: &AnswerTimes) {
        let mut at = scheduled_us + times.ttft_us;
        let later: u64 = times.itl_us.iter().map(|(_, n)| u64::from(*n)).sum();
        let first = self.second(at);
        first.events += 1;
        first.tokens += times.output_tokens.saturating_sub(later);
        for gap in &times.gaps_us {
            at += gap;
            self.second(at).events += 1;
        }
        let mut at = scheduled_us + times.ttft_us;
        for (itl, tokens) in &times.itl_us {
            at += itl * u64::from(*tokens);
            self.second(at).tokens += u64::from(*tokens);
        }
    }

    fn second(&mut self, at_us: u64) -> &mut Second {
        let second = usize::try_from(at_us / 1_000_000).unwrap_or(usize::MAX);
        let second = second.min(LONGEST_TIMELINE - 1);
        if self.timeline.len() <= second {
            self.timeline.resize(second + 1, Second::default());
        }
        &mut self.timeline[second]
    }
}
