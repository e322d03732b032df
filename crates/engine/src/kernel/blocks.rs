//! Quantised blocks of a weight matrix, laid out for products whose lanes are output rows.
//!
//! A block holds 32 columns of eight rows. One vector of weights holds the same two columns of all
//! eight, the columns of row 0 first: multiplied with a pair of an input row's numbers and added in
//! pairs, it gives one sum a row.

use half::f16;
use half::slice::HalfFloatSliceExt;
use wide::{f32x8, i8x16, i16x16, i32x8, u8x16};

use super::activations::RowBlock;
use super::{BLOCK, LANES};

/// Pairs of columns in one block.
pub(crate) const PAIRS: usize = BLOCK / 2;

/// 32 columns of eight rows: row `r`'s weight in column `c` is `scale[r] * quant[r][c] + least[r]`.
pub(crate) trait Block: Sync {
    /// Sums of products of quants with the same columns of `M` input rows: exact.
    fn dots<const M: usize>(&self, rows: [&RowBlock; M]) -> [i32x8; M];

    /// The rows' scales.
    fn scales(&self) -> f32x8;

    /// The rows' least weights (what a quant of 0 stands for), where those are not 0.
    fn leasts(&self) -> Option<f32x8>;

    /// One row's weights.
    fn read(&self, row: usize, into: &mut [f32; BLOCK]);
}

/// Signed bytes (GGML's `Q8_0`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Block8 {
    quants: [i8x16; PAIRS],
    scales: [f16; LANES],
}

/// Four bits and a least weight (GGML's `Q4_0` and `Q4_1`): memory that is read for each decoded
/// token, so packed as in the file. A byte holds two pairs' numbers, the first one low.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Block4 {
    quants: [u8x16; PAIRS / 2],
    scales: [f16; LANES],
    leasts: [f16; LANES],
}

impl Block8 {
    pub(crate) const ZERO: Self = Self {
        quants: [i8x16::ZERO; PAIRS],
        scales: [f16::ZERO; LANES],
    };

    pub(crate) fn set(&mut self, row: usize, scale: f16, quants: impl Fn(usize) -> i8) {
        self.scales[row] = scale;
        for (pair, vector) in self.quants.iter_mut().enumerate() {
            let lanes = vector.as_mut_array();
            lanes[2 * row] = quants(2 * pair);
            lanes[2 * row + 1] = quants(2 * pair + 1);
        }
    }
}

impl Block4 {
    pub(crate) const ZERO: Self = Self {
        quants: [u8x16::ZERO; PAIRS / 2],
        scales: [f16::ZERO; LANES],
        leasts: [f16::ZERO; LANES],
    };

    /// `quants` are below 16.
    pub(crate) fn set(
        &mut self,
        row: usize,
        (scale, least): (f16, f16),
        quants: impl Fn(usize) -> u8,
    ) {
        self.scales[row] = scale;
        self.leasts[row] = least;
        for (two, vector) in self.quants.iter_mut().enumerate() {
            let lanes = vector.as_mut_array();
            for side in 0..2 {
                let column = 4 * two + side;
                lanes[2 * row + side] = quants(column) | (quants(column + 2) << 4);
            }
        }
    }
}

impl Block for Block8 {
    #[inline]
    fn dots<const M: usize>(&self, rows: [&RowBlock; M]) -> [i32x8; M] {
        let mut dots = [i32x8::ZERO; M];
        for (pair, quants) in self.quants.iter().enumerate() {
            multiply(i16x16::from_i8x16(*quants), pair, &rows, &mut dots);
        }
        dots
    }

    #[inline]
    fn scales(&self) -> f32x8 {
        widen(&self.scales)
    }

    #[inline]
    fn leasts(&self) -> Option<f32x8> {
        None
    }

    fn read(&self, row: usize, into: &mut [f32; BLOCK]) {
        let scale = self.scales[row].to_f32();
        for (column, weight) in into.iter_mut().enumerate() {
            let quant = self.quants[column / 2].as_array()[2 * row + column % 2];
            *weight = f32::from(quant) * scale;
        }
    }
}

impl Block for Block4 {
    #[inline]
    fn dots<const M: usize>(&self, rows: [&RowBlock; M]) -> [i32x8; M] {
        let mut dots = [i32x8::ZERO; M];
        for (two, quants) in self.quants.iter().enumerate() {
            let both = i16x16::from(*quants);
            multiply(both & i16x16::splat(0xf), 2 * two, &rows, &mut dots);
            multiply(both >> 4, 2 * two + 1, &rows, &mut dots);
        }
        dots
    }

    #[inline]
    fn scales(&self) -> f32x8 {
        widen(&self.scales)
    }

    #[inline]
    fn leasts(&self) -> Option<f32x8> {
        Some(widen(&self.leasts))
    }

    fn read(&self, row: usize, into: &mut [f32; BLOCK]) {
        let (scale, least) = (self.scales[row].to_f32(), self.leasts[row].to_f32());
        for (column, weight) in into.iter_mut().enumerate() {
            let byte = self.quants[column / 4].as_array()[2 * row + column % 2];
            let quant = if column % 4 < 2 {
                byte & 0xf
            } else {
                byte >> 4
            };
            *weight = f32::from(quant).mul_add(scale, least);
        }
    }
}

#[inline]
fn multiply<const M: usize>(
    weights: i16x16,
    pair: usize,
    rows: &[&RowBlock; M],
    dots: &mut [i32x8; M],
) {
    for m in 0..M {
        let x: i16x16 = bytemuck::cast(i32x8::splat(rows[m][pair]));
        dots[m] += weights.dot(x);
    }
}

#[inline]
fn widen(numbers: &[f16; LANES]) -> f32x8 {
    let mut wide = [0.0; LANES];
    numbers.convert_to_f32_slice(&mut wide);
    f32x8::new(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_give_back_what_was_set_and_multiply_it() {
        let (mut eight, mut four) = (Block8::ZERO, Block4::ZERO);
        let scale = f16::from_f32(0.25);
        for row in 0..LANES {
            eight.set(row, scale, |c| (c as i8 - 16) * (row as i8 + 1) / 2);
            let least = f16::from_f32(-(row as f32));
            four.set(row, (scale, least), |c| ((c * 5 + row) % 16) as u8);
        }
        let numbers: [i16; BLOCK] = std::array::from_fn(|c| (c as i16 - 9) * 1000);
        let input: RowBlock = std::array::from_fn(|p| {
            i32::from(numbers[2 * p]) & 0xffff | i32::from(numbers[2 * p + 1]) << 16
        });
        let total: f32 = numbers.iter().map(|n| f32::from(*n)).sum();
        for row in 0..LANES {
            let mut weights = [0.0; BLOCK];
            eight.read(row, &mut weights);
            assert_eq!(
                weights[3],
                f32::from((3i8 - 16) * (row as i8 + 1) / 2) * 0.25
            );
            let wanted = |weights: &[f32; BLOCK]| -> f32 {
                weights
                    .iter()
                    .zip(numbers)
                    .map(|(w, n)| w * f32::from(n))
                    .sum()
            };
            let [dots] = eight.dots([&input]);
            assert_eq!(dots.as_array()[row] as f32 * 0.25, wanted(&weights));
            four.read(row, &mut weights);
            assert_eq!(weights[3], ((15 + row) % 16) as f32 * 0.25 - row as f32);
            let [dots] = four.dots([&input]);
            let least = four.leasts().unwrap().as_array()[row];
            assert_eq!(
                dots.as_array()[row] as f32 * 0.25 + least * total,
                wanted(&weights)
            );
        }
    }
}
