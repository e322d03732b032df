//! The engine's thread: commands in, one step after the other, events out.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError, select};
use rayon::ThreadPool;
use tandem_core::SequenceId;
use tokio::sync::mpsc::Sender;

use super::EngineOptions;
use super::constraints::{Compiler, Order};
use super::sequence::{DecodeSequence, Limits, PrefillSequence, Refusal};
use crate::forward::{Forward, SpanInput};
use crate::{Command, EmbeddedModel, Event, Progress, StepItem, StepPlan, StepWatch};

/// Nobody takes events any more.
pub(super) struct Closed;

/// All the thread owns.
pub(super) struct Steps {
    pub(super) model: EmbeddedModel,
    pub(super) options: EngineOptions,
    pub(super) limits: Limits,
    pub(super) pool: ThreadPool,
    compiler: Compiler,
    progress: Arc<Progress>,
    watch: Box<dyn StepWatch>,
    events: Sender<Event>,
    pub(super) forward: Forward,
    /// Logits that a sequence's settings have changed.
    pub(super) changed: Vec<f32>,
    /// The draft head's working memory.
    pub(super) draft: Forward,
    /// In the order they came.
    pub(super) prefills: VecDeque<PrefillSequence>,
    /// Those that wait longest for a step come first.
    pub(super) decodes: Vec<DecodeSequence>,
}

/// What one step runs.
pub(super) struct Plan {
    /// Index in `decodes`.
    pub(super) decodes: Vec<usize>,
    /// The first of `prefills`, with the end of each one's chunk.
    pub(super) prefills: Vec<usize>,
}

impl Steps {
    pub(super) fn new(
        model: EmbeddedModel,
        options: EngineOptions,
        (pool, compiler): (ThreadPool, Compiler),
        progress: Arc<Progress>,
        watch: Box<dyn StepWatch>,
        events: Sender<Event>,
    ) -> Self {
        let description = model.describe();
        let limits = Limits {
            layout: Arc::clone(options.arenas.layout()),
            vocabulary: description.vocabulary,
            context: description.context_length,
        };
        Self {
            model,
            options,
            limits,
            pool,
            compiler,
            progress,
            watch,
            events,
            forward: Forward::default(),
            changed: Vec::new(),
            draft: Forward::default(),
            prefills: VecDeque::new(),
            decodes: Vec::new(),
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
        if self.prefills.is_empty() && !self.decodes.iter().any(DecodeSequence::runs) {
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
                let new = PrefillSequence::new(sequence, tokens, pages, cached, &self.limits);
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
                let (limits, text) = (&self.limits, &self.options.text);
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
        let known = self
            .prefills
            .iter()
            .map(|p| p.id)
            .chain(self.decodes.iter().map(|d| d.id));
        if known.into_iter().any(|id| id == sequence) {
            return Err(Refusal::InUse);
        }
        match self.prefills.len() + self.decodes.len() {
            held if held >= self.options.max_sequences => Err(Refusal::Full(held)),
            _ => Ok(()),
        }
    }

    fn admit(&mut self, new: DecodeSequence, order: Option<Order>) -> Result<(), Refusal> {
        if let Some(order) = order {
            let full = |_| Refusal::Constraints(self.options.max_sequences);
            self.compiler.order(order).map_err(full)?;
        }
        self.decodes.push(new);
        Ok(())
    }

    fn begin_prefill(&mut self, new: PrefillSequence) -> Option<Event> {
        if new.end() == new.done {
            return Some(Event::Prefilled { sequence: new.id });
        }
        self.prefills.push_back(new);
        None
    }

    fn make_ready(
        &mut self,
        sequence: SequenceId,
        context: bool,
    ) -> Result<Option<Event>, Refusal> {
        let found = self.decodes.iter().position(|d| d.id == sequence);
        let index = found.ok_or(Refusal::Unknown)?;
        if self.decodes[index].ready {
            return Err(Refusal::NotWaiting);
        }
        self.decodes[index].ready = true;
        self.decodes[index].drafting = self.begin_drafting(index, context);
        Ok(self.decodes[index].take_end().map(|end| {
            self.decodes.remove(index);
            end.event(sequence)
        }))
    }

    fn remove(&mut self, sequence: SequenceId) -> bool {
        let held = self.prefills.len() + self.decodes.len();
        self.prefills.retain(|p| p.id != sequence);
        self.decodes.retain(|d| d.id != sequence);
        self.prefills.len() + self.decodes.len() < held
    }

    fn plan(&self) -> Plan {
        let ready = self.decodes.iter().enumerate().filter(|(_, d)| d.runs());
        let decodes = ready
            .map(|(index, _)| index)
            .take(self.options.max_batch)
            .collect();
        let chunk = self.options.chunk_tokens as usize;
        let served = self.prefills.iter().take(chunk);
        let left: Vec<usize> = served.map(|p| p.end() - p.done).collect();
        let shares = shares(&left, chunk);
        let prefills = self.prefills.iter().zip(shares);
        let prefills = prefills.map(|(p, tokens)| p.done + tokens).collect();
        Plan { decodes, prefills }
    }

    fn step(&mut self) -> Result<(), Closed> {
        let plan = self.plan();
        if plan.decodes.is_empty() && plan.prefills.is_empty() {
            return Ok(());
        }
        self.announce(&plan);
        self.propose(&plan);
        self.compute(&plan);
        self.look_ahead(&plan);
        self.end_prefills(&plan)?;
        self.end_decodes(&plan)
    }

    fn announce(&mut self, plan: &Plan) {
        if plan.prefills.is_empty() {
            return;
        }
        let item = |(sequence, end): (&PrefillSequence, &usize)| StepItem {
            sequence: sequence.id,
            start: sequence.done as u32,
            end: *end as u32,
            last: *end == sequence.end(),
        };
        let items = self.prefills.iter().zip(&plan.prefills).map(item).collect();
        self.watch.step_planned(StepPlan {
            first_layer: self.progress.layers(),
            items,
        });
    }

    /// Runs the model; the decode sequences' logits stay in `forward`, in the plan's order: of each
    /// one's last token, then of those that were proposed behind it.
    fn compute(&mut self, plan: &Plan) {
        let decodes = plan.decodes.iter().map(|index| &self.decodes[*index]);
        let runs: Vec<Vec<u32>> = decodes.clone().map(DecodeSequence::run).collect();
        let decodes = decodes.zip(&runs).map(|(sequence, tokens)| SpanInput {
            pages: &sequence.pages,
            first: sequence.position(),
            tokens,
            stored: 0,
            logits: tokens.len(),
        });
        let prefills = self.prefills.iter().zip(&plan.prefills);
        let prefills = prefills.map(|(sequence, end)| {
            let stored = self.rerun(sequence);
            let first = sequence.done - stored;
            SpanInput {
                pages: &sequence.pages,
                first,
                tokens: &sequence.tokens[first..*end],
                stored,
                logits: 0,
            }
        });
        let inputs: Vec<SpanInput<'_>> = decodes.chain(prefills).collect();
        let arenas = &self.options.arenas;
        let counted = !plan.prefills.is_empty();
        let (forward, progress, model) = (&mut self.forward, &self.progress, &self.model);
        self.pool.install(|| {
            forward.run(&model.inner, arenas, &inputs, || {
                if counted {
                    progress.bump();
                }
            });
        });
        let rows = runs.iter().map(Vec::len).sum();
        if counted && self.draft_prefills(plan, rows) {
            // The draft layer's entries, and the context.
            self.progress.bump();
            self.progress.bump();
        }
    }

    fn end_prefills(&mut self, plan: &Plan) -> Result<(), Closed> {
        for (sequence, end) in self.prefills.iter_mut().zip(&plan.prefills) {
            sequence.done = *end;
        }
        let mut ended = Vec::new();
        self.prefills.retain(|p| {
            let goes_on = p.done < p.end();
            if !goes_on {
                ended.push(p.id);
            }
            goes_on
        });
        for sequence in ended {
            self.emit(Event::Prefilled { sequence })?;
        }
        Ok(())
    }
}

/// Shares a step's `chunk` tokens among sequences that have `left` tokens to go, at most as many as
/// the chunk has tokens: equal shares, and what the short ones leave goes to the long ones. So a short
/// prompt passes the long ones that were there before it, and each sequence gets at least one token.
fn shares(left: &[usize], chunk: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by_key(|index| left[*index]);
    let mut shares = vec![0; left.len()];
    let mut rest = chunk;
    for (served, index) in order.into_iter().enumerate() {
        let share = left[index].min(rest / (left.len() - served));
        shares[index] = share;
        rest -= share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn a_step_is_shared_equally_and_none_of_it_is_wasted() {
        assert_eq!(shares(&[], 16), [0; 0]);
        assert_eq!(shares(&[2000], 512), [512]);
        assert_eq!(shares(&[2000, 2000, 5], 512), [253, 254, 5]);
        assert_eq!(shares(&[3, 4], 512), [3, 4]);
        assert_eq!(shares(&[9, 9, 9], 4), [1, 1, 2]);
    }
}
