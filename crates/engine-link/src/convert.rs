//! Between the schema's messages and the engine boundary's types. What the other process sends is
//! checked here.

use std::sync::Arc;

use tandem_core::{PageIndex, SequenceId};
use tandem_engine::{Command, Event, FinishReason, StepItem, StepPlan, TokenLogprob};
use tandem_wire::convert::{Nonsense, nonsense};
use tandem_wire::proto;
use tandem_wire::proto::from_agent::Kind as Asked;
use tandem_wire::proto::from_engine::Kind as Said;

use crate::settings;

/// What an engine says after its hello.
pub(crate) enum Heard {
    Step(StepPlan),
    Event(Event),
}

fn numbers(pages: &Arc<[PageIndex]>) -> Vec<u32> {
    pages.iter().map(|p| p.0).collect()
}

fn pages(numbers: Vec<u32>) -> Arc<[PageIndex]> {
    numbers.into_iter().map(PageIndex).collect()
}

pub(crate) fn command(command: Command) -> proto::FromAgent {
    let kind = match command {
        Command::Prefill {
            sequence,
            tokens,
            pages,
            cached,
        } => Asked::Prefill(proto::Prefill {
            sequence: sequence.0,
            tokens: tokens.to_vec(),
            pages: numbers(&pages),
            cached,
        }),
        Command::Admit {
            sequence,
            tokens,
            generated,
            pages,
            sampling,
            stop,
        } => Asked::Admit(proto::Admit {
            sequence: sequence.0,
            tokens: tokens.to_vec(),
            generated,
            pages: numbers(&pages),
            sampling: Some(settings::sampling(&sampling)),
            stop: Some(settings::stop(stop)),
        }),
        Command::MakeReady { sequence, context } => Asked::MakeReady(proto::MakeReady {
            sequence: sequence.0,
            context,
        }),
        Command::Cancel { sequence } => Asked::Cancel(sequence.0),
    };
    proto::FromAgent { kind: Some(kind) }
}

pub(crate) fn read_command(message: proto::FromAgent) -> Result<Command, Nonsense> {
    Ok(match message.kind.ok_or_else(|| nonsense("no command"))? {
        Asked::Prefill(p) => Command::Prefill {
            sequence: SequenceId(p.sequence),
            tokens: p.tokens.into(),
            pages: pages(p.pages),
            cached: p.cached,
        },
        Asked::Admit(a) => {
            let sampling = a.sampling.ok_or_else(|| nonsense("no sampling"))?;
            let stop = a.stop.ok_or_else(|| nonsense("no stop conditions"))?;
            Command::Admit {
                sequence: SequenceId(a.sequence),
                tokens: a.tokens.into(),
                generated: a.generated,
                pages: pages(a.pages),
                sampling: settings::read_sampling(sampling)?,
                stop: settings::read_stop(stop),
            }
        }
        Asked::MakeReady(m) => Command::MakeReady {
            sequence: SequenceId(m.sequence),
            context: m.context,
        },
        Asked::Cancel(sequence) => Command::Cancel {
            sequence: SequenceId(sequence),
        },
    })
}

pub(crate) fn step(plan: &StepPlan) -> proto::FromEngine {
    let item = |i: &StepItem| proto::StepItem {
        sequence: i.sequence.0,
        start: i.start,
        end: i.end,
        last: i.last,
    };
    let step = proto::Step {
        first_layer: plan.first_layer,
        items: plan.items.iter().map(item).collect(),
    };
    proto::FromEngine {
        kind: Some(Said::Step(step)),
    }
}

pub(crate) fn event(event: Event) -> proto::FromEngine {
    let kind = match event {
        Event::Prefilled { sequence } => Said::Prefilled(proto::Prefilled {
            sequence: sequence.0,
        }),
        Event::Token {
            sequence,
            token,
            text,
            logprobs,
        } => Said::Token(proto::EngineToken {
            sequence: sequence.0,
            token,
            text,
            logprobs: logprobs.into_iter().map(logprob).collect(),
        }),
        Event::Verified {
            sequence,
            proposed,
            accepted,
        } => Said::Verified(proto::Verified {
            sequence: sequence.0,
            proposed,
            accepted,
        }),
        Event::Finished {
            sequence,
            text,
            reason,
            stop_text,
        } => {
            let reason = match reason {
                FinishReason::Stop => proto::FinishReason::Stop,
                FinishReason::Length => proto::FinishReason::Length,
            };
            Said::Finished(proto::EngineFinished {
                sequence: sequence.0,
                text,
                reason: reason.into(),
                stop_text: stop_text.unwrap_or_default(),
            })
        }
        Event::Cancelled { sequence } => Said::Cancelled(sequence.0),
        Event::Failed { sequence, message } => Said::Failed(proto::SequenceFailed {
            sequence: sequence.0,
            message,
        }),
    };
    proto::FromEngine { kind: Some(kind) }
}

fn logprob(l: TokenLogprob) -> proto::Logprob {
    proto::Logprob {
        token: l.token,
        bytes: l.bytes.into(),
        logprob: l.logprob,
    }
}

pub(crate) fn read(message: proto::FromEngine) -> Result<Heard, Nonsense> {
    let said = message.kind.ok_or_else(|| nonsense("an empty message"))?;
    Ok(Heard::Event(match said {
        Said::Hello(_) => return Err(nonsense("a second hello")),
        Said::Step(step) => {
            let item = |i: proto::StepItem| StepItem {
                sequence: SequenceId(i.sequence),
                start: i.start,
                end: i.end,
                last: i.last,
            };
            return Ok(Heard::Step(StepPlan {
                first_layer: step.first_layer,
                items: step.items.into_iter().map(item).collect(),
            }));
        }
        Said::Prefilled(p) => Event::Prefilled {
            sequence: SequenceId(p.sequence),
        },
        Said::Token(t) => Event::Token {
            sequence: SequenceId(t.sequence),
            token: t.token,
            text: t.text,
            logprobs: t
                .logprobs
                .into_iter()
                .map(|l| TokenLogprob {
                    token: l.token,
                    bytes: l.bytes.to_vec(),
                    logprob: l.logprob,
                })
                .collect(),
        },
        Said::Verified(v) => Event::Verified {
            sequence: SequenceId(v.sequence),
            proposed: v.proposed,
            accepted: v.accepted,
        },
        Said::Finished(f) => Event::Finished {
            sequence: SequenceId(f.sequence),
            reason: match f.reason() {
                proto::FinishReason::Stop => FinishReason::Stop,
                proto::FinishReason::Length => FinishReason::Length,
                other => return Err(nonsense(format!("finished by {other:?}"))),
            },
            text: f.text,
            stop_text: Some(f.stop_text).filter(|text| !text.is_empty()),
        },
        Said::Cancelled(sequence) => Event::Cancelled {
            sequence: SequenceId(sequence),
        },
        Said::Failed(f) => Event::Failed {
            sequence: SequenceId(f.sequence),
            message: f.message,
        },
    }))
}

/// The sequence that an event ends, if it does.
pub(crate) const fn ends(event: &Event) -> Option<SequenceId> {
    match event {
        Event::Token { .. } | Event::Verified { .. } => None,
        Event::Prefilled { sequence }
        | Event::Finished { sequence, .. }
        | Event::Cancelled { sequence }
        | Event::Failed { sequence, .. } => Some(*sequence),
    }
}

#[cfg(test)]
mod fuzz;
