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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::TokenSource;
    use crate::testing::made::record;

    fn collected(samples: Vec<Sample>) -> Collected {
        let (sender, received) = mpsc::channel(WAITING);
        for sample in samples {
            sender.try_send(sample).unwrap_or_else(|_| panic!("room"));
        }
        drop(sender);
        collect(received, &[], None)
    }

    #[test]
    fn a_timeline_has_each_request_and_each_token_in_its_own_second() {
        // Scheduled at 0.5 s: two tokens with the first event at 1.5 s, three with one at 3.6 s.
        let times = AnswerTimes {
            ttft_us: 1_000_000,
            last_token_us: 3_100_000,
            tpot_us: Some(700_000.0),
            itl_us: vec![(700_000, 3)],
            gaps_us: vec![2_100_000],
            output_tokens: 5,
            token_source: TokenSource::ChunkUsage,
            input_tokens: None,
            cached_tokens: None,
            finish_reason: None,
        };
        let mut answered = record(0, 3_700_000);
        answered.scheduled_us = 500_000;
        let mut failed = record(1, 2_000_000);
        (failed.scheduled_us, failed.outcome) = (600_000, Outcome::Failed);
        let found = collected(vec![
            Sample {
                record: answered,
                times: Some(times),
            },
            Sample {
                record: failed,
                times: None,
            },
        ]);
        let seconds: Vec<_> = found
            .timeline
            .iter()
            .map(|s| [s.scheduled, s.answered, s.failed, s.events, s.tokens])
            .collect();
        let want = [
            [2, 0, 0, 0, 0],
            [0, 0, 0, 1, 2],
            [0, 0, 1, 0, 0],
            [0, 0, 0, 1, 3],
            [0, 1, 0, 0, 0],
        ];
        assert_eq!(seconds, want);
    }

    #[test]
    fn what_was_not_sent_was_not_late() {
        let late = |outcome, lateness_us| {
            let mut record = record(0, 10_000);
            (record.outcome, record.lateness_us) = (outcome, lateness_us);
            Sample {
                record,
                times: None,
            }
        };
        let found = collected(vec![
            late(Outcome::Failed, 5),
            late(Outcome::Rejected, 6),
            late(Outcome::Unsent, 900),
        ]);
        assert_eq!((found.lateness.count(), found.lateness.max()), (2, Some(6)));
    }

    #[test]
    fn a_file_that_takes_no_more_is_told_and_the_figures_are_whole() {
        let mut little = [0_u8; 100];
        let (sender, received) = mpsc::channel(WAITING);
        for index in 0..3 {
            let record = record(index, 1_000);
            let times = None;
            sender
                .try_send(Sample { record, times })
                .unwrap_or_else(|_| panic!("room"));
        }
        drop(sender);
        let mut file = &mut little[..];
        let found = collect(received, &[], Some(&mut file));
        assert!(found.unwritten.is_some());
        assert_eq!(found.phases.requests(), 3);
    }
}
