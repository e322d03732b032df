//! Paged attention with causal mask and grouped query heads.
//!
//! Softmax runs online over blocks of 64 positions, aligned at multiples of 64 whatever the page
//! size, first to last. A query sees in each block exactly the positions up to its own: how many
//! more the block holds, because the query's chunk went on, changes nothing.

use rayon::prelude::*;
use wide::f32x8;

use super::pages::KvPages;
use super::{LANES, load, vectors, vectors_mut};

/// Positions in a block.
const POSITIONS: usize = 64;

/// Tokens whose queries share one reading of a block.
const TOKENS: usize = 32;

/// Heads and their size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) kv: usize,
    pub(crate) dim: usize,
}

impl Heads {
    /// Query heads that share a KV head.
    const fn group(self) -> usize {
        self.query / self.kv
    }
}

/// Tokens of one sequence, one after the other, whose queries lie in consecutive rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) kv: KvPages<'a>,
    /// Position of the first token.
    pub(crate) first: usize,
    /// Number of tokens.
    pub(crate) tokens: usize,
}

/// Attention of all spans in one layer. `queries` holds rows of `stride` numbers that begin with
/// the query heads; `out` gets rows of `heads.query * heads.dim`.
pub(crate) fn attention(
    layer: u16,
    heads: Heads,
    spans: &[Span<'_>],
    (queries, stride): (&[f32], usize),
    out: &mut [f32],
) {
    let mut units = Vec::new();
    let (mut row, mut rest) = (0, out);
    for span in spans {
        for start in (0..span.tokens).step_by(TOKENS) {
            let tokens = (span.tokens - start).min(TOKENS);
            // One token's heads lie one after the other, so they can be shared among threads.
            let kv_heads = if tokens == 1 { 1 } else { heads.kv };
            for head in (0..heads.kv).step_by(kv_heads) {
                let numbers = tokens * kv_heads * heads.group() * heads.dim;
                let (mine, others) = rest.split_at_mut(numbers);
                rest = others;
                units.push(Unit {
                    kv: span.kv,
                    first: span.first + start,
                    tokens,
                    kv_heads: head..head + kv_heads,
                    queries: &queries[row * stride..],
                    out: mine,
                });
            }
            row += tokens;
        }
    }
    units.into_par_iter().with_max_len(1).for_each_init(
        || Scratch::new(heads),
        |scratch, unit| unit.run(layer, heads, stride, scratch),
    );
}

struct Unit<'a> {
    kv: KvPages<'a>,
    first: usize,
    tokens: usize,
    kv_heads: std::ops::Range<usize>,
    queries: &'a [f32],
    out: &'a mut [f32],
}

struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    states: Vec<Softmax>,
}

impl Scratch {
    fn new(heads: Heads) -> Self {
        let block = vec![0.0; POSITIONS * heads.dim];
        Self {
            keys: block.clone(),
            values: block,
            states: Vec::new(),
        }
    }
}

impl Unit<'_> {
    fn run(self, layer: u16, heads: Heads, stride: usize, scratch: &mut Scratch) {
        let (dim, group) = (heads.dim, heads.group());
        let width = self.kv_heads.len() * group * dim;
        let last = self.first + self.tokens - 1;
        for kv_head in self.kv_heads.clone() {
            let column = (kv_head - self.kv_heads.start) * group * dim;
            scratch.states.clear();
            scratch.states.resize(self.tokens * group, Softmax::START);
            for token in 0..self.tokens {
                self.out[token * width + column..][..group * dim].fill(0.0);
            }
            for block in (0..=last).step_by(POSITIONS) {
                let held = (last + 1 - block).min(POSITIONS) * dim;
                let (keys, values) = (&mut scratch.keys[..held], &mut scratch.values[..held]);
                self.kv.read((layer, kv_head), block, keys, values);
                for token in block.saturating_sub(self.first)..self.tokens {
                    let visible = (self.first + token + 1 - block).min(POSITIONS);
                    for g in 0..group {
                        let query = &self.queries[token * stride + (kv_head * group + g) * dim..];
                        let out = &mut self.out[token * width + column + g * dim..][..dim];
                        scratch.states[token * group + g].add(
                            &query[..dim],
                            (&scratch.keys, &scratch.values),
                            visible,
                            out,
                        );
                    }
                }
            }
            for token in 0..self.tokens {
                for g in 0..group {
                    let out = &mut self.out[token * width + column + g * dim..][..dim];
                    scratch.states[token * group + g].finish(out);
                }
            }
        }
    }
}

/// The running softmax of one query.
#[derive(Clone, Copy, Debug)]
struct Softmax {
    max: f32,
    sum: f32,
}

impl Softmax {
    const START: Self = Self {
        max: f32::NEG_INFINITY,
        sum: 0.0,
    };

    /// Adds the first `visible` positions of a block; `out` is the weighted sum of values so far.
    #[inline]
    fn add(
        &mut self,
        query: &[f32],
        (keys, values): (&[f32], &[f32]),
        visible: usize,
        out: &mut [f32],
    ) {
        let dim = query.len();
        let scale = f32x8::splat(1.0 / (dim as f32).sqrt());
        let mut weights = [[0.0f32; LANES]; POSITIONS / LANES];
        let used = visible.div_ceil(LANES);
        let mut max = f32x8::splat(self.max);
        for (i, weights) in weights[..used].iter_mut().enumerate() {
            let scores = dots(query, &keys[i * LANES * dim..][..LANES * dim]) * scale;
            *weights = scores.to_array();
            mask(weights, visible - i * LANES, f32::NEG_INFINITY);
            max = max.fast_max(load(weights));
        }
        let max = max
            .as_array()
            .iter()
            .fold(f32::NEG_INFINITY, |m, x| m.max(*x));
        let mut sum = f32x8::splat(0.0);
        for (i, weights) in weights[..used].iter_mut().enumerate() {
            *weights = (load(weights) - f32x8::splat(max)).exp().to_array();
            mask(weights, visible - i * LANES, 0.0);
            sum += load(weights);
        }
        let shrink = (f32x8::splat(self.max) - f32x8::splat(max))
            .exp()
            .as_array()[0];
        let shrink = if self.sum == 0.0 { 0.0 } else { shrink };
        self.sum = self.sum.mul_add(shrink, sum.reduce_add());
        self.max = max;
        weigh(
            &weights.as_flattened()[..visible],
            values,
            f32x8::splat(shrink),
            out,
        );
    }

    fn finish(self, out: &mut [f32]) {
        let inverse = f32x8::splat(1.0 / self.sum);
        for vector in vectors_mut(out) {
            *vector = (load(vector) * inverse).to_array();
        }
    }
}

/// Overwrites the lanes from `visible` on.
#[inline]
fn mask(lanes: &mut [f32; LANES], visible: usize, with: f32) {
    if visible < LANES {
        lanes[visible..].fill(with);
    }
}

/// Dot products of a query with eight keys.
#[inline]
fn dots(query: &[f32], keys: &[f32]) -> f32x8 {
    let keys: [_; LANES] =
        std::array::from_fn(|i| vectors(&keys[i * query.len()..(i + 1) * query.len()]));
    let query = vectors(query);
    let mut sums = [f32x8::splat(0.0); LANES];
    for (part, q) in query.iter().enumerate() {
        let q = load(q);
        for i in 0..LANES {
            sums[i] = q.mul_add(load(&keys[i][part]), sums[i]);
        }
    }
    let [a, b, c, d, e, f, g, h] = f32x8::transpose(sums);
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

/// `out = out * shrink + weights · values`.
#[inline]
fn weigh(weights: &[f32], values: &[f32], shrink: f32x8, out: &mut [f32]) {
    let per_position = out.len() / LANES;
    let values = vectors(values);
    let mut rest = vectors_mut(out);
    let mut column = 0;
    while rest.len() >= 8 {
        let (part, others) = rest.split_at_mut(8);
        weigh_columns::<8>(weights, &values[column..], per_position, shrink, part);
        (rest, column) = (others, column + 8);
    }
    while !rest.is_empty() {
        let (part, others) = rest.split_at_mut(1);
        weigh_columns::<1>(weights, &values[column..], per_position, shrink, part);
        (rest, column) = (others, column + 1);
    }
}

#[inline]
fn weigh_columns<const C: usize>(
    weights: &[f32],
    values: &[[f32; LANES]],
    stride: usize,
    shrink: f32x8,
    out: &mut [[f32; LANES]],
) {
    let mut sums: [f32x8; C] = std::array::from_fn(|c| load(&out[c]) * shrink);
    for (weight, values) in weights.iter().zip(values.chunks(stride)) {
        let weight = f32x8::splat(*weight);
        let values = &values[..C];
        for c in 0..C {
            sums[c] = weight.mul_add(load(&values[c]), sums[c]);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        *out = sum.to_array();
    }
}
