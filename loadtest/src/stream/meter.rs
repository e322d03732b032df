//! One answer's clock. Pure: times come from outside, in microseconds from the scheduled send.

use serde::{Deserialize, Serialize};

use super::chunk::{self, Part, Told, Usage};
use super::sse::{EventTooLong, Sse};

/// Why a stream is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// An event that is not an answer's.
    #[error("garbage in the stream: {problem}, in {excerpt:?}")]
    Garbage {
        /// What is wrong with it.
        problem: String,
        /// Its beginning.
        excerpt: String,
    },
    /// An event without an end.
    #[error(transparent)]
    TooLong(#[from] EventTooLong),
    /// The server's own error.
    #[error("the server ended the stream with an error: {0}")]
    Server(String),
    /// The connection ended before the answer did.
    #[error("the stream stopped after {events} events, without a finish_reason or [DONE]")]
    Stopped {
        /// Events with tokens until then.
        events: usize,
    },
    /// An answer of no tokens.
    #[error("the stream ended well, but without a token")]
    Empty,
}

/// Where the number of an answer's tokens comes from, and of each event's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// Each event's own usage.
    ChunkUsage,
    /// The last usage, which counts as many tokens as there were events.
    Usage,
    /// The last usage, which counts other than the events: spread over them evenly.
    UsageSpread,
    /// No usage: an event counts as a token.
    Chunks,
}

/// An answer's times, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerTimes {
    /// To the first token.
    pub ttft_us: u64,
    /// To the last one.
    pub last_token_us: u64,
    /// For an output token after the first event; `None` where nothing came after it.
    pub tpot_us: Option<f64>,
    /// Each ITL, with how many tokens have it.
    pub itl_us: Vec<(u64, u32)>,
    /// Each gap between events with tokens.
    pub gaps_us: Vec<u64>,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Where that number comes from.
    pub token_source: TokenSource,
    /// Tokens of the prompt, where the server said.
    pub input_tokens: Option<u64>,
    /// Those of them that it had in its cache, where it said.
    pub cached_tokens: Option<u64>,
    /// Why the answer ended, where the server said.
    pub finish_reason: Option<String>,
}

/// One answer so far.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    sse: Sse,
    story: Story,
}

#[derive(Debug, Default)]
struct Story {
    keep_text: bool,
    text: String,
    /// When each event with tokens came, and its tokens by its own usage.
    arrivals: Vec<(u64, u32)>,
    usage: Option<Usage>,
    /// Tokens that usages counted until now, where they came with text.
    counted: u64,
    /// Events with tokens that had a usage of their own.
    own_usages: usize,
    finish_reason: Option<String>,
    done: bool,
}

const EXCERPT: usize = 80;

impl Meter {
    /// `keep_text`: the answer is wanted for the session's next turn.
    pub(crate) fn new(keep_text: bool) -> Self {
        let story = Story {
            keep_text,
            ..Story::default()
        };
        Self {
            sse: Sse::default(),
            story,
        }
    }

    /// Takes bytes that came at a time.
    pub(crate) fn push(&mut self, at_us: u64, bytes: &[u8]) -> Result<(), StreamError> {
        let story = &mut self.story;
        self.sse.push(bytes, |data| story.event(at_us, data))
    }

    /// Whether the stream has said that it is over.
    pub(crate) const fn is_done(&self) -> bool {
        self.story.done
    }

    /// Events with tokens so far.
    pub(crate) const fn events(&self) -> usize {
        self.story.arrivals.len()
    }

    /// To the first token, where it has come.
    pub(crate) fn ttft_us(&self) -> Option<u64> {
        self.story.arrivals.first().map(|(at, _)| *at)
    }

    /// The answer's text, where it was kept.
    pub(crate) fn take_text(&mut self) -> String {
        std::mem::take(&mut self.story.text)
    }

    /// The times of the whole answer, now that its bytes have ended.
    pub(crate) fn finish(&self) -> Result<AnswerTimes, StreamError> {
        let story = &self.story;
        let events = story.arrivals.len();
        if !(story.done || story.finish_reason.is_some() && self.sse.is_between_events()) {
            return Err(StreamError::Stopped { events });
        }
        story.times().ok_or(StreamError::Empty)
    }
}

impl Story {
    fn event(&mut self, at_us: u64, data: &[u8]) -> Result<(), StreamError> {
        match chunk::read(data, self.keep_text) {
            Ok(Told::Done) => self.done = true,
            Ok(Told::Error(message)) => return Err(StreamError::Server(message)),
            Ok(Told::Part(part)) => self.part(at_us, part),
            Err(problem) => {
                let excerpt = String::from_utf8_lossy(&data[..data.len().min(EXCERPT)]);
                return Err(StreamError::Garbage {
                    problem,
                    excerpt: excerpt.into_owned(),
                });
            }
        }
        Ok(())
    }

    fn part(&mut self, at_us: u64, part: Part) {
        let mut tokens = 0;
        if let Some(usage) = part.usage {
            tokens = usage.completion_tokens.saturating_sub(self.counted);
            // A usage without text at the end counts what came before it.
            let is_last = self.finish_reason.is_some() || part.finish_reason.is_some();
            if part.has_text || !is_last && tokens > 0 {
                self.counted = usage.completion_tokens;
                self.own_usages += 1;
            } else {
                tokens = 0;
            }
            self.usage = Some(usage);
        }
        if part.has_text || tokens > 0 {
            let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
            self.arrivals.push((at_us, tokens));
        }
        self.text.push_str(&part.text);
        if part.finish_reason.is_some() {
            self.finish_reason = part.finish_reason;
        }
    }

    /// `None` where no token came.
    fn times(&self) -> Option<AnswerTimes> {
        let (ttft_us, _) = *self.arrivals.first()?;
        let (last_token_us, _) = *self.arrivals.last()?;
        let (output_tokens, token_source) = self.count();
        let tokens = self.tokens(output_tokens, token_source);
        let pairs = self.arrivals.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let gaps_us: Vec<u64> = pairs.collect();
        let later: u64 = tokens.iter().skip(1).map(|n| u64::from(*n)).sum();
        let span = (last_token_us - ttft_us) as f64;
        Some(AnswerTimes {
            ttft_us,
            last_token_us,
            tpot_us: (later > 0).then(|| span / later as f64),
            itl_us: itl(&gaps_us, &tokens[1..]),
            gaps_us,
            output_tokens,
            token_source,
            input_tokens: self.usage.map(|usage| usage.prompt_tokens),
            cached_tokens: self
                .usage
                .map(|usage| usage.prompt_tokens_details.cached_tokens),
            finish_reason: self.finish_reason.clone(),
        })
    }

    fn count(&self) -> (u64, TokenSource) {
        let events = self.arrivals.len() as u64;
        match self.usage.map(|usage| usage.completion_tokens) {
            None | Some(0) => (events, TokenSource::Chunks),
            Some(tokens) if self.own_usages == self.arrivals.len() => {
                (tokens, TokenSource::ChunkUsage)
            }
            Some(tokens) if tokens == events => (tokens, TokenSource::Usage),
            Some(tokens) => (tokens, TokenSource::UsageSpread),
        }
    }

    /// The tokens of each event.
    fn tokens(&self, all: u64, source: TokenSource) -> Vec<u32> {
        let events = self.arrivals.len() as u64;
        let spread = |i: u64| ((i + 1) * all / events - i * all / events) as u32;
        match source {
            TokenSource::ChunkUsage => self.arrivals.iter().map(|(_, tokens)| *tokens).collect(),
            TokenSource::Usage | TokenSource::Chunks => vec![1; self.arrivals.len()],
            TokenSource::UsageSpread => (0..events).map(spread).collect(),
        }
    }
}

/// Each gap, divided by the tokens that ended it. An event without a token adds its gap to the next one's.
fn itl(gaps_us: &[u64], tokens: &[u32]) -> Vec<(u64, u32)> {
    let mut waited = 0;
    let mut itl = Vec::with_capacity(gaps_us.len());
    for (gap, tokens) in gaps_us.iter().zip(tokens) {
        waited += gap;
        if *tokens > 0 {
            let each = (waited as f64 / f64::from(*tokens)).round() as u64;
            itl.push((each, *tokens));
            waited = 0;
        }
    }
    itl
}

#[cfg(test)]
mod tests;
