//! A weight matrix in 8-bit or 4-bit blocks.

use half::f16;

use super::blocks::{Block, Block4, Block8};
use super::{BLOCK, LANES};

/// Bytes of a `Q8_0` block in a file: a half-precision scale, then 32 signed bytes.
pub(crate) const FILE_BLOCK_Q8_0: usize = 2 + BLOCK;

/// Bytes of a `Q4_0` block in a file: a half-precision scale, then 32 four-bit numbers.
pub(crate) const FILE_BLOCK_Q4_0: usize = 2 + BLOCK / 2;

/// Bytes of a `Q4_1` block in a file: a half-precision scale and least weight, then 32 four-bit
/// numbers.
pub(crate) const FILE_BLOCK_Q4_1: usize = 4 + BLOCK / 2;

/// A matrix `[rows][columns]` whose rows' blocks of 32 columns are quantised.
///
/// Rows are kept in groups of eight, the last one filled up with zeros.
#[derive(Debug)]
pub(crate) struct Matrix {
    rows: usize,
    columns: usize,
    blocks: Blocks,
}

/// A matrix's blocks: those of one group after the other, each group's in the order of columns.
#[derive(Debug)]
pub(crate) enum Blocks {
    /// Of 8 bits.
    Eight(Vec<Block8>),
    /// Of 4 bits.
    Four(Vec<Block4>),
}

impl Matrix {
    /// A matrix of 8-bit blocks, all zeros.
    ///
    /// # Panics
    /// Where `columns` is no multiple of [`BLOCK`] (loaders check shapes first).
    pub(crate) fn of_8_bits(rows: usize, columns: usize) -> Self {
        let count = blocks(rows, columns);
        Self {
            rows,
            columns,
            blocks: Blocks::Eight(vec![Block8::ZERO; count]),
        }
    }

    /// A matrix of 4-bit blocks, all zeros; panics as [`Matrix::of_8_bits`].
    pub(crate) fn of_4_bits(rows: usize, columns: usize) -> Self {
        let count = blocks(rows, columns);
        Self {
            rows,
            columns,
            blocks: Blocks::Four(vec![Block4::ZERO; count]),
        }
    }

    /// Columns: the length of an input row.
    pub(crate) const fn columns(&self) -> usize {
        self.columns
    }

    /// Length of an output row: the matrix's rows, rounded up to whole groups.
    pub(crate) const fn width(&self) -> usize {
        self.rows.div_ceil(LANES) * LANES
    }

    /// All blocks; a group has `columns / 32`.
    pub(crate) const fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Quantises a row: each block's largest magnitude becomes 127.
    ///
    /// # Panics
    /// As all setters, where the row does not fit, or the blocks are of the other kind.
    pub(crate) fn set_row(&mut self, row: usize, numbers: &[f32]) {
        assert_eq!(numbers.len(), self.columns, "row of another length");
        let (blocks, lane) = self.row_of_8_bits(row);
        for (numbers, into) in numbers.chunks_exact(BLOCK).zip(blocks) {
            let largest = numbers.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            let quants = |i: usize| (numbers[i] * inverse).round() as i8;
            into.set(lane, f16::from_f32(largest / 127.0), quants);
        }
    }

    /// Takes a row of `Q8_0` blocks as a file holds them.
    pub(crate) fn set_row_q8_0(&mut self, row: usize, bytes: &[u8]) {
        let (blocks, lane) = self.row_of_8_bits(row);
        let bytes = bytes.as_chunks::<FILE_BLOCK_Q8_0>();
        assert_eq!(
            (bytes.0.len(), bytes.1),
            (blocks.len(), &[][..]),
            "row of another length"
        );
        for (bytes, into) in bytes.0.iter().zip(blocks) {
            into.set(lane, half(&bytes[..2]), |i| bytes[2 + i].cast_signed());
        }
    }

    /// Takes a row of `Q4_0` blocks: a quant of 8 stands for 0.
    pub(crate) fn set_row_q4_0(&mut self, row: usize, bytes: &[u8]) {
        let (blocks, lane) = self.row_of_4_bits(row);
        let bytes = bytes.as_chunks::<FILE_BLOCK_Q4_0>();
        assert_eq!(
            (bytes.0.len(), bytes.1),
            (blocks.len(), &[][..]),
            "row of another length"
        );
        for (bytes, into) in bytes.0.iter().zip(blocks) {
            let scale = half(&bytes[..2]);
            // A power of two: exact, short of an overflow that no weight comes near.
            let least = f16::from_f32(-8.0 * scale.to_f32());
            into.set(lane, (scale, least), |i| nibble(&bytes[2..], i));
        }
    }

    /// Takes a row of `Q4_1` blocks as a file holds them.
    pub(crate) fn set_row_q4_1(&mut self, row: usize, bytes: &[u8]) {
        let (blocks, lane) = self.row_of_4_bits(row);
        let bytes = bytes.as_chunks::<FILE_BLOCK_Q4_1>();
        assert_eq!(
            (bytes.0.len(), bytes.1),
            (blocks.len(), &[][..]),
            "row of another length"
        );
        for (bytes, into) in bytes.0.iter().zip(blocks) {
            let terms = (half(&bytes[..2]), half(&bytes[2..4]));
            into.set(lane, terms, |i| nibble(&bytes[4..], i));
        }
    }

    fn row_of_8_bits(&mut self, row: usize) -> (&mut [Block8], usize) {
        let (range, lane) = self.place(row);
        match &mut self.blocks {
            Blocks::Eight(blocks) => (&mut blocks[range], lane),
            Blocks::Four(_) => panic!("8-bit row for a matrix of 4 bits"),
        }
    }

    fn row_of_4_bits(&mut self, row: usize) -> (&mut [Block4], usize) {
        let (range, lane) = self.place(row);
        match &mut self.blocks {
            Blocks::Four(blocks) => (&mut blocks[range], lane),
            Blocks::Eight(_) => panic!("4-bit row for a matrix of 8 bits"),
        }
    }

    /// The blocks that hold a row, and its lane in them.
    fn place(&self, row: usize) -> (std::ops::Range<usize>, usize) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let per_group = self.columns / BLOCK;
        let first = row / LANES * per_group;
        (first..first + per_group, row % LANES)
    }

    /// Writes a row's numbers, as the quantisation left them.
    pub(crate) fn read_row(&self, row: usize, into: &mut [f32]) {
        assert_eq!(into.len(), self.columns, "row of another length");
        let (range, lane) = self.place(row);
        let into = into.as_chunks_mut::<BLOCK>().0;
        match &self.blocks {
            Blocks::Eight(blocks) => read(&blocks[range], lane, into),
            Blocks::Four(blocks) => read(&blocks[range], lane, into),
        }
    }
}

fn blocks(rows: usize, columns: usize) -> usize {
    assert!(
        columns.is_multiple_of(BLOCK),
        "{columns} columns are no whole blocks"
    );
    rows.div_ceil(LANES) * (columns / BLOCK)
}

fn read<B: Block>(blocks: &[B], lane: usize, into: &mut [[f32; BLOCK]]) {
    for (block, into) in blocks.iter().zip(into) {
        block.read(lane, into);
    }
}

fn half(bytes: &[u8]) -> f16 {
    f16::from_le_bytes([bytes[0], bytes[1]])
}

/// GGML's order: the low halves of 16 bytes are the first 16 numbers, the high halves the others.
fn nibble(bytes: &[u8], index: usize) -> u8 {
    if index < BLOCK / 2 {
        bytes[index] & 0xf
    } else {
        bytes[index - BLOCK / 2] >> 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_within_half_a_step_of_their_block() {
        let mut matrix = Matrix::of_8_bits(9, 64);
        let row: Vec<f32> = (0..64).map(|i| (i as f32 - 30.0) / 7.0).collect();
        matrix.set_row(8, &row);
        let mut back = vec![0.0; 64];
        matrix.read_row(8, &mut back);
        for (a, b) in row.iter().zip(&back) {
            assert!((a - b).abs() < 30.0 / 7.0 / 127.0, "{a} became {b}");
        }
        matrix.read_row(0, &mut back);
        assert_eq!(back, vec![0.0; 64]);
        assert_eq!(matrix.width(), 16);
    }

    #[test]
    fn blocks_of_8_bits_are_kept_as_a_file_has_them() {
        let mut bytes = f16::from_f32(0.5).to_le_bytes().to_vec();
        bytes.extend((0..32).map(|i| (i as i8 - 16).cast_unsigned()));
        let mut matrix = Matrix::of_8_bits(1, 32);
        matrix.set_row_q8_0(0, &bytes);
        let mut back = vec![0.0; 32];
        matrix.read_row(0, &mut back);
        assert_eq!(back[0], -8.0);
        assert_eq!(back[31], 7.5);
    }

    /// Against the dequantisation of another implementation.
    #[test]
    fn blocks_of_4_bits_are_kept_as_a_file_has_them() {
        use candle_core::quantized::{GgmlDType, QTensor};
        use candle_core::{Device, Tensor};
        let numbers: Vec<f32> = (0..192)
            .map(|i| ((i * 37) % 101) as f32 / 10.0 - 4.0)
            .collect();
        let numbers = Tensor::from_vec(numbers, (3, 64), &Device::Cpu).unwrap();
        for dtype in [GgmlDType::Q4_0, GgmlDType::Q4_1] {
            let tensor = QTensor::quantize(&numbers, dtype).unwrap();
            let wanted: Vec<Vec<f32>> = tensor.dequantize(&Device::Cpu).unwrap().to_vec2().unwrap();
            let bytes = tensor.data().unwrap();
            let mut matrix = Matrix::of_4_bits(3, 64);
            for (row, bytes) in bytes.chunks_exact(bytes.len() / 3).enumerate() {
                match dtype {
                    GgmlDType::Q4_0 => matrix.set_row_q4_0(row, bytes),
                    _ => matrix.set_row_q4_1(row, bytes),
                }
            }
            let mut back = vec![0.0; 64];
            for (row, wanted) in wanted.iter().enumerate() {
                matrix.read_row(row, &mut back);
                for (a, b) in wanted.iter().zip(&back) {
                    assert!((a - b).abs() < 1e-5, "{dtype:?}: {a} became {b}");
                }
            }
        }
    }
}
