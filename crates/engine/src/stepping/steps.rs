//! The loop of an engine's thread.

use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError, select};
use tandem_core::SequenceId;
use tandem_text::TextModel;
use tokio::sync::mpsc::Sender;

use super::batch::{Batch, Plan, StepLimits};
use super::constraints::{Compiler, Order, WAITING};
use super::sequence::{DecodeSequence, Limits, PrefillSequence, Refusal};
use super::{Compute, Parts};
use crate::{Command, Event, Progress, StepWatch};

/// Nobody takes events any more.
pub(super) struct Closed;

/// All the thread owns.
pub(super) struct Steps<C: Compute> {
    pub(super) compute: C,
    pub(super) batch: Batch<C::Prompt, C::Answer>,
    pub(super) text: Arc<TextModel>,
    limits: StepLimits,
    compiler: Compiler,
    progress: Arc<Progress>,
    watch: Box<dyn StepWatch>,
    events: Sender<Event>,
}

/// Who hears of steps.
type Told = (Arc<Progress>, Box<dyn StepWatch>, Sender<Event>);

impl<C: Compute> Steps<C> {
    pub(super) fn new(
        compute: C,
        parts: Parts,
        compiler: Compiler,
        (progress, watch, events): Told,
    ) -> Self {
        let limits = Limits {
            layout: parts.layout,
            vocabulary: parts.description.vocabulary,
            context: parts.description.context_length,
        };
        Self {
            compute,
            batch: Batch::new(limits),
            text: parts.text,
            limits: parts.limits,
            compiler,
            progress,
            watch,
            events,
        }
    }

    /// Until the engine is dropped or nobody takes its events.
    ///
    /// The queue is dropped before the events' sender (parameters go in reverse), also on a panic:
    /// who sees the events end can submit no more.
    pub(super) fn run(mut self, commands: Receiver<Command>) {
        while self
            .take_commands(&commands)
            .and_then(|()| self.step())
            .is_ok()
        {}
    }

    /// Takes all commands at hand; waits for one where there is nothing to run.
    fn take_commands(&mut self, commands: &Receiver<Command>) -> Result<(), Closed> {
        if !self.batch.runs() {
            select! {
                recv(commands) -> command => self.handle(command.map_err(|_| Closed)?)?,
                recv(self.compiler.compiled) -> done => self.compiled(done.map_err(|_| Closed)?)?,
            }
        }
        while let Ok(done) = self.compiler.compiled.try_recv() {
            self.compiled(done)?;
        }
        // No more than the queue holds, so that whoever fills it cannot keep steps from running.
        for _ in 0..super::QUEUE {
            match commands.try_recv() {
                Ok(command) => self.handle(command)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(Closed),
            }
        }
        Ok(())
    }

    pub(super) fn emit(&self, event: Event) -> Result<(), Closed> {
        self.events.blocking_send(event).map_err(|_| Closed)
    }

    fn handle(&mut self, command: Command) -> Result<(), Closed> {
        let (sequence, done) = match command {
            Command::Prefill {
                sequence,
                tokens,
                pages,
                cached,
            } => {
                let new = PrefillSequence::new(sequence, tokens, pages, cached, &self.batch.limits);
                (
                    sequence,
                    self.room_for(sequence)
                        .and(new)
                        .map(|new| self.begin_prefill(new)),
                )
            }
            Command::Admit {
                sequence,
                tokens,
                generated,
                pages,
                sampling,
                stop,
            } => {
                let (limits, text) = (&self.batch.limits, &self.text);
                let constraint = sampling.constraint.clone();
                let new = self.room_for(sequence).and_then(|()| {
                    DecodeSequence::new(
                        sequence, &tokens, generated, pages, sampling, stop, limits, text,
                    )
                });
                let admitted = new.and_then(|new| {
                    let begun = tokens[tokens.len() - generated as usize..].to_vec();
                    self.admit(new, constraint.map(|c| Order::new(sequence, c, begun)))
                });
                (sequence, admitted.map(|()| None))
            }
            Command::MakeReady { sequence, context } => {
                (sequence, self.make_ready(sequence, context))
            }
            Command::Cancel { sequence } => {
                let cancelled = self
                    .remove(sequence)
                    .then_some(Event::Cancelled { sequence });
                (sequence, Ok(cancelled))
            }
        };
        match done {
            Ok(None) => Ok(()),
            Ok(Some(event)) => self.emit(event),
            Err(refusal) => {
                // The event says that its pages are touched no more: that must be so.
                self.remove(sequence);
                self.emit(Event::Failed {
                    sequence,
                    message: refusal.to_string(),
                })
            }
        }
    }

    fn room_for(&self, sequence: SequenceId) -> Result<(), Refusal> {
        self.batch.room_for(sequence, self.limits)
    }

    fn admit(
        &mut self,
        new: DecodeSequence<C::Answer>,
        order: Option<Order>,
    ) -> Result<(), Refusal> {
        if let Some(order) = order {
            let full = |_| Refusal::Constraints(WAITING);
            self.compiler.order(order).map_err(full)?;
        }
        self.batch.decodes.push(new);
        Ok(())
    }

    fn begin_prefill(&mut self, new: PrefillSequence<C::Prompt>) -> Option<Event> {
        if new.end() == new.done {
            return Some(Event::Prefilled { sequence: new.id });
        }
        self.batch.prefills.push_back(new);
        None
    }

    fn make_ready(
        &mut self,
        sequence: SequenceId,
        context: bool,
    ) -> Result<Option<Event>, Refusal> {
        let Batch {
            limits, decodes, ..
        } = &mut self.batch;
        let found = decodes.iter().position(|d| d.id == sequence);
        let index = found.ok_or(Refusal::Unknown)?;
        let made = &mut decodes[index];
        if made.ready {
            return Err(Refusal::NotWaiting);
        }
        made.ready = true;
        self.compute.make_ready(made, limits, context);
        Ok(made.take_end().map(|end| {
            decodes.remove(index);
            end.event(sequence)
        }))
    }

    fn remove(&mut self, sequence: SequenceId) -> bool {
        self.batch.remove(sequence)
    }

    fn step(&mut self) -> Result<(), Closed> {
        let plan = self.batch.plan(self.limits);
        if plan.is_empty() {
            return Ok(());
        }
        if !plan.prefills.is_empty() {
            let layers = self.progress.layers();
            self.watch
                .step_planned(self.batch.announcement(&plan, layers));
        }
        self.compute.run(&mut self.batch, &plan, &self.progress);
        self.look_ahead(&plan);
        for sequence in self.batch.end_prefills(&plan) {
            self.emit(Event::Prefilled { sequence })?;
        }
        self.end_decodes(&plan)
    }

    /// Computes what may come next in the constrained answers of a step, all at once.
    fn look_ahead(&mut self, plan: &Plan) {
        let decodes = &mut self.batch.decodes;
        let constrained = |index: &&usize| decodes[**index].sampler.is_constrained();
        let indices: Vec<usize> = plan.decodes.iter().filter(constrained).copied().collect();
        // One by itself is computed where it is needed.
        if indices.len() > 1 {
            self.compute.look_ahead(decodes, &indices);
        }
    }
}
