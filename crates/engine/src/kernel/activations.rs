//! Input rows of a matrix product, quantised to blocks of 16-bit numbers.
//!
//! The product multiplies 16-bit pairs whatever their size, so the finer steps cost nothing and leave
//! the weights' own quantisation as the only one that matters.

use rayon::prelude::*;
use wide::{f32x8, i32x8};

use super::blocks::PAIRS;
use super::{BLOCK, LANES, PARALLEL_ROWS, load, vectors};

/// One block of a row: pairs of neighbouring numbers, each pair as two 16-bit halves of a word (the
/// first number low), which is what the product multiplies at once.
pub(crate) type RowBlock = [i32; PAIRS];

/// Steps from 0 to a block's largest number. A block's sum of products with 8-bit weights stays below
/// 2^31: 32 x 127 x 32,767 is 133 million.
const STEPS: f32 = 32_767.0;

/// Rows of `columns` numbers, each block of 32 with a scale of its own.
///
/// A row's quantisation depends on that row alone.
#[derive(Debug, Default)]
pub(crate) struct Activations {
    blocks_per_row: usize,
    rows: usize,
    blocks: Vec<RowBlock>,
    scales: Vec<BlockScale>,
}

/// What turns a block's steps into numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct BlockScale {
    /// The size of a step.
    pub(crate) step: f32,
    /// The sum of the block's numbers, for weights that do not begin at 0.
    pub(crate) total: f32,
}

impl Activations {
    /// Rows held.
    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub(crate) const fn columns(&self) -> usize {
        self.blocks_per_row * BLOCK
    }

    /// One row's blocks and scales.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> (&[RowBlock], &[BlockScale]) {
        let range = row * self.blocks_per_row..(row + 1) * self.blocks_per_row;
        (&self.blocks[range.clone()], &self.scales[range])
    }

    /// Replaces the rows: row `i` is what `fill(i, buffer)` writes into a buffer of `columns`
    /// numbers.
    pub(crate) fn fill(
        &mut self,
        rows: usize,
        columns: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        self.rows = rows;
        self.blocks_per_row = columns / BLOCK;
        self.blocks.resize(rows * self.blocks_per_row, [0; PAIRS]);
        self.scales
            .resize(rows * self.blocks_per_row, BlockScale::default());
        let per_row = self.blocks_per_row;
        let one = |buffer: &mut Vec<f32>, row: usize, blocks: &mut [_], scales: &mut [_]| {
            buffer.resize(columns, 0.0);
            fill(row, buffer);
            quantise(buffer, blocks, scales);
        };
        let (blocks, scales) = (&mut self.blocks, &mut self.scales);
        if rows < PARALLEL_ROWS {
            let mut buffer = Vec::new();
            let parts = blocks.chunks_mut(per_row).zip(scales.chunks_mut(per_row));
            parts
                .enumerate()
                .for_each(|(row, (b, s))| one(&mut buffer, row, b, s));
        } else {
            let parts = blocks
                .par_chunks_mut(per_row)
                .zip(scales.par_chunks_mut(per_row));
            parts
                .enumerate()
                .with_min_len(4)
                .for_each_init(Vec::new, |buffer, (row, (b, s))| one(buffer, row, b, s));
        }
    }
}

fn quantise(numbers: &[f32], blocks: &mut [RowBlock], scales: &mut [BlockScale]) {
    let parts = numbers.as_chunks::<BLOCK>().0.iter();
    for ((numbers, block), scale) in parts.zip(blocks).zip(scales) {
        let numbers = vectors(numbers);
        let mut largest = f32x8::splat(0.0);
        for vector in numbers {
            largest = largest.fast_max(load(vector).abs());
        }
        let largest = largest.as_array().iter().fold(0.0f32, |m, x| m.max(*x));
        let step = largest / STEPS;
        let inverse = f32x8::splat(if largest == 0.0 { 0.0 } else { STEPS / largest });
        let mut total = i32x8::ZERO;
        for (vector, words) in numbers.iter().zip(block.as_chunks_mut::<{ LANES / 2 }>().0) {
            let quants = (load(vector) * inverse).round_int();
            total += quants;
            let quants = quants.as_array();
            for (word, pair) in words.iter_mut().zip(quants.as_chunks::<2>().0) {
                *word = (pair[0] & 0xffff) | (pair[1] << 16);
            }
        }
        // At most 32 x 32,767: exact in either type.
        let total = total.reduce_add() as f32 * step;
        *scale = BlockScale { step, total };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_largest_number_as_all_steps() {
        let mut rows = Activations::default();
        rows.fill(2, 32, |row, into| {
            into.iter_mut()
                .enumerate()
                .for_each(|(i, x)| *x = (row + 1) as f32 * (i as f32 - 31.0));
        });
        let (blocks, scales) = rows.row(1);
        assert_eq!(scales[0].step, 62.0 / STEPS);
        let total: f32 = (0..32).map(|i| 2.0 * (i as f32 - 31.0)).sum();
        assert!((scales[0].total - total).abs() < 16.0 * scales[0].step);
        assert_eq!(blocks[0][0] as i16, -32_767);
        assert_eq!(blocks[0][15] >> 16, 0);
        assert_eq!((rows.rows(), rows.columns()), (2, 32));
    }
}
