//! Products of quantised rows with a quantised matrix.
//!
//! Within a block the 32 products are summed as integers, which is exact. A block's sum is scaled
//! and added to the output's lane with one fused multiply-add, then, where weights do not begin at 0,
//! the least weight times the sum of the inputs with another; blocks in order. Neither depends on how
//! rows and groups are tiled or spread over threads.

use rayon::prelude::*;
use wide::f32x8;

use super::activations::Activations;
use super::blocks::Block;
use super::matrix::{Blocks, Matrix};
use super::{BLOCK, LANES};

/// Rows multiplied at once: eight integer and eight float accumulators fit the registers of
/// x86-64-v3 with four.
const TILE: usize = 4;

/// Rows from which each thread takes rows rather than groups of the matrix.
const BY_ROWS: usize = 32;

/// Rows that one task takes: few enough to stay in the second-level cache.
const TASK_ROWS: usize = 64;

/// Multiplies every row: `out[row]` is `matrix.width()` numbers.
///
/// # Panics
/// Where the lengths do not fit.
pub(crate) fn product(
    matrix: &Matrix,
    rows: &Activations,
    out: &mut Vec<f32>,
    spare: &mut Vec<f32>,
) {
    assert_eq!(
        matrix.columns(),
        rows.columns(),
        "rows and matrix do not fit"
    );
    out.resize(rows.rows() * matrix.width(), 0.0);
    match matrix.blocks() {
        Blocks::Eight(blocks) => multiply(blocks, rows, out, spare),
        Blocks::Four(blocks) => multiply(blocks, rows, out, spare),
    }
}

fn multiply<B: Block>(blocks: &[B], rows: &Activations, out: &mut [f32], spare: &mut Vec<f32>) {
    let groups = Groups {
        blocks,
        each: rows.columns() / BLOCK,
    };
    let (count, width) = (rows.rows(), groups.count() * LANES);
    match count {
        0 => {}
        1 => by_groups(groups, rows, out),
        2..BY_ROWS => {
            spare.resize(count * width, 0.0);
            by_groups(groups, rows, spare);
            for (group, block) in spare.chunks_exact(count * LANES).enumerate() {
                for (row, numbers) in block.chunks_exact(LANES).enumerate() {
                    let at = row * width + group * LANES;
                    out[at..at + LANES].copy_from_slice(numbers);
                }
            }
        }
        _ => by_rows(groups, rows, out),
    }
}

/// A matrix's blocks by groups of eight rows.
struct Groups<'a, B> {
    blocks: &'a [B],
    /// Blocks of one group.
    each: usize,
}

impl<B> Clone for Groups<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Groups<'_, B> {}

impl<'a, B> Groups<'a, B> {
    const fn count(self) -> usize {
        self.blocks.len() / self.each
    }

    fn group(self, index: usize) -> &'a [B] {
        &self.blocks[index * self.each..(index + 1) * self.each]
    }
}

/// Threads share the groups; `out` is `[group][row][8]`.
fn by_groups<B: Block>(groups: Groups<'_, B>, rows: &Activations, out: &mut [f32]) {
    let per_task = groups
        .count()
        .div_ceil(4 * rayon::current_num_threads())
        .max(4);
    let task = rows.rows() * LANES * per_task;
    out.par_chunks_mut(task)
        .enumerate()
        .with_max_len(1)
        .for_each(|(index, out)| {
            for (i, out) in out.chunks_exact_mut(rows.rows() * LANES).enumerate() {
                let group = groups.group(index * per_task + i);
                group_rows(group, rows, 0, rows.rows(), |row, sums| {
                    out[row * LANES..(row + 1) * LANES].copy_from_slice(&sums);
                });
            }
        });
}

/// Threads share the rows; `out` is `[row][width]`.
fn by_rows<B: Block>(groups: Groups<'_, B>, rows: &Activations, out: &mut [f32]) {
    let width = groups.count() * LANES;
    let share = rows
        .rows()
        .div_ceil(rayon::current_num_threads())
        .next_multiple_of(TILE);
    let per_task = share.min(TASK_ROWS);
    out.par_chunks_mut(per_task * width)
        .enumerate()
        .with_max_len(1)
        .for_each(|(index, out)| {
            let count = out.len() / width;
            for group in 0..groups.count() {
                let weights = groups.group(group);
                group_rows(weights, rows, index * per_task, count, |row, sums| {
                    let at = row * width + group * LANES;
                    out[at..at + LANES].copy_from_slice(&sums);
                });
            }
        });
}

#[inline]
fn group_rows<B: Block>(
    weights: &[B],
    rows: &Activations,
    first: usize,
    count: usize,
    mut put: impl FnMut(usize, [f32; LANES]),
) {
    let mut row = 0;
    while row + TILE <= count {
        let sums = tile::<TILE, B>(weights, rows, first + row);
        for (i, sums) in sums.into_iter().enumerate() {
            put(row + i, sums.to_array());
        }
        row += TILE;
    }
    for row in row..count {
        let [sums] = tile::<1, B>(weights, rows, first + row);
        put(row, sums.to_array());
    }
}

#[inline]
fn tile<const M: usize, B: Block>(weights: &[B], rows: &Activations, first: usize) -> [f32x8; M] {
    let rows: [_; M] = std::array::from_fn(|m| {
        let (blocks, scales) = rows.row(first + m);
        (&blocks[..weights.len()], &scales[..weights.len()])
    });
    let mut sums = [f32x8::splat(0.0); M];
    for (b, weights) in weights.iter().enumerate() {
        let dots = weights.dots(std::array::from_fn::<_, M, _>(|m| &rows[m].0[b]));
        let (scales, leasts) = (weights.scales(), weights.leasts());
        for m in 0..M {
            let scale = scales * f32x8::splat(rows[m].1[b].step);
            sums[m] = dots[m].round_float().mul_add(scale, sums[m]);
            if let Some(leasts) = leasts {
                sums[m] = leasts.mul_add(f32x8::splat(rows[m].1[b].total), sums[m]);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: usize, count: usize) -> Vec<f32> {
        (0..count)
            .map(|i| (((i * 7919 + seed * 104_729) % 1999) as f32 - 999.0) / 500.0)
            .collect()
    }

    /// The same numbers in blocks of 8 and of 4 bits, and inputs.
    fn case(rows: usize, columns: usize, count: usize) -> ([Matrix; 2], Vec<f32>) {
        let mut eight = Matrix::of_8_bits(rows, columns);
        let mut four = Matrix::of_4_bits(rows, columns);
        for row in 0..rows {
            let numbers = numbers(row + 1, columns);
            eight.set_row(row, &numbers);
            let bytes: Vec<u8> = numbers.chunks(BLOCK).flat_map(q4_1).collect();
            four.set_row_q4_1(row, &bytes);
        }
        ([eight, four], numbers(0, columns * count))
    }

    /// 16 steps from the least number to the largest.
    fn q4_1(numbers: &[f32]) -> Vec<u8> {
        let least = numbers.iter().copied().fold(f32::INFINITY, f32::min);
        let largest = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let step = (largest - least) / 15.0;
        let quant = |n: f32| ((n - least) / step).round() as u8;
        let mut bytes = half::f16::from_f32(step).to_le_bytes().to_vec();
        bytes.extend(half::f16::from_f32(least).to_le_bytes());
        bytes.extend((0..16).map(|i| quant(numbers[i]) | (quant(numbers[i + 16]) << 4)));
        bytes
    }

    fn run(matrix: &Matrix, inputs: &[f32]) -> Vec<f32> {
        let columns = matrix.columns();
        let mut rows = Activations::default();
        rows.fill(inputs.len() / columns, columns, |row, into| {
            into.copy_from_slice(&inputs[row * columns..(row + 1) * columns]);
        });
        let (mut out, mut spare) = (Vec::new(), Vec::new());
        product(matrix, &rows, &mut out, &mut spare);
        out
    }

    #[test]
    fn it_is_the_product_within_the_quantisation() {
        let (matrices, inputs) = case(19, 96, 3);
        for matrix in matrices {
            let out = run(&matrix, &inputs);
            let mut row = vec![0.0; 96];
            for r in 0..19 {
                matrix.read_row(r, &mut row);
                for m in 0..3 {
                    let want: f32 = row.iter().zip(&inputs[m * 96..]).map(|(a, b)| a * b).sum();
                    let got = out[m * 24 + r];
                    // Inputs of up to 2 are rounded to 1 in 32,767.
                    assert!((want - got).abs() < 0.01, "row {r}: {want} and {got}");
                }
            }
        }
    }

    #[test]
    fn a_row_gives_the_same_bits_in_every_batch() {
        let (matrices, inputs) = case(40, 64, 131);
        for matrix in matrices {
            let all = run(&matrix, &inputs);
            for batch in [1, 2, 5, 31, 32, 67] {
                let got: Vec<f32> = inputs
                    .chunks(64 * batch)
                    .flat_map(|part| run(&matrix, part))
                    .collect();
                assert_eq!(all, got, "batches of {batch}");
            }
        }
    }
}
