//! What a step's logits bring: tokens, guesses that were right, and ends.

use tandem_core::SequenceId;

use super::Compute;
use super::batch::Plan;
use super::sampling::{Choice, log_probabilities};
use super::sequence::End;
use super::steps::{Closed, Steps};
use crate::{Event, TokenLogprob};

impl<C: Compute> Steps<C> {
    pub(super) fn end_decodes(&mut self, plan: &Plan) -> Result<(), Closed> {
        let mut ended = Vec::new();
        let mut row = 0;
        for index in &plan.decodes {
            let proposed = self.compute.proposed(&mut self.batch.decodes[*index]);
            if let Some(end) = self.grow(row, *index, &proposed)? {
                ended.push((*index, end));
            }
            row += 1 + proposed.len();
        }
        self.compute.finish(&self.batch.decodes, &ended);
        for (_, end) in &ended {
            self.emit(end.clone())?;
        }
        let id = |(index, _): &(usize, Event)| self.batch.decodes[*index].id;
        let ended: Vec<SequenceId> = ended.iter().map(id).collect();
        self.batch.end_decodes(plan, &ended);
        Ok(())
    }

    /// Chooses a sequence's next token, and as many behind it as were proposed rightly. Its logits are
    /// those from `row` on. What ends it, where it ends.
    fn grow(
        &mut self,
        row: usize,
        index: usize,
        proposed: &[u32],
    ) -> Result<Option<Event>, Closed> {
        let sequence = self.batch.decodes[index].id;
        let (mut end, mut grown, mut accepted) = (None, 0, 0);
        for guess in proposed.iter().map(Some).chain([None]) {
            let of = &mut self.batch.decodes[index];
            let token = match self.compute.choose(row + grown, of) {
                Choice::Token(token) => token,
                Choice::Complete => {
                    end = Some(of.close().event(sequence));
                    break;
                }
                Choice::Failed(why) => {
                    end = Some(End::Failed(why).event(sequence));
                    break;
                }
            };
            let logprobs = self.logprobs(row + grown, index, token);
            let of = &mut self.batch.decodes[index];
            let (text, ended) = of.grow(token, &self.batch.limits);
            grown += 1;
            self.emit(Event::Token {
                sequence,
                token,
                text,
                logprobs,
            })?;
            let right = guess == Some(&token);
            accepted += u32::from(right);
            end = ended.map(|end| end.event(sequence));
            if !right || end.is_some() {
                break;
            }
        }
        let of = &mut self.batch.decodes[index];
        self.compute.keep(row..row + grown, of);
        if !proposed.is_empty() {
            self.emit(Event::Verified {
                sequence,
                proposed: proposed.to_vec(),
                accepted,
            })?;
        }
        Ok(end)
    }

    fn logprobs(&mut self, row: usize, index: usize, token: u32) -> Vec<TokenLogprob> {
        let Some(top) = self.batch.decodes[index].sampler.logprobs() else {
            return Vec::new();
        };
        let text = &self.text;
        log_probabilities(self.compute.logits(row), token, top)
            .into_iter()
            .map(|(token, logprob)| TokenLogprob {
                token,
                bytes: text.token_bytes(token),
                logprob,
            })
            .collect()
    }
}
