//! The moments of one request, and every time that is derived from them. Defined here once.
//!
//! | name | from | to |
//! | --- | --- | --- |
//! | TTFT | arrival of the request | its first token |
//! | ITL | a token | the next; tokens of one message share its time |
//! | TPOT | the first token | the last one, divided by the tokens but one |
//! | end to end | arrival | the end of the answer |
//!
//! The stages follow one another without gaps: their sum is the end to end time, however the request
//! ended. Moments are given, never read from a clock.

use std::time::{Duration, Instant};

use crate::gaps::Gaps;

/// A part of a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Arrival to submission: body, checks, chat template, tokens.
    Read,
    /// Submission to the pair that took it on being asked: the queue time.
    Queue,
    /// That pair being asked to its lease.
    Lease,
    /// Of lease to full count, what the prompt was neither computed nor waited for to arrive: the
    /// dispatch and the prefill worker's queue.
    PrefillQueue,
    /// The prompt's computation, first step to last layer. Where the prefill worker has not told it,
    /// all of lease to full count.
    Prefill,
    /// The part of the transfer that the computation did not hide: last layer to last write.
    Transfer,
    /// Full count to first token: the decode worker's first step.
    FirstToken,
    /// First token to last token.
    Decode,
    /// Last token to the end of the answer.
    End,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Queue,
        Self::Lease,
        Self::PrefillQueue,
        Self::Prefill,
        Self::Transfer,
        Self::FirstToken,
        Self::Decode,
        Self::End,
    ];

    /// In metrics, logs and spans.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Queue => "queue",
            Self::Lease => "lease",
            Self::PrefillQueue => "prefill_queue",
            Self::Prefill => "prefill",
            Self::Transfer => "transfer",
            Self::FirstToken => "first_token",
            Self::Decode => "decode",
            Self::End => "end",
        }
    }
}

/// What a prefill worker tells of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptTimes {
    /// First step's start to last layer's end.
    pub compute: Duration,
    /// Last layer's end to last write's completion.
    pub exposed: Duration,
}

/// One request's moments, in the order in which they come. One that did not come stays `None`.
#[derive(Clone, Debug)]
pub struct RequestTimes {
    arrived: Instant,
    submitted: Option<Instant>,
    paired: Option<Instant>,
    reserved: Option<Instant>,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    ended: Option<Instant>,
    prompt: Option<PromptTimes>,
    /// It went to another pair in mid-answer.
    migrated: bool,
    tokens: u64,
    gaps: Gaps,
}

impl RequestTimes {
    /// It has arrived.
    #[must_use]
    pub fn new(arrived: Instant) -> Self {
        Self {
            arrived,
            submitted: None,
            paired: None,
            reserved: None,
            started: None,
            first_token: None,
            last_token: None,
            ended: None,
            prompt: None,
            migrated: false,
            tokens: 0,
            gaps: Gaps::default(),
        }
    }

    /// When it arrived.
    #[must_use]
    pub const fn arrived(&self) -> Instant {
        self.arrived
    }

    /// It is read, and waits for a pair.
    pub fn submitted(&mut self, now: Instant) {
        self.submitted = Some(now);
    }

    /// A pair is asked. Where one does not take it on, or fails before the first token, it waits again:
    /// only the last counts. An answer that goes on elsewhere has its first pair's stages, and a long
    /// gap between two tokens.
    pub fn paired(&mut self, now: Instant) {
        if self.first_token.is_some() {
            self.migrated = true;
            return;
        }
        self.paired = Some(now);
        self.reserved = None;
        self.started = None;
    }

    /// The lease is granted.
    pub fn reserved(&mut self, now: Instant) {
        if !self.migrated {
            self.reserved = Some(now);
        }
    }

    /// The count is full: every page of the prompt is in decode memory.
    pub fn started(&mut self, now: Instant) {
        if !self.migrated {
            self.started = Some(now);
        }
    }

    /// The prefill worker has told its times.
    pub fn prompt(&mut self, prompt: PromptTimes) {
        if !self.migrated {
            self.prompt = Some(prompt);
        }
    }

    /// So many tokens came in one message. Whether they are the first.
    pub fn tokens_came(&mut self, now: Instant, tokens: u32) -> bool {
        if tokens == 0 {
            return false;
        }
        let first = self.first_token.is_none();
        match self.last_token {
            // Those that come with the first have nothing before them to be measured from.
            None => self.gaps.add(Duration::ZERO, tokens - 1),
            Some(last) => self.gaps.add(now.saturating_duration_since(last), tokens),
        }
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
        self.tokens += u64::from(tokens);
        first
    }

    /// Nothing follows. Only the first call counts.
    pub fn ended(&mut self, now: Instant) {
        self.ended.get_or_insert(now);
    }

    /// Tokens generated.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Times between tokens.
    #[must_use]
    pub const fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Times between tokens, to take what was gathered.
    pub fn gaps_mut(&mut self) -> &mut Gaps {
        &mut self.gaps
    }

    /// Time to first token.
    #[must_use]
    pub fn ttft(&self) -> Option<Duration> {
        Some(self.first_token?.saturating_duration_since(self.arrived))
    }

    /// Time per output token after the first; `None` below two tokens.
    #[must_use]
    pub fn tpot(&self) -> Option<Duration> {
        let between = self
            .last_token?
            .saturating_duration_since(self.first_token?);
        let rest = self.tokens.checked_sub(1).filter(|rest| *rest > 0)?;
        Some(Duration::from_secs_f64(between.as_secs_f64() / rest as f64))
    }

    /// Arrival to end; `None` before the end.
    #[must_use]
    pub fn end_to_end(&self) -> Option<Duration> {
        Some(self.ended?.saturating_duration_since(self.arrived))
    }

    /// Lease to first token: what vLLM calls prefill time.
    #[must_use]
    pub fn lease_to_first_token(&self) -> Option<Duration> {
        Some(self.first_token?.saturating_duration_since(self.reserved?))
    }

    /// Lease to last token: what vLLM calls inference time.
    #[must_use]
    pub fn lease_to_last_token(&self) -> Option<Duration> {
        Some(self.last_token?.saturating_duration_since(self.reserved?))
    }

    /// How long a stage took; `None` where it was not reached. The last one that was reached lasts until
    /// the end.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> Option<Duration> {
        let (from, to) = self.span(stage)?;
        Some(to.saturating_duration_since(from))
    }

    /// When a stage began and ended, by this side's clock.
    #[must_use]
    pub fn span(&self, stage: Stage) -> Option<(Instant, Instant)> {
        let between = |from: Option<Instant>, to: Option<Instant>| {
            let from = from?;
            Some((from, to.or(self.ended)?.max(from)))
        };
        match stage {
            Stage::Read => between(Some(self.arrived), self.submitted),
            Stage::Queue => between(self.submitted, self.paired),
            Stage::Lease => between(self.paired, self.reserved),
            Stage::PrefillQueue => self.prompt_parts().map(|[a, b, ..]| (a, b)),
            Stage::Prefill => match self.prompt_parts() {
                Some([_, from, to, _]) => Some((from, to)),
                None => between(self.reserved, self.started.or(self.first_token)),
            },
            Stage::Transfer => self.prompt_parts().map(|[.., c, d]| (c, d)),
            Stage::FirstToken => between(self.started, self.first_token),
            Stage::Decode => between(self.first_token, self.last_token),
            Stage::End => between(self.last_token, self.ended),
        }
    }

    /// Lease, first step, last layer, last write. The worker told durations, not moments: the last
    /// write is taken to be the full count.
    fn prompt_parts(&self) -> Option<[Instant; 4]> {
        let (reserved, started, prompt) = (self.reserved?, self.started?, self.prompt?);
        let whole = started.saturating_duration_since(reserved);
        let exposed = prompt.exposed.min(whole);
        let compute = prompt.compute.min(whole - exposed);
        let waited = whole - exposed - compute;
        let begun = reserved + waited;
        Some([reserved, begun, begun + compute, reserved + whole])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn whole(at: impl Fn(u64) -> Instant) -> RequestTimes {
        let mut times = RequestTimes::new(at(0));
        times.submitted(at(10));
        times.paired(at(30));
        times.reserved(at(35));
        times.started(at(135));
        times.tokens_came(at(150), 1);
        times.tokens_came(at(170), 1);
        times.tokens_came(at(230), 3);
        times.ended(at(233));
        times
    }

    fn from_now() -> impl Fn(u64) -> Instant {
        let zero = Instant::now();
        move |n| zero + ms(n)
    }

    #[test]
    fn each_time_is_what_its_definition_says() {
        let mut times = whole(from_now());
        assert_eq!(times.ttft(), Some(ms(150)));
        assert_eq!(times.tpot(), Some(ms(20)), "80 ms for 4 tokens");
        assert_eq!(times.end_to_end(), Some(ms(233)));
        assert_eq!(times.lease_to_first_token(), Some(ms(115)));
        assert_eq!(times.lease_to_last_token(), Some(ms(195)));
        let mut gaps = Vec::new();
        times
            .gaps_mut()
            .take(|mean, count| gaps.push(((mean * 1e3).round(), count)));
        assert_eq!(gaps, [(20.0, 4)], "three tokens of one message share 60 ms");
    }

    #[test]
    fn stages_are_told_apart_by_what_the_prefill_worker_tells() {
        let mut times = whole(from_now());
        let stage = |times: &RequestTimes, stage| times.stage(stage);
        assert_eq!(stage(&times, Stage::Read), Some(ms(10)));
        assert_eq!(stage(&times, Stage::Queue), Some(ms(20)));
        assert_eq!(stage(&times, Stage::Lease), Some(ms(5)));
        assert_eq!(stage(&times, Stage::Prefill), Some(ms(100)));
        assert_eq!(stage(&times, Stage::PrefillQueue), None);
        assert_eq!(stage(&times, Stage::Transfer), None);
        times.prompt(PromptTimes {
            compute: ms(70),
            exposed: ms(6),
        });
        assert_eq!(stage(&times, Stage::PrefillQueue), Some(ms(24)));
        assert_eq!(stage(&times, Stage::Prefill), Some(ms(70)));
        assert_eq!(stage(&times, Stage::Transfer), Some(ms(6)));
        assert_eq!(stage(&times, Stage::FirstToken), Some(ms(15)));
        assert_eq!(stage(&times, Stage::Decode), Some(ms(80)));
        assert_eq!(stage(&times, Stage::End), Some(ms(3)));
    }

    #[test]
    fn a_queue_that_is_waited_in_twice_lasts_until_the_pair_that_took_it_on() {
        let at = from_now();
        let mut times = RequestTimes::new(at(0));
        times.submitted(at(1));
        times.paired(at(2));
        times.paired(at(50));
        times.reserved(at(51));
        times.ended(at(60));
        assert_eq!(times.stage(Stage::Queue), Some(ms(49)));
        assert_eq!(times.stage(Stage::Lease), Some(ms(1)));
        assert_eq!(times.stage(Stage::Prefill), Some(ms(9)), "until the end");
        assert_eq!(times.stage(Stage::Decode), None);
        assert_eq!(times.ttft(), None);
        assert_eq!(times.tpot(), None);
    }

    #[test]
    fn an_answer_that_goes_on_elsewhere_keeps_its_stages_and_has_a_gap() {
        let at = from_now();
        let mut times = RequestTimes::new(at(0));
        times.submitted(at(1));
        times.paired(at(2));
        times.reserved(at(3));
        times.started(at(9));
        times.tokens_came(at(10), 1);
        times.paired(at(20));
        times.reserved(at(21));
        times.started(at(39));
        times.tokens_came(at(40), 1);
        times.prompt(PromptTimes {
            compute: ms(3),
            exposed: ms(1),
        });
        times.ended(at(41));
        assert_eq!(times.ttft(), Some(ms(10)));
        assert_eq!(times.stage(Stage::Queue), Some(ms(1)));
        assert_eq!(
            times.stage(Stage::Prefill),
            Some(ms(6)),
            "of the first pair"
        );
        assert_eq!(times.stage(Stage::Transfer), None);
        assert_eq!(times.tpot(), Some(ms(30)));
    }

    #[test]
    fn one_token_has_no_time_per_token() {
        let at = from_now();
        let mut times = RequestTimes::new(at(0));
        assert!(times.tokens_came(at(1), 1));
        assert_eq!(times.tpot(), None);
        assert!(!times.tokens_came(at(3), 1));
        assert_eq!(times.tpot(), Some(ms(2)));
    }

    proptest! {
        #[test]
        fn the_stages_add_up_to_the_whole(
            steps in proptest::collection::vec(0_u64..1000, 8),
            reached in 0_usize..8,
            told in any::<bool>(),
            (compute, exposed) in (0_u64..2000, 0_u64..2000),
        ) {
            let at = from_now();
            let mut now = 0;
            let mut times = RequestTimes::new(at(now));
            type Moment = fn(&mut RequestTimes, Instant);
            let moments: [Moment; 7] = [
                RequestTimes::submitted,
                RequestTimes::paired,
                RequestTimes::reserved,
                RequestTimes::started,
                |times, now| { times.tokens_came(now, 1); },
                |times, now| { times.tokens_came(now, 1); },
                |times, now| { times.tokens_came(now, 2); },
            ];
            for (moment, step) in moments.iter().zip(&steps).take(reached) {
                now += step;
                moment(&mut times, at(now));
            }
            now += steps[7];
            times.ended(at(now));
            if told {
                times.prompt(PromptTimes { compute: ms(compute), exposed: ms(exposed) });
            }
            let sum: Duration = Stage::ALL.iter().filter_map(|s| times.stage(*s)).sum();
            prop_assert_eq!(Some(sum), times.end_to_end());
        }
    }
}
