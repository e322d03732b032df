//! One request, as it went: a line of the file of requests.

use serde::{Deserialize, Serialize};

use crate::slo::{Slo, Times};
use crate::stream::{AnswerTimes, TokenSource};

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered, and within the SLO where there is one.
    Attained,
    /// Answered, but not within the SLO.
    Late,
    /// Turned away before a token: 429 or 503.
    Rejected,
    /// No whole answer: an error, a broken stream, no end in time.
    Failed,
    /// Not sent: as many were under way as may be.
    Unsent,
}

/// To which part of the test a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the figures count.
    WarmUp,
    /// What the figures are of.
    Measured,
    /// After that, so that the last measured ones do not end on an idle server.
    CoolDown,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// The connection broke, or what came was no HTTP.
    Connection,
    /// An HTTP status that is no success.
    Status,
    /// A success that is no event stream.
    NotAStream,
    /// Events that are no answer's.
    Garbage,
    /// The server's error in the stream.
    StreamError,
    /// The stream ended before the answer.
    Stopped,
    /// An answer without a token.
    Empty,
    /// No end in time.
    Timeout,
    /// Too many were under way.
    Unsent,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// In words.
    pub message: String,
}

/// One request. All times in microseconds; those without another beginning count from the scheduled send.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The request's or session's place in the test.
    pub index: u64,
    /// Its place in its session, from 0.
    pub turn: u32,
    /// Its class.
    pub class: String,
    /// To which part of the test it belongs.
    pub phase: Phase,
    /// Its x-request-id.
    pub request_id: String,
    /// When it was to be sent, from the test's start.
    pub scheduled_us: u64,
    /// How much later the client began to send it: its own doing, not the server's.
    pub lateness_us: u64,
    /// Until its connection was there.
    pub connected_us: Option<u64>,
    /// Until the answer's head had come.
    pub head_us: Option<u64>,
    /// Until the first token.
    pub ttft_us: Option<u64>,
    /// For an output token after the first event.
    pub tpot_us: Option<f64>,
    /// 99th percentile of its ITLs.
    pub itl_p99_us: Option<u64>,
    /// Longest gap between two events with tokens.
    pub longest_gap_us: Option<u64>,
    /// Until its end, whatever that was.
    pub e2e_us: u64,
    /// Tokens that its prompt was to have.
    pub wanted_input_tokens: Option<u32>,
    /// Tokens that its answer was to have.
    pub wanted_output_tokens: u32,
    /// Tokens of its prompt by the server's usage.
    pub input_tokens: Option<u64>,
    /// Those of them that the server had in its cache.
    pub cached_tokens: Option<u64>,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Where that number comes from.
    pub token_source: Option<TokenSource>,
    /// Events with tokens.
    pub events: u64,
    /// Prompt or answer were shortened to fit the model's context.
    pub clipped: bool,
    /// HTTP status.
    pub status: Option<u16>,
    /// What came of it.
    pub outcome: Outcome,
    /// Why there is no answer, where there is none.
    pub failure: Option<Failure>,
    /// Why the answer ended, where the server said.
    pub finish_reason: Option<String>,
}

impl Record {
    /// Fills in a whole answer, and whether it is in time.
    pub(crate) fn answered(&mut self, times: &AnswerTimes, slo: Option<&Slo>) {
        self.ttft_us = Some(times.ttft_us);
        self.tpot_us = times.tpot_us;
        self.itl_p99_us = weighted_quantile(&times.itl_us, 0.99);
        self.longest_gap_us = times.gaps_us.iter().max().copied();
        self.input_tokens = times.input_tokens;
        self.cached_tokens = times.cached_tokens;
        self.output_tokens = times.output_tokens;
        self.token_source = Some(times.token_source);
        self.events = times.gaps_us.len() as u64 + 1;
        self.finish_reason.clone_from(&times.finish_reason);
        let asked = Times {
            ttft_us: times.ttft_us,
            tpot_us: times.tpot_us,
            itl_p99_us: self.itl_p99_us,
            e2e_us: self.e2e_us,
        };
        self.outcome = match slo {
            Some(slo) if !slo.is_met(&asked) => Outcome::Late,
            _ => Outcome::Attained,
        };
    }

    /// Fills in a failure.
    pub(crate) fn failed(&mut self, failure: Failure) {
        let turned_away = matches!(self.status, Some(429 | 503));
        self.outcome = match failure.kind {
            FailureKind::Status if turned_away => Outcome::Rejected,
            FailureKind::Unsent => Outcome::Unsent,
            _ => Outcome::Failed,
        };
        self.failure = Some(failure);
    }
}

/// Records of the slowest requests that are kept.
pub const SLOWEST: usize = 20;

/// Keeps a record among the slowest ones, the longest first, where it is one of those.
pub fn keep_slowest(slowest: &mut Vec<Record>, record: &Record) {
    let counts = record.phase == Phase::Measured && record.outcome != Outcome::Unsent;
    let full = slowest.len() >= SLOWEST;
    if !counts
        || (full
            && slowest
                .last()
                .is_some_and(|last| last.e2e_us >= record.e2e_us))
    {
        return;
    }
    let at = slowest.partition_point(|known| known.e2e_us >= record.e2e_us);
    slowest.insert(at, record.clone());
    slowest.truncate(SLOWEST);
}

/// The nearest rank of values that each stand for several.
fn weighted_quantile(values: &[(u64, u32)], q: f64) -> Option<u64> {
    let all: u64 = values.iter().map(|(_, times)| u64::from(*times)).sum();
    let rank = ((q * all as f64).ceil() as u64).max(1);
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let mut below = 0;
    sorted.into_iter().find_map(|(value, times)| {
        below += u64::from(times);
        (below >= rank).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::made::record;

    #[test]
    fn a_weighted_quantile_is_that_of_all_values_written_out() {
        let values = [(30, 1), (10, 97), (20, 2)];
        assert_eq!(weighted_quantile(&values, 0.5), Some(10));
        assert_eq!(weighted_quantile(&values, 0.98), Some(20));
        assert_eq!(weighted_quantile(&values, 0.99), Some(20));
        assert_eq!(weighted_quantile(&values, 1.0), Some(30));
        assert_eq!(weighted_quantile(&[], 0.5), None);
        // The middle one of three, not the one before it.
        assert_eq!(weighted_quantile(&[(1, 1), (2, 1), (3, 1)], 0.5), Some(2));
    }

    #[test]
    fn an_answers_record_has_its_events_its_longest_gap_and_the_99th_percentile_of_its_itls() {
        let times = AnswerTimes {
            ttft_us: 5_000,
            last_token_us: 400_000,
            tpot_us: Some(3_950.0),
            itl_us: vec![(1_000, 95), (9_000, 4), (20_000, 1)],
            gaps_us: vec![3_000, 20_000, 2_000],
            output_tokens: 101,
            token_source: TokenSource::ChunkUsage,
            input_tokens: Some(7),
            cached_tokens: Some(3),
            finish_reason: Some("stop".to_owned()),
        };
        let mut answered = record(0, 410_000);
        answered.answered(&times, None);
        assert_eq!((answered.events, answered.output_tokens), (4, 101));
        assert_eq!(answered.longest_gap_us, Some(20_000));
        assert_eq!(answered.itl_p99_us, Some(9_000));
        assert_eq!(answered.outcome, Outcome::Attained);
        let limit = |text: &str| text.parse::<Slo>().unwrap();
        for (slo, outcome) in [
            ("itl=9ms,e2e=410ms,ttft=5ms", Outcome::Attained),
            ("itl=8999us", Outcome::Late),
            ("e2e=409ms", Outcome::Late),
        ] {
            answered.answered(&times, Some(&limit(slo)));
            assert_eq!(answered.outcome, outcome, "{slo}");
        }
    }

    #[test]
    fn only_a_status_that_says_so_turns_a_request_away() {
        for (kind, status, outcome) in [
            (FailureKind::Status, 429, Outcome::Rejected),
            (FailureKind::Status, 503, Outcome::Rejected),
            (FailureKind::Status, 500, Outcome::Failed),
            (FailureKind::Timeout, 503, Outcome::Failed),
            (FailureKind::Unsent, 200, Outcome::Unsent),
        ] {
            let mut failed = record(0, 1);
            failed.status = Some(status);
            let message = "no".to_owned();
            failed.failed(Failure { kind, message });
            assert_eq!(failed.outcome, outcome, "{kind:?} {status}");
        }
    }

    #[test]
    fn the_slowest_are_measured_requests_that_were_sent_the_longest_first() {
        let mut slowest = Vec::new();
        let count = SLOWEST as u64 + 5;
        // Neither from the least on nor from the greatest.
        for index in 0..count {
            keep_slowest(&mut slowest, &record(index, 1_000 * (index * 7 % count)));
        }
        let others = [
            (Phase::WarmUp, Outcome::Attained),
            (Phase::CoolDown, Outcome::Attained),
            (Phase::Measured, Outcome::Unsent),
        ];
        for (phase, outcome) in others {
            let other = Record {
                phase,
                outcome,
                ..record(99, 1_000_000)
            };
            keep_slowest(&mut slowest, &other);
        }
        let times: Vec<u64> = slowest.iter().map(|record| record.e2e_us).collect();
        let want: Vec<u64> = (5..count).rev().map(|n| n * 1_000).collect();
        assert_eq!(times, want);
    }
}
