//! A Llama's weights, as the kernels want them.

use std::path::Path;

use super::error::LoadError;
use super::shape::LlamaShape;
use crate::kernel::BLOCK;
use crate::kernel::matrix::{FILE_BLOCK, Matrix};

/// A tensor's place in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Embedding,
    Output,
    FinalNorm,
    AttentionNorm(usize),
    Query(usize),
    Key(usize),
    Value(usize),
    AttentionOutput(usize),
    FeedForwardNorm(usize),
    Gate(usize),
    Up(usize),
    Down(usize),
}

/// A tensor as a file holds it: rows of equal length.
pub(crate) enum RawTensor {
    /// Row after row.
    Numbers(Vec<f32>),
    /// Row after row, in 8-bit blocks.
    Q8_0(Vec<u8>),
}

/// A file that holds tensors.
pub(crate) trait TensorSource {
    /// Whether the file has the tensor.
    fn has(&self, part: Part) -> bool;

    /// The tensor, which must have `rows` rows of `columns` numbers. Queries and keys come in the
    /// order of [`crate::kernel::rope::Rope`].
    fn tensor(&mut self, part: Part, rows: usize, columns: usize) -> Result<RawTensor, LoadError>;

    /// For messages.
    fn path(&self) -> &Path;
}

/// All weights.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) embedding: Matrix,
    /// `None`: the embedding serves as the output matrix.
    pub(crate) output: Option<Matrix>,
    pub(crate) norm: Vec<f32>,
    pub(crate) layers: Vec<LayerWeights>,
}

/// One layer's weights.
#[derive(Debug)]
pub(crate) struct LayerWeights {
    pub(crate) attention_norm: Vec<f32>,
    /// Queries, then keys, then values.
    pub(crate) qkv: Matrix,
    pub(crate) attention_output: Matrix,
    pub(crate) feed_forward_norm: Vec<f32>,
    /// Gate, then up.
    pub(crate) gate_up: Matrix,
    pub(crate) down: Matrix,
}

impl Weights {
    pub(crate) fn load(
        shape: &LlamaShape,
        source: &mut dyn TensorSource,
    ) -> Result<Self, LoadError> {
        let (hidden, vocabulary) = (shape.hidden, shape.vocabulary);
        let output = if source.has(Part::Output) {
            Some(matrix(source, &[(Part::Output, vocabulary)], hidden)?)
        } else {
            None
        };
        Ok(Self {
            embedding: matrix(source, &[(Part::Embedding, vocabulary)], hidden)?,
            output,
            norm: vector(source, Part::FinalNorm, hidden)?,
            layers: (0..shape.layers)
                .map(|index| LayerWeights::load(shape, source, index))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The matrix that makes logits.
    pub(crate) fn output(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}

impl LayerWeights {
    fn load(
        shape: &LlamaShape,
        source: &mut dyn TensorSource,
        i: usize,
    ) -> Result<Self, LoadError> {
        let (hidden, kv, forward) = (shape.hidden, shape.kv_width(), shape.feed_forward);
        let query = shape.query_width();
        let qkv = [
            (Part::Query(i), query),
            (Part::Key(i), kv),
            (Part::Value(i), kv),
        ];
        let gate_up = [(Part::Gate(i), forward), (Part::Up(i), forward)];
        Ok(Self {
            attention_norm: vector(source, Part::AttentionNorm(i), hidden)?,
            qkv: matrix(source, &qkv, hidden)?,
            attention_output: matrix(source, &[(Part::AttentionOutput(i), hidden)], query)?,
            feed_forward_norm: vector(source, Part::FeedForwardNorm(i), hidden)?,
            gate_up: matrix(source, &gate_up, hidden)?,
            down: matrix(source, &[(Part::Down(i), hidden)], forward)?,
        })
    }
}

/// Several tensors, one below the other, in 8-bit blocks.
fn matrix(
    source: &mut dyn TensorSource,
    parts: &[(Part, usize)],
    columns: usize,
) -> Result<Matrix, LoadError> {
    let mut matrix = Matrix::zeros(parts.iter().map(|(_, rows)| rows).sum(), columns);
    let mut row = 0;
    for (part, rows) in parts {
        match source.tensor(*part, *rows, columns)? {
            RawTensor::Numbers(numbers) => {
                for numbers in numbers.chunks_exact(columns) {
                    matrix.set_row(row, numbers);
                    row += 1;
                }
            }
            RawTensor::Q8_0(bytes) => {
                for bytes in bytes.chunks_exact(columns / BLOCK * FILE_BLOCK) {
                    matrix.set_row_q8_0(row, bytes);
                    row += 1;
                }
            }
        }
    }
    Ok(matrix)
}

fn vector(
    source: &mut dyn TensorSource,
    part: Part,
    numbers: usize,
) -> Result<Vec<f32>, LoadError> {
    match source.tensor(part, 1, numbers)? {
        RawTensor::Numbers(numbers) => Ok(numbers),
        RawTensor::Q8_0(_) => Err(LoadError::unsupported(
            source.path(),
            format!("a quantised {part:?}"),
        )),
    }
}
