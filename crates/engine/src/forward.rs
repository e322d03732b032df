//! One forward pass over tokens of many sequences.

use rayon::prelude::*;
use tandem_core::PageIndex;

use crate::arenas::Arenas;
use crate::kernel::activations::Activations;
use crate::kernel::attention::{Span, attention};
use crate::kernel::elementwise::{add, rms_norm, silu_times};
use crate::kernel::pages::KvPages;
use crate::kernel::product::product;
use crate::model::{LayerWeights, Llama};

mod draft;
pub(crate) use draft::DraftInput;

/// Consecutive tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanInput<'a> {
    pub(crate) pages: &'a [PageIndex],
    /// Position of the first token.
    pub(crate) first: usize,
    pub(crate) tokens: &'a [u32],
    /// Tokens, from the first on, whose KV entries are in the pages already and are not written.
    pub(crate) stored: usize,
    /// Tokens, up to the last one, whose logits are wanted.
    pub(crate) logits: usize,
}

/// Working memory of forward passes, kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct Forward {
    hidden: Vec<f32>,
    quantised: Activations,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    output: Vec<f32>,
    logits: Vec<f32>,
    spare: Vec<f32>,
}

impl Forward {
    /// Runs all spans' tokens through the model, writing their KV entries. Calls `after_layer` once
    /// for each layer, after its attention output projection. The wanted logits are in
    /// [`Forward::logits`] then.
    ///
    /// Runs on the rayon pool it is called in.
    ///
    /// # Panics
    /// Where tokens or pages are out of range: the engine checks commands first.
    pub(crate) fn run(
        &mut self,
        model: &Llama,
        arenas: &Arenas,
        inputs: &[SpanInput<'_>],
        mut after_layer: impl FnMut(),
    ) {
        let spans: Vec<Span<'_>> = inputs
            .iter()
            .map(|input| span(arenas, input.pages, input.first, input.tokens))
            .collect();
        let mut rows: Vec<Row> = rows_of(&spans);
        for row in &mut rows {
            let input = &inputs[row.span];
            row.stored = row.position < input.first + input.stored;
        }
        let tokens = inputs.iter().flat_map(|input| input.tokens);
        self.embed(model, tokens.copied(), rows.len());
        for (layer, weights) in model.weights.layers.iter().enumerate() {
            self.project(model, weights, layer as u16, &spans, &rows);
            self.attend(model, weights, layer as u16, &spans);
            after_layer();
            self.feed_forward(model, weights, rows.len());
        }
        let mut wanted = Vec::new();
        let mut end = 0;
        for input in inputs {
            end += input.tokens.len();
            wanted.extend(end - input.logits..end);
        }
        self.make_logits(model, &model.weights.norm, &wanted);
    }

    /// The hidden state that the last layer gave for a row: all spans' tokens, one after the other.
    pub(crate) fn hidden(&self, row: usize, model: &Llama) -> &[f32] {
        let size = model.shape.hidden;
        &self.hidden[row * size..(row + 1) * size]
    }

    /// The logits of the `row`th token that they were wanted of.
    pub(crate) fn logits(&self, row: usize, model: &Llama) -> &[f32] {
        &self.logits[row * model.weights.output().width()..][..model.shape.vocabulary]
    }

    fn embed(&mut self, model: &Llama, tokens: impl Iterator<Item = u32>, rows: usize) {
        let size = model.shape.hidden;
        self.hidden.resize(rows * size, 0.0);
        for (token, row) in tokens.zip(self.hidden.chunks_exact_mut(size)) {
            model.weights.embedding.read_row(token as usize, row);
        }
    }

    /// Queries, keys and values of all rows; keys and values go to the pages.
    fn project(
        &mut self,
        model: &Llama,
        weights: &LayerWeights,
        layer: u16,
        spans: &[Span<'_>],
        rows: &[Row],
    ) {
        let shape = &model.shape;
        let size = shape.hidden;
        let hidden = &self.hidden;
        self.quantised.fill(rows.len(), size, |row, into| {
            let row = &hidden[row * size..(row + 1) * size];
            rms_norm(row, &weights.attention_norm, shape.epsilon, into);
        });
        product(
            &weights.qkv,
            &self.quantised,
            &mut self.qkv,
            &mut self.spare,
        );
        let width = weights.qkv.width();
        let (query, kv) = (shape.query_width(), shape.kv_width());
        let store = |qkv: &mut [f32], row: &Row| {
            model.rope.turn(&mut qkv[..query + kv], row.position);
            let (keys, values) = qkv[query..query + 2 * kv].split_at(kv);
            if !row.stored {
                spans[row.span].kv.write(layer, row.position, keys, values);
            }
        };
        self.qkv
            .par_chunks_mut(width)
            .zip(rows)
            .with_min_len(8)
            .for_each(|(q, r)| store(q, r));
    }

    /// Attention of projected rows, and its output projection.
    fn attend(&mut self, model: &Llama, weights: &LayerWeights, layer: u16, spans: &[Span<'_>]) {
        let shape = &model.shape;
        let (size, query) = (shape.hidden, shape.query_width());
        let rows = spans.iter().map(|span| span.tokens).sum();
        self.attended.resize(rows * query, 0.0);
        let heads = shape.attention_heads();
        let queries = (&self.qkv[..], weights.qkv.width());
        attention(layer, heads, spans, queries, &mut self.attended);
        let attended = &self.attended;
        self.quantised.fill(rows, query, |row, into| {
            into.copy_from_slice(&attended[row * query..(row + 1) * query]);
        });
        let matrix = &weights.attention_output;
        product(matrix, &self.quantised, &mut self.output, &mut self.spare);
        add(&mut self.hidden, &self.output, size);
    }

    fn feed_forward(&mut self, model: &Llama, weights: &LayerWeights, rows: usize) {
        let shape = &model.shape;
        let (size, inner) = (shape.hidden, shape.feed_forward);
        let hidden = &self.hidden;
        self.quantised.fill(rows, size, |row, into| {
            let row = &hidden[row * size..(row + 1) * size];
            rms_norm(row, &weights.feed_forward_norm, shape.epsilon, into);
        });
        product(
            &weights.gate_up,
            &self.quantised,
            &mut self.gate_up,
            &mut self.spare,
        );
        let width = weights.gate_up.width();
        let gate_up = &self.gate_up;
        self.quantised.fill(rows, inner, |row, into| {
            let (gate, up) = gate_up[row * width..(row + 1) * width].split_at(inner);
            silu_times(gate, &up[..inner], into);
        });
        product(
            &weights.down,
            &self.quantised,
            &mut self.output,
            &mut self.spare,
        );
        add(&mut self.hidden, &self.output, size);
    }

    fn make_logits(&mut self, model: &Llama, norm: &[f32], wanted: &[usize]) {
        let size = model.shape.hidden;
        let hidden = &self.hidden;
        self.quantised.fill(wanted.len(), size, |row, into| {
            let row = &hidden[wanted[row] * size..(wanted[row] + 1) * size];
            rms_norm(row, norm, model.shape.epsilon, into);
        });
        let matrix = model.weights.output();
        product(matrix, &self.quantised, &mut self.logits, &mut self.spare);
    }
}

/// One token's place.
#[derive(Clone, Copy, Debug)]
struct Row {
    span: usize,
    position: usize,
    /// Whether its KV entry is in the pages already.
    stored: bool,
}

fn span<'a>(arenas: &'a Arenas, pages: &'a [PageIndex], first: usize, tokens: &[u32]) -> Span<'a> {
    Span {
        kv: KvPages { arenas, pages },
        first,
        tokens: tokens.len(),
    }
}

fn rows_of(spans: &[Span<'_>]) -> Vec<Row> {
    let positions = |(span, s): (usize, &Span<'_>)| {
        (s.first..s.first + s.tokens).map(move |position| Row {
            span,
            position,
            stored: false,
        })
    };
    spans.iter().enumerate().flat_map(positions).collect()
}

#[cfg(test)]
mod tests;
