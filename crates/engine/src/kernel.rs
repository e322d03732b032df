//! The arithmetic of a forward pass, in safe SIMD.
//!
//! **Architecture Invariant:** every number that a token's row yields depends on that row (and, in
//! attention, on the entries before it) alone, and is summed in an order that neither the batch,
//! the chunk, the page numbers nor the number of threads can change. So tokens computed in one
//! prefill chunk, in many, or as decode steps are equal to the last bit.
//!
//! The order is kept without effort because lanes are *outputs*: in a matrix product each SIMD lane
//! owns one output and walks the blocks of its row from first to last. Tiles of any shape then do
//! the same additions.

pub(crate) mod activations;
pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod elementwise;
pub(crate) mod matrix;
pub(crate) mod pages;
pub(crate) mod product;
pub(crate) mod rope;

use wide::f32x8;

/// Numbers in one SIMD vector.
pub(crate) const LANES: usize = 8;

/// Numbers that share one scale in a quantised row (GGML's `Q8_0`, `Q4_0`, `Q4_1`).
pub(crate) const BLOCK: usize = 32;

/// Rows from which work is split over threads by rows.
pub(crate) const PARALLEL_ROWS: usize = 16;

/// A slice as whole vectors.
///
/// # Panics
/// Where its length is no multiple of [`LANES`].
#[inline]
pub(crate) fn vectors(numbers: &[f32]) -> &[[f32; LANES]] {
    let (whole, rest) = numbers.as_chunks::<LANES>();
    assert!(
        rest.is_empty(),
        "{} numbers are no whole vectors",
        numbers.len()
    );
    whole
}

/// A mutable slice as whole vectors; see [`vectors`].
#[inline]
pub(crate) fn vectors_mut(numbers: &mut [f32]) -> &mut [[f32; LANES]] {
    let (whole, rest) = numbers.as_chunks_mut::<LANES>();
    assert!(rest.is_empty(), "numbers are no whole vectors");
    whole
}

/// Loads one vector.
#[inline]
pub(crate) fn load(numbers: &[f32; LANES]) -> f32x8 {
    f32x8::new(*numbers)
}
