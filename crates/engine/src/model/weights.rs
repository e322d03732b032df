//! A Llama's weights, as the kernels want them.

use std::path::Path;

use super::error::LoadError;
use super::shape::LlamaShape;
use crate::kernel::BLOCK;
use crate::kernel::matrix::{FILE_BLOCK_Q4_0, FILE_BLOCK_Q4_1, FILE_BLOCK_Q8_0, Matrix};

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
    DraftTokenNorm(usize),
    DraftHiddenNorm(usize),
    DraftProjection(usize),
    DraftNorm(usize),
    DraftEmbedding(usize),
    DraftOutput(usize),
}

/// A tensor as a file holds it: rows of equal length.
pub(crate) enum RawTensor {
    /// Row after row.
    Numbers(Vec<f32>),
    /// Row after row, in blocks as the file has them.
    Blocks(BlockKind, Vec<u8>),
}

/// The quantisations that are computed with as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Q8_0,
    Q4_0,
    Q4_1,
}

impl BlockKind {
    const fn is_of_4_bits(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q4_1)
    }

    /// Bytes of 32 numbers.
    const fn bytes(self) -> usize {
        match self {
            Self::Q8_0 => FILE_BLOCK_Q8_0,
            Self::Q4_0 => FILE_BLOCK_Q4_0,
            Self::Q4_1 => FILE_BLOCK_Q4_1,
        }
    }

    fn set_row(self, matrix: &mut Matrix, row: usize, bytes: &[u8]) {
        match self {
            Self::Q8_0 => matrix.set_row_q8_0(row, bytes),
            Self::Q4_0 => matrix.set_row_q4_0(row, bytes),
            Self::Q4_1 => matrix.set_row_q4_1(row, bytes),
        }
    }
}

impl RawTensor {
    fn is_of_4_bits(&self) -> bool {
        matches!(self, Self::Blocks(kind, _) if kind.is_of_4_bits())
    }

    /// Sets the rows of a matrix from `first` on. Rows of 4 bits that go into a matrix of 8 are
    /// quantised anew.
    fn set_rows(&self, matrix: &mut Matrix, first: usize, four: bool) {
        let columns = matrix.columns();
        match self {
            Self::Numbers(numbers) => {
                for (row, numbers) in numbers.chunks_exact(columns).enumerate() {
                    matrix.set_row(first + row, numbers);
                }
            }
            Self::Blocks(kind, bytes) => {
                let mut one = Matrix::of_4_bits(1, columns);
                let mut numbers = vec![0.0; columns];
                let per_row = columns / BLOCK * kind.bytes();
                for (row, bytes) in bytes.chunks_exact(per_row).enumerate() {
                    if four == kind.is_of_4_bits() {
                        kind.set_row(matrix, first + row, bytes);
                    } else {
                        kind.set_row(&mut one, 0, bytes);
                        one.read_row(0, &mut numbers);
                        matrix.set_row(first + row, &numbers);
                    }
                }
            }
        }
    }
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
    pub(crate) draft: Option<DraftHead>,
}

/// What guesses the token after next (multi-token prediction): one transformer layer over a token and
/// the hidden state of the one before it. Embedding and output matrix are the model's own.
#[derive(Debug)]
pub(crate) struct DraftHead {
    /// Of the token's embedding.
    pub(crate) token_norm: Vec<f32>,
    /// Of the hidden state that the model's last layer gave for the token before.
    pub(crate) hidden_norm: Vec<f32>,
    /// From both, one behind the other, to a hidden state.
    pub(crate) projection: Matrix,
    pub(crate) layer: LayerWeights,
    /// Before the output matrix.
    pub(crate) norm: Vec<f32>,
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
            draft: match shape.drafts {
                0 => None,
                _ => Some(DraftHead::load(shape, source, shape.layers)?),
            },
        })
    }

    /// The matrix that makes logits.
    pub(crate) fn output(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}

impl DraftHead {
    /// The head whose tensors a file counts as those of layer `i`.
    fn load(
        shape: &LlamaShape,
        source: &mut dyn TensorSource,
        i: usize,
    ) -> Result<Self, LoadError> {
        let own = [Part::DraftEmbedding(i), Part::DraftOutput(i)];
        if let Some(part) = own.into_iter().find(|part| source.has(*part)) {
            return Err(LoadError::unsupported(
                source.path(),
                format!("a draft head with a {part:?} of its own"),
            ));
        }
        let hidden = shape.hidden;
        let projection = [(Part::DraftProjection(i), hidden)];
        Ok(Self {
            token_norm: vector(source, Part::DraftTokenNorm(i), hidden)?,
            hidden_norm: vector(source, Part::DraftHiddenNorm(i), hidden)?,
            projection: matrix(source, &projection, 2 * hidden)?,
            layer: LayerWeights::load(shape, source, i)?,
            norm: vector(source, Part::DraftNorm(i), hidden)?,
        })
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

/// Several tensors, one below the other: in 4-bit blocks where the file has all of them so, in 8-bit
/// blocks otherwise.
fn matrix(
    source: &mut dyn TensorSource,
    parts: &[(Part, usize)],
    columns: usize,
) -> Result<Matrix, LoadError> {
    let tensors = parts
        .iter()
        .map(|(part, rows)| source.tensor(*part, *rows, columns))
        .collect::<Result<Vec<_>, _>>()?;
    let rows = parts.iter().map(|(_, rows)| rows).sum();
    let four = tensors.iter().all(RawTensor::is_of_4_bits);
    let mut matrix = if four {
        Matrix::of_4_bits(rows, columns)
    } else {
        Matrix::of_8_bits(rows, columns)
    };
    let mut first = 0;
    for (tensor, (_, rows)) in tensors.iter().zip(parts) {
        tensor.set_rows(&mut matrix, first, four);
        first += rows;
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
        RawTensor::Blocks(..) => Err(LoadError::unsupported(
            source.path(),
            format!("a quantised {part:?}"),
        )),
    }
}
