//! Sequences in the engine, and what is checked before one gets in.

use std::sync::Arc;

use tandem_constraint::Matching;
use tandem_core::layout::WorkerLayout;
use tandem_core::{PageIndex, SequenceId};
use tandem_text::{AnswerText, TextModel};

use super::sampling::Sampler;
use crate::{Event, FinishReason, OutOfRange, Sampling, StopConditions};

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the engine holds {0} sequences already")]
    Full(usize),
    #[error("the sequence is in use")]
    InUse,
    #[error("the sequence is unknown")]
    Unknown,
    #[error("the sequence does not wait to be made ready")]
    NotWaiting,
    #[error("there are no tokens")]
    NoTokens,
    #[error("token {token} at {at} is outside the vocabulary of {vocabulary}")]
    Token {
        token: u32,
        at: usize,
        vocabulary: u32,
    },
    #[error("{tokens} tokens are over the context length of {context}")]
    Context { tokens: usize, context: u32 },
    #[error("{pages} pages have room for {room} tokens, {needed} are needed")]
    Room {
        pages: usize,
        room: usize,
        needed: usize,
    },
    #[error("page {page} is outside the arena of {pages}")]
    Page { page: u32, pages: u32 },
    #[error("{generated} generated tokens of {tokens} leave no prompt")]
    NoPrompt { generated: u32, tokens: usize },
    #[error("{cached} cached tokens of {tokens} leave none to compute")]
    Cached { cached: u32, tokens: usize },
    #[error("{0} constraints wait to be compiled already")]
    Constraints(usize),
    #[error(transparent)]
    Setting(#[from] OutOfRange),
}

/// What sequences must fit.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) layout: Arc<WorkerLayout>,
    pub(crate) vocabulary: u32,
    pub(crate) context: u32,
}

impl Limits {
    /// Tokens that pages have room for.
    pub(super) fn room(&self, pages: &[PageIndex]) -> usize {
        pages.len() * usize::from(self.layout.geometry().page_tokens)
    }

    fn check(
        &self,
        tokens: &[u32],
        pages: &[PageIndex],
        needed: usize,
        most: u32,
    ) -> Result<(), Refusal> {
        if tokens.is_empty() {
            return Err(Refusal::NoTokens);
        }
        if tokens.len() > most as usize {
            return Err(Refusal::Context {
                tokens: tokens.len(),
                context: self.context,
            });
        }
        let vocabulary = self.vocabulary;
        if let Some(at) = tokens.iter().position(|token| *token >= vocabulary) {
            return Err(Refusal::Token {
                token: tokens[at],
                at,
                vocabulary,
            });
        }
        let all = self.layout.pages();
        if let Some(page) = pages.iter().find(|page| page.0 >= all) {
            return Err(Refusal::Page {
                page: page.0,
                pages: all,
            });
        }
        let room = self.room(pages);
        if room < needed {
            return Err(Refusal::Room {
                pages: pages.len(),
                room,
                needed,
            });
        }
        Ok(())
    }
}

/// A prompt on its way into pages.
#[derive(Debug)]
pub(crate) struct PrefillSequence<P> {
    pub(super) id: SequenceId,
    pub(crate) tokens: Arc<[u32]>,
    pub(crate) pages: Arc<[PageIndex]>,
    /// Tokens whose KV entries are computed.
    pub(crate) done: usize,
    /// What the one who computes keeps for it.
    pub(crate) own: P,
}

impl<P: Default> PrefillSequence<P> {
    pub(super) fn new(
        id: SequenceId,
        tokens: Arc<[u32]>,
        pages: Arc<[PageIndex]>,
        cached: u32,
        limits: &Limits,
    ) -> Result<Self, Refusal> {
        let needed = tokens.len().saturating_sub(1);
        limits.check(&tokens, &pages, needed, limits.context)?;
        if cached as usize > needed {
            return Err(Refusal::Cached {
                cached,
                tokens: tokens.len(),
            });
        }
        Ok(Self {
            id,
            tokens,
            pages,
            done: cached as usize,
            own: P::default(),
        })
    }

    /// Tokens to compute: all but the last.
    pub(crate) fn end(&self) -> usize {
        self.tokens.len() - 1
    }
}

/// A sequence that generates, or will.
pub(crate) struct DecodeSequence<A> {
    pub(super) id: SequenceId,
    pub(crate) tokens: Vec<u32>,
    pub(crate) pages: Arc<[PageIndex]>,
    pub(crate) sampler: Sampler,
    pub(super) ready: bool,
    /// What the one who computes keeps for it.
    pub(crate) own: A,
    max_tokens: u32,
    min_tokens: u32,
    generated: u32,
    answer: AnswerText,
    /// The answer begun elsewhere was already complete.
    complete: Option<End>,
}

/// Why a sequence ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished {
        reason: FinishReason,
        /// Text that had been held back.
        text: String,
        stop_text: Option<String>,
    },
    Failed(String),
}

impl End {
    pub(super) fn event(self, sequence: SequenceId) -> Event {
        match self {
            Self::Finished {
                reason,
                text,
                stop_text,
            } => Event::Finished {
                sequence,
                text,
                reason,
                stop_text,
            },
            Self::Failed(message) => Event::Failed { sequence, message },
        }
    }
}

impl<A: Default> DecodeSequence<A> {
    #[expect(clippy::too_many_arguments, reason = "the fields of one command")]
    pub(super) fn new(
        id: SequenceId,
        tokens: &[u32],
        generated: u32,
        pages: Arc<[PageIndex]>,
        sampling: Sampling,
        stop: StopConditions,
        limits: &Limits,
        text: &Arc<TextModel>,
    ) -> Result<Self, Refusal> {
        // A token must still fit behind them.
        limits.check(
            tokens,
            &pages,
            tokens.len(),
            limits.context.saturating_sub(1),
        )?;
        if generated as usize >= tokens.len() {
            return Err(Refusal::NoPrompt {
                generated,
                tokens: tokens.len(),
            });
        }
        sampling.check(limits.vocabulary)?;
        stop.check(limits.vocabulary)?;
        let (prompt, begun) = tokens.split_at(tokens.len() - generated as usize);
        let mut sequence = Self {
            id,
            tokens: tokens.to_vec(),
            pages,
            sampler: Sampler::new(sampling, &stop, text.end_tokens(), (prompt, begun)),
            ready: false,
            own: A::default(),
            max_tokens: stop.max_tokens,
            min_tokens: stop.min_tokens,
            generated,
            answer: AnswerText::new(text.clone(), stop.stop),
            complete: None,
        };
        sequence.complete = sequence.say_again(begun);
        Ok(sequence)
    }

    /// Goes through an answer begun elsewhere: its text was sent by the engine that generated it.
    fn say_again(&mut self, begun: &[u32]) -> Option<End> {
        for (number, token) in (1..).zip(begun) {
            if self.say(*token, number).1 {
                return Some(self.stopped());
            }
        }
        (self.generated >= self.max_tokens).then(|| self.finished(FinishReason::Length))
    }

    /// Takes the answer's token of this number (from 1): its certain text, and whether a stop text has
    /// ended the answer.
    fn say(&mut self, token: u32, number: u32) -> (String, bool) {
        let pushed = if number <= self.min_tokens {
            self.answer.push_through(token)
        } else {
            self.answer.push(token)
        };
        (pushed.text, pushed.stopped)
    }

    fn finished(&mut self, reason: FinishReason) -> End {
        End::Finished {
            reason,
            text: self.answer.finish(),
            stop_text: None,
        }
    }

    fn stopped(&self) -> End {
        End::Finished {
            reason: FinishReason::Stop,
            text: String::new(),
            stop_text: self.answer.stop_text().map(str::to_owned),
        }
    }

    /// Position of the token that the next step runs.
    pub(crate) fn position(&self) -> usize {
        self.tokens.len() - 1
    }

    /// How many tokens were generated before.
    pub(crate) fn generated(&self) -> u32 {
        self.generated
    }

    /// Tokens that can be of use behind the next one: the answer's, and those that there is room for.
    pub(crate) fn may_propose(&self, limits: &Limits) -> usize {
        let wanted = self.max_tokens - self.generated - 1;
        let room = limits.room(&self.pages).min(limits.context as usize);
        let after = room.saturating_sub(1 + self.position());
        after.min(wanted as usize)
    }

    /// Whether it has all that its next step needs.
    pub(super) fn runs(&self) -> bool {
        self.ready && !self.sampler.waits()
    }

    /// How the answer ended, where it was complete before it came here and is ready to say so.
    pub(super) fn take_end(&mut self) -> Option<End> {
        self.complete
            .take_if(|_| self.ready && !self.sampler.waits())
    }

    /// Goes on under its constraint.
    pub(super) fn follow(&mut self, matching: Matching) {
        self.sampler.follow(matching);
        if self.complete.is_none() && self.sampler.is_complete() {
            self.complete = Some(self.finished(FinishReason::Stop));
        }
    }

    /// The end of an answer that nothing may follow.
    pub(super) fn close(&mut self) -> End {
        self.finished(FinishReason::Stop)
    }

    /// Takes a generated token: text that is certain now, and the end where it ends the answer.
    pub(super) fn grow(&mut self, token: u32, limits: &Limits) -> (String, Option<End>) {
        self.tokens.push(token);
        self.generated += 1;
        if self.sampler.ends(token) {
            return (String::new(), Some(self.finished(FinishReason::Stop)));
        }
        let (text, stopped) = self.say(token, self.generated);
        if stopped {
            return (text, Some(self.stopped()));
        }
        let complete = match self.sampler.took(token) {
            Ok(complete) => complete,
            Err(error) => return (text, Some(End::Failed(error.to_string()))),
        };
        if complete {
            return (text, Some(self.finished(FinishReason::Stop)));
        }
        let full = self.generated >= self.max_tokens
            || self.tokens.len() >= limits.context as usize
            || self.position() >= limits.room(&self.pages);
        let end = full.then(|| self.finished(FinishReason::Length));
        (text, end)
    }
}
