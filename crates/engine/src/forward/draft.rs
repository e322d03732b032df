//! The draft head's own pass: from a token and the hidden state of the token before it to a guess at the
//! token behind.
//!
//! Its layer keeps KV entries like any other, behind the model's layers. The entry of position `t` is
//! made of token `t` and the model's hidden state of position `t - 1` (zeros for the first), so it
//! depends on no token behind `t`: pages of equal prefixes are equal in this layer too.

use crate::arenas::Arenas;
use crate::kernel::attention::Span;
use crate::kernel::elementwise::rms_norm;
use crate::kernel::product::product;
use crate::model::{DraftHead, Llama};
use tandem_core::PageIndex;

use super::{Forward, Row, rows_of, span};

/// Consecutive tokens of one sequence, with what the draft head needs of those before them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftInput<'a> {
    pub(crate) pages: &'a [PageIndex],
    /// Position of the first token.
    pub(crate) first: usize,
    pub(crate) tokens: &'a [u32],
    /// For each token, the hidden state of the one before it.
    pub(crate) contexts: &'a [f32],
}

impl Forward {
    /// Writes the draft layer's KV entries of all inputs' tokens. Where guesses are wanted, the logits
    /// behind each input's last token are in [`Forward::logits`] then, in the order of the inputs, and
    /// its own hidden state in [`Forward::hidden`], by row.
    ///
    /// Runs on the rayon pool it is called in.
    pub(crate) fn draft(
        &mut self,
        model: &Llama,
        head: &DraftHead,
        arenas: &Arenas,
        inputs: &[DraftInput<'_>],
        guess: bool,
    ) {
        let spans: Vec<Span<'_>> = inputs
            .iter()
            .map(|input| span(arenas, input.pages, input.first, input.tokens))
            .collect();
        let rows: Vec<Row> = rows_of(&spans);
        let layer = model.shape.layers as u16;
        self.join(model, head, inputs, rows.len());
        self.project(model, &head.layer, layer, &spans, &rows);
        if !guess {
            return;
        }
        self.attend(model, &head.layer, layer, &spans);
        self.feed_forward(model, &head.layer, rows.len());
        let ends = inputs.iter().scan(0, |end, input| {
            *end += input.tokens.len();
            Some(*end - 1)
        });
        let last: Vec<usize> = ends.collect();
        self.make_logits(model, &head.norm, &last);
    }

    /// Makes one hidden state of each token and its context.
    fn join(&mut self, model: &Llama, head: &DraftHead, inputs: &[DraftInput<'_>], rows: usize) {
        let (size, epsilon) = (model.shape.hidden, model.shape.epsilon);
        let tokens = inputs.iter().flat_map(|input| input.tokens);
        self.embed(model, tokens.copied(), rows);
        let contexts = inputs.iter().flat_map(|i| i.contexts.chunks_exact(size));
        let contexts: Vec<&[f32]> = contexts.collect();
        let embedded = &self.hidden;
        self.quantised.fill(rows, 2 * size, |row, into| {
            let (token, context) = into.split_at_mut(size);
            let embedded = &embedded[row * size..(row + 1) * size];
            rms_norm(embedded, &head.token_norm, epsilon, token);
            rms_norm(contexts[row], &head.hidden_norm, epsilon, context);
        });
        let (joined, spare) = (&mut self.output, &mut self.spare);
        product(&head.projection, &self.quantised, joined, spare);
        self.hidden.copy_from_slice(&self.output[..rows * size]);
    }
}
