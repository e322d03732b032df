//! Row by row: normalisation and activation.

use rayon::prelude::*;
use wide::f32x8;

use super::{LANES, PARALLEL_ROWS, load, vectors, vectors_mut};

/// `into = row / sqrt(mean(row²) + epsilon) * weight` (RMSNorm).
pub(crate) fn rms_norm(row: &[f32], weight: &[f32], epsilon: f32, into: &mut [f32]) {
    let mut squares = f32x8::splat(0.0);
    for vector in vectors(row) {
        let x = load(vector);
        squares = x.mul_add(x, squares);
    }
    let mean = squares.reduce_add() / row.len() as f32;
    let scale = f32x8::splat(1.0 / (mean + epsilon).sqrt());
    let parts = vectors(row)
        .iter()
        .zip(vectors(weight))
        .zip(vectors_mut(into));
    for ((x, weight), into) in parts {
        *into = (load(x) * scale * load(weight)).to_array();
    }
}

/// `into = gate * sigmoid(gate) * up` (SwiGLU).
pub(crate) fn silu_times(gate: &[f32], up: &[f32], into: &mut [f32]) {
    let one = f32x8::splat(1.0);
    for ((gate, up), into) in vectors(gate).iter().zip(vectors(up)).zip(vectors_mut(into)) {
        let gate = load(gate);
        *into = (gate / (one + (-gate).exp()) * load(up)).to_array();
    }
}

/// `sums += terms`, number by number.
pub(crate) fn add(sums: &mut [f32], terms: &[f32], columns: usize) {
    let one = |sums: &mut [f32], terms: &[f32]| {
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum += term;
        }
    };
    if sums.len() < PARALLEL_ROWS * columns {
        one(sums, terms);
    } else {
        let task = LANES * columns;
        sums.par_chunks_mut(task)
            .zip(terms.par_chunks(task))
            .for_each(|(s, t)| one(s, t));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normed_row_has_unit_mean_square() {
        let row: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let mut out = vec![0.0; 16];
        rms_norm(&row, &[1.0; 16], 0.0, &mut out);
        let mean = out.iter().map(|x| x * x).sum::<f32>() / 16.0;
        assert!((mean - 1.0).abs() < 1e-5);
    }

    #[test]
    fn silu_saturates_on_both_sides() {
        let mut out = [0.0; 8];
        silu_times(
            &[0.0, 200.0, -200.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            &[2.0; 8],
            &mut out,
        );
        assert_eq!(out[0], 0.0);
        assert!((out[1] - 400.0).abs() < 1e-3);
        assert!(out[2].abs() < 1e-3, "{}", out[2]);
        assert!((out[3] - 2.0 * 0.731_058_6).abs() < 1e-5);
    }
}
