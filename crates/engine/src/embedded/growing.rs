//! What a step's logits bring: tokens, guesses that were right, and ends.

use tandem_core::SequenceId;

use super::sampling::{Choice, log_probabilities};
use super::sequence::End;
use super::steps::{Closed, Plan, Steps};
use crate::{Event, TokenLogprob};

impl Steps {
    pub(super) fn end_decodes(&mut self, plan: &Plan) -> Result<(), Closed> {
        let mut ended = Vec::new();
        let mut row = 0;
        for index in &plan.decodes {
            let proposed = self.decodes[*index].take_proposed();
            if let Some(end) = self.grow(row, *index, &proposed)? {
                ended.push((*index, end));
            }
            row += 1 + proposed.len();
        }
        self.finish_drafts(&ended);
        for (_, end) in &ended {
            self.emit(end.clone())?;
        }
        let ended: Vec<SequenceId> = ended.iter().map(|(i, _)| self.decodes[*i].id).collect();
        // Who was served goes to the back.
        if let Some(last) = plan.decodes.last() {
            self.decodes.rotate_left(last + 1);
        }
        self.decodes.retain(|d| !ended.contains(&d.id));
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
        let sequence = self.decodes[index].id;
        let (mut end, mut grown, mut accepted) = (None, 0, 0);
        for guess in proposed.iter().map(Some).chain([None]) {
            let token = match self.sample(row + grown, index) {
                Choice::Token(token) => token,
                Choice::Complete => {
                    end = Some(self.decodes[index].close().event(sequence));
                    break;
                }
                Choice::Failed(why) => {
                    end = Some(End::Failed(why).event(sequence));
                    break;
                }
            };
            let logprobs = self.logprobs(row + grown, index, token);
            let (text, ended) = self.decodes[index].grow(token, &self.limits);
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
        self.keep_contexts(row..row + grown, index);
        if !proposed.is_empty() {
            self.emit(Event::Verified {
                sequence,
                proposed: proposed.to_vec(),
                accepted,
            })?;
        }
        Ok(end)
    }

    fn sample(&mut self, row: usize, index: usize) -> Choice {
        let sequence = &mut self.decodes[index];
        let index = sequence.generated();
        let logits = self.forward.logits(row, &self.model.inner);
        sequence.sampler.choose(logits, index, &mut self.changed)
    }

    fn logprobs(&self, row: usize, index: usize, token: u32) -> Vec<TokenLogprob> {
        let Some(top) = self.decodes[index].sampler.logprobs() else {
            return Vec::new();
        };
        let text = &self.options.text;
        log_probabilities(self.forward.logits(row, &self.model.inner), token, top)
            .into_iter()
            .map(|(token, logprob)| TokenLogprob {
                token,
                bytes: text.token_bytes(token),
                logprob,
            })
            .collect()
    }
}
