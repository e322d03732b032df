//! Products of quantised rows with a quantised matrix.
//!
//! Within a block the 32 products are summed as integers, which is exact. A block's sum is scaled
//! and added to the output's lane with one fused multiply-add, blocks in order. Neither depends on
//! how rows and groups are tiled or spread over threads.

use rayon::prelude::*;
use wide::{f32x8, i16x16, i32x8};

use super::LANES;
use super::activations::Activations;
use super::matrix::{GroupBlock, Matrix};

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
    let (count, width) = (rows.rows(), matrix.width());
    out.resize(count * width, 0.0);
    match count {
        0 => {}
        1 => by_groups(matrix, rows, out),
        2..BY_ROWS => {
            spare.resize(count * width, 0.0);
            by_groups(matrix, rows, spare);
            for (group, block) in spare.chunks_exact(count * LANES).enumerate() {
                for (row, numbers) in block.chunks_exact(LANES).enumerate() {
                    let at = row * width + group * LANES;
                    out[at..at + LANES].copy_from_slice(numbers);
                }
            }
        }
        _ => by_rows(matrix, rows, out),
    }
}

/// Threads share the groups; `out` is `[group][row][8]`.
fn by_groups(matrix: &Matrix, rows: &Activations, out: &mut [f32]) {
    let groups = matrix.groups();
    let per_task = groups.div_ceil(4 * rayon::current_num_threads()).max(4);
    let task = rows.rows() * LANES * per_task;
    out.par_chunks_mut(task)
        .enumerate()
        .with_max_len(1)
        .for_each(|(index, out)| {
            for (i, out) in out.chunks_exact_mut(rows.rows() * LANES).enumerate() {
                group_rows(
                    matrix,
                    index * per_task + i,
                    rows,
                    0,
                    rows.rows(),
                    |row, sums| {
                        out[row * LANES..(row + 1) * LANES].copy_from_slice(&sums);
                    },
                );
            }
        });
}

/// Threads share the rows; `out` is `[row][width]`.
fn by_rows(matrix: &Matrix, rows: &Activations, out: &mut [f32]) {
    let width = matrix.width();
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
            for group in 0..matrix.groups() {
                group_rows(matrix, group, rows, index * per_task, count, |row, sums| {
                    let at = row * width + group * LANES;
                    out[at..at + LANES].copy_from_slice(&sums);
                });
            }
        });
}

#[inline]
fn group_rows(
    matrix: &Matrix,
    group: usize,
    rows: &Activations,
    first: usize,
    count: usize,
    mut put: impl FnMut(usize, [f32; LANES]),
) {
    let weights = matrix.group(group);
    let mut row = 0;
    while row + TILE <= count {
        let sums = tile::<TILE>(weights, rows, first + row);
        for (i, sums) in sums.into_iter().enumerate() {
            put(row + i, sums.to_array());
        }
        row += TILE;
    }
    for row in row..count {
        let [sums] = tile::<1>(weights, rows, first + row);
        put(row, sums.to_array());
    }
}

#[inline]
fn tile<const M: usize>(
    (blocks, scales): (&[GroupBlock], &[f32x8]),
    rows: &Activations,
    first: usize,
) -> [f32x8; M] {
    let rows: [_; M] = std::array::from_fn(|m| {
        let (b, s) = rows.row(first + m);
        (&b[..blocks.len()], &s[..blocks.len()])
    });
    let scales = &scales[..blocks.len()];
    let mut sums = [f32x8::splat(0.0); M];
    for (b, block) in blocks.iter().enumerate() {
        let mut dots = [i32x8::splat(0); M];
        for (pair, weights) in block.iter().enumerate() {
            let weights = i16x16::from_i8x16(*weights);
            for m in 0..M {
                let x: i16x16 = bytemuck::cast(i32x8::splat(rows[m].0[b][pair]));
                dots[m] += weights.dot(x);
            }
        }
        for m in 0..M {
            let scale = scales[b] * f32x8::splat(rows[m].1[b]);
            sums[m] = dots[m].round_float().mul_add(scale, sums[m]);
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

    fn case(rows: usize, columns: usize, count: usize) -> (Matrix, Vec<f32>) {
        let mut matrix = Matrix::zeros(rows, columns);
        for row in 0..rows {
            matrix.set_row(row, &numbers(row + 1, columns));
        }
        (matrix, numbers(0, columns * count))
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
        let (matrix, inputs) = case(19, 96, 3);
        let out = run(&matrix, &inputs);
        let mut row = vec![0.0; 96];
        for r in 0..19 {
            matrix.read_row(r, &mut row);
            for m in 0..3 {
                let want: f32 = row.iter().zip(&inputs[m * 96..]).map(|(a, b)| a * b).sum();
                let got = out[m * 24 + r];
                assert!(
                    (want - got).abs() < 0.01 * 96.0,
                    "row {r}: {want} and {got}"
                );
            }
        }
    }

    #[test]
    fn a_row_gives_the_same_bits_in_every_batch() {
        let (matrix, inputs) = case(40, 64, 131);
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
