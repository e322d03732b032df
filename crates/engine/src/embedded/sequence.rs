//! Sequences in the engine, and what is checked before one gets in.

use std::sync::Arc;

use tandem_core::layout::WorkerLayout;
use tandem_core::{PageIndex, SequenceId};
use tandem_text::{AnswerText, TextModel};

use super::drafting::Drafting;
use crate::{FinishReason, Sampling, StopConditions};

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Refusal {
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
    #[error("{0} is out of range")]
    Setting(&'static str),
}

/// What sequences must fit.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) layout: Arc<WorkerLayout>,
    pub(super) vocabulary: u32,
    pub(super) context: u32,
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
pub(super) struct PrefillSequence {
    pub(super) id: SequenceId,
    pub(super) tokens: Arc<[u32]>,
    pub(super) pages: Arc<[PageIndex]>,
    /// Tokens whose KV entries are computed.
    pub(super) done: usize,
    /// For a draft head: the hidden state of the last of them, where it is known.
    pub(super) carried: Option<Vec<f32>>,
}

impl PrefillSequence {
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
            return Err(Refusal::Setting("the number of cached tokens"));
        }
        Ok(Self {
            id,
            tokens,
            pages,
            done: cached as usize,
            carried: None,
        })
    }

    /// Tokens to compute: all but the last.
    pub(super) fn end(&self) -> usize {
        self.tokens.len() - 1
    }
}

/// A sequence that generates, or will.
pub(super) struct DecodeSequence {
    pub(super) id: SequenceId,
    pub(super) tokens: Vec<u32>,
    pub(super) pages: Arc<[PageIndex]>,
    pub(super) sampling: Sampling,
    pub(super) ready: bool,
    /// What a draft head needs, once the sequence is ready and where there is one.
    pub(super) drafting: Option<Drafting>,
    stop: StopConditions,
    generated: u32,
    answer: AnswerText,
    /// The answer begun elsewhere was already complete.
    complete: Option<FinishReason>,
}

/// What a token brought.
pub(super) struct Grown {
    pub(super) text: String,
    /// Why the sequence ended with this token, and the text that had been held back.
    pub(super) end: Option<(FinishReason, String)>,
}

impl DecodeSequence {
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
        check_settings(&sampling, &stop)?;
        let mut answer = AnswerText::new(text.clone(), stop.stop.clone());
        let mut complete = (generated >= stop.max_tokens).then_some(FinishReason::Length);
        for token in &tokens[tokens.len() - generated as usize..] {
            // Their text was sent by the engine that generated them.
            if answer.push(*token).stopped {
                complete = Some(FinishReason::Stop);
                break;
            }
        }
        let tokens = tokens.to_vec();
        let ready = false;
        Ok(Self {
            id,
            tokens,
            pages,
            sampling,
            ready,
            drafting: None,
            stop,
            generated,
            answer,
            complete,
        })
    }

    /// Position of the token that the next step runs.
    pub(super) fn position(&self) -> usize {
        self.tokens.len() - 1
    }

    /// How many tokens were generated before.
    pub(super) fn generated(&self) -> u32 {
        self.generated
    }

    /// Tokens that can be of use behind the next one: the answer's, and those that there is room for.
    pub(super) fn may_propose(&self, limits: &Limits) -> usize {
        let wanted = self.stop.max_tokens - self.generated - 1;
        let room = limits.room(&self.pages).min(limits.context as usize);
        let after = room.saturating_sub(1 + self.position());
        after.min(wanted as usize)
    }

    /// Where the answer was complete before it came here: why, and what text was held back.
    pub(super) fn take_complete(&mut self) -> Option<(FinishReason, String)> {
        match self.complete.take()? {
            FinishReason::Stop => Some((FinishReason::Stop, String::new())),
            FinishReason::Length => Some((FinishReason::Length, self.answer.finish())),
        }
    }

    /// Takes a generated token.
    pub(super) fn grow(&mut self, token: u32, end_tokens: &[u32], limits: &Limits) -> Grown {
        self.tokens.push(token);
        self.generated += 1;
        if !self.stop.ignore_eos && end_tokens.contains(&token) {
            let held = self.answer.finish();
            return Grown {
                text: String::new(),
                end: Some((FinishReason::Stop, held)),
            };
        }
        let pushed = self.answer.push(token);
        let full = self.generated >= self.stop.max_tokens
            || self.tokens.len() >= limits.context as usize
            || self.position() >= limits.room(&self.pages);
        let end = if pushed.stopped {
            Some((FinishReason::Stop, String::new()))
        } else {
            full.then(|| (FinishReason::Length, self.answer.finish()))
        };
        Grown {
            text: pushed.text,
            end,
        }
    }
}

fn check_settings(sampling: &Sampling, stop: &StopConditions) -> Result<(), Refusal> {
    if !(sampling.temperature >= 0.0 && sampling.temperature.is_finite()) {
        return Err(Refusal::Setting("temperature"));
    }
    if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
        return Err(Refusal::Setting("top_p"));
    }
    if stop.max_tokens == 0 {
        return Err(Refusal::Setting("max_tokens"));
    }
    Ok(())
}
