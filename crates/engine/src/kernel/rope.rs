//! Rotary position embedding.

/// Sines and cosines for every position.
///
/// Pairs are neighbours (`x[2i]`, `x[2i + 1]`), as GGUF orders them; weights in the order of
/// Hugging Face (`x[i]`, `x[i + head_dim / 2]`) are reordered when they are loaded.
#[derive(Debug)]
pub(crate) struct Rope {
    half: usize,
    cos_sin: Vec<[f32; 2]>,
}

impl Rope {
    /// Tables for `positions` positions: pair `i` turns by `theta^(-2i / head_dim)` a position.
    pub(crate) fn new(head_dim: usize, theta: f64, positions: usize) -> Self {
        let half = head_dim / 2;
        let step = |i: usize| theta.powf(-(2.0 * i as f64) / head_dim as f64);
        let steps: Vec<f64> = (0..half).map(step).collect();
        let angle = |p: usize, i: usize| p as f64 * steps[i];
        let cos_sin = (0..positions)
            .flat_map(|p| (0..half).map(move |i| (p, i)))
            .map(|(p, i)| [angle(p, i).cos() as f32, angle(p, i).sin() as f32])
            .collect();
        Self { half, cos_sin }
    }

    /// Turns all heads of one token at `position`.
    pub(crate) fn turn(&self, heads: &mut [f32], position: usize) {
        let table = &self.cos_sin[position * self.half..(position + 1) * self.half];
        for head in heads.chunks_exact_mut(2 * self.half) {
            for (pair, [cos, sin]) in head.as_chunks_mut::<2>().0.iter_mut().zip(table) {
                let [a, b] = *pair;
                *pair = [a * cos - b * sin, a * sin + b * cos];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_turns_nothing_and_lengths_stay() {
        let rope = Rope::new(8, 10_000.0, 100);
        let mut head: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let before = head.clone();
        rope.turn(&mut head, 0);
        assert_eq!(head, before);
        rope.turn(&mut head, 99);
        let square = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>();
        assert!((square(&head) - square(&before)).abs() < 1e-2);
        assert_ne!(head, before);
    }
}
