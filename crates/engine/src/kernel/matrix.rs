//! A weight matrix in 8-bit blocks, laid out for products whose lanes are output rows.

use half::f16;
use wide::{f32x8, i8x16};

use super::{BLOCK, LANES};

/// Pairs of columns in one block.
pub(crate) const PAIRS: usize = BLOCK / 2;

/// Bytes of a `Q8_0` block in a file: a half-precision scale, then 32 signed bytes.
pub(crate) const FILE_BLOCK: usize = 2 + BLOCK;

/// One block of eight rows: for each pair of columns, the pair of row 0, of row 1, … of row 7.
pub(crate) type GroupBlock = [i8x16; PAIRS];

/// A matrix `[rows][columns]`, quantised to `Q8_0` (32 columns share a scale).
///
/// Rows are kept in groups of eight, the last one filled up with zeros, so that one vector of
/// weights holds the same two columns of eight rows.
#[derive(Debug)]
pub(crate) struct Matrix {
    rows: usize,
    columns: usize,
    blocks: Vec<GroupBlock>,
    scales: Vec<f32x8>,
}

impl Matrix {
    /// An empty matrix for `rows` rows of `columns` numbers.
    ///
    /// # Panics
    /// Where `columns` is no multiple of [`BLOCK`] (loaders check shapes first).
    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        assert!(
            columns.is_multiple_of(BLOCK),
            "{columns} columns are no whole blocks"
        );
        let count = rows.div_ceil(LANES) * (columns / BLOCK);
        let blocks = vec![[i8x16::splat(0); PAIRS]; count];
        Self {
            rows,
            columns,
            blocks,
            scales: vec![f32x8::splat(0.0); count],
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

    /// Groups of eight rows.
    pub(crate) const fn groups(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Blocks and scales of one group, in the order of columns.
    pub(crate) fn group(&self, group: usize) -> (&[GroupBlock], &[f32x8]) {
        let per_group = self.columns / BLOCK;
        let range = group * per_group..(group + 1) * per_group;
        (&self.blocks[range.clone()], &self.scales[range])
    }

    /// Quantises a row: each block's largest magnitude becomes 127.
    pub(crate) fn set_row(&mut self, row: usize, numbers: &[f32]) {
        assert_eq!(numbers.len(), self.columns, "row of another length");
        for (index, block) in numbers.chunks_exact(BLOCK).enumerate() {
            let largest = block.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let scale = f16::from_f32(largest / 127.0);
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            let quants = |i: usize| (block[i] * inverse).round() as i8;
            self.set_block(row, index, scale.to_f32(), quants);
        }
    }

    /// Takes a row of `Q8_0` blocks as a file holds them.
    pub(crate) fn set_row_q8_0(&mut self, row: usize, bytes: &[u8]) {
        assert_eq!(
            bytes.len(),
            self.columns / BLOCK * FILE_BLOCK,
            "row of another length"
        );
        for (index, block) in bytes.chunks_exact(FILE_BLOCK).enumerate() {
            let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
            self.set_block(row, index, scale, |i| block[2 + i].cast_signed());
        }
    }

    fn set_block(&mut self, row: usize, index: usize, scale: f32, quants: impl Fn(usize) -> i8) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let (at, lane) = (row / LANES * (self.columns / BLOCK) + index, row % LANES);
        self.scales[at].as_mut_array()[lane] = scale;
        for (pair, vector) in self.blocks[at].iter_mut().enumerate() {
            let lanes = vector.as_mut_array();
            lanes[2 * lane] = quants(2 * pair);
            lanes[2 * lane + 1] = quants(2 * pair + 1);
        }
    }

    /// Writes a row's numbers, as the quantisation left them.
    pub(crate) fn read_row(&self, row: usize, into: &mut [f32]) {
        assert_eq!(into.len(), self.columns, "row of another length");
        let (blocks, scales) = self.group(row / LANES);
        let lane = row % LANES;
        for ((block, scale), into) in blocks.iter().zip(scales).zip(into.chunks_exact_mut(BLOCK)) {
            let scale = scale.as_array()[lane];
            for (pair, vector) in block.iter().enumerate() {
                let lanes = vector.as_array();
                into[2 * pair] = f32::from(lanes[2 * lane]) * scale;
                into[2 * pair + 1] = f32::from(lanes[2 * lane + 1]) * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_within_half_a_step_of_their_block() {
        let mut matrix = Matrix::zeros(9, 64);
        let row: Vec<f32> = (0..64).map(|i| (i as f32 - 30.0) / 7.0).collect();
        matrix.set_row(8, &row);
        let mut back = vec![0.0; 64];
        matrix.read_row(8, &mut back);
        for (a, b) in row.iter().zip(&back) {
            assert!((a - b).abs() < 30.0 / 7.0 / 127.0, "{a} became {b}");
        }
        matrix.read_row(0, &mut back);
        assert_eq!(back, vec![0.0; 64]);
        assert_eq!((matrix.width(), matrix.groups()), (16, 2));
    }

    #[test]
    fn blocks_of_a_file_are_kept_as_they_are() {
        let mut bytes = f16::from_f32(0.5).to_le_bytes().to_vec();
        bytes.extend((0..32).map(|i| (i as i8 - 16).cast_unsigned()));
        let mut matrix = Matrix::zeros(1, 32);
        matrix.set_row_q8_0(0, &bytes);
        let mut back = vec![0.0; 32];
        matrix.read_row(0, &mut back);
        assert_eq!(back[0], -8.0);
        assert_eq!(back[31], 7.5);
    }
}
