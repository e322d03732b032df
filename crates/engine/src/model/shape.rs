//! The numbers that make one Llama differ from another.

use std::path::Path;
use std::sync::Arc;

use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};

use super::error::LoadError;
use crate::kernel::attention::Heads;
use crate::kernel::{BLOCK, LANES};

/// Hyperparameters of a Llama.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LlamaShape {
    /// Transformer layers, without those of draft heads.
    pub(crate) layers: usize,
    /// Draft heads behind them: none or one.
    pub(crate) drafts: usize,
    pub(crate) hidden: usize,
    pub(crate) feed_forward: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) vocabulary: usize,
    pub(crate) context: usize,
    pub(crate) rope_theta: f64,
    pub(crate) epsilon: f32,
}

impl LlamaShape {
    /// Checks that the kernels can compute it.
    pub(crate) fn check(&self, path: &Path) -> Result<(), LoadError> {
        let sizes = [
            ("layers", self.layers, usize::from(u16::MAX)),
            ("hidden size", self.hidden, 1 << 20),
            ("feed-forward size", self.feed_forward, 1 << 20),
            ("heads", self.heads, 1 << 14),
            ("KV heads", self.kv_heads, 1 << 14),
            ("head size", self.head_dim, 1 << 14),
            ("vocabulary", self.vocabulary, 1 << 24),
            ("context length", self.context, 1 << 24),
        ];
        for (name, size, most) in sizes {
            if !(1..=most).contains(&size) {
                return Err(LoadError::malformed(path, format!("{name} is {size}")));
            }
        }
        if self.drafts > 1 {
            let what = format!("{} draft heads (at most one is)", self.drafts);
            return Err(LoadError::unsupported(path, what));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let what = format!(
                "{} heads cannot share {} KV heads",
                self.heads, self.kv_heads
            );
            return Err(LoadError::malformed(path, what));
        }
        if !self.head_dim.is_multiple_of(LANES) {
            return Err(LoadError::unsupported(
                path,
                format!("heads of size {}", self.head_dim),
            ));
        }
        let inputs = [self.hidden, self.feed_forward, self.heads * self.head_dim];
        match inputs.into_iter().find(|size| !size.is_multiple_of(BLOCK)) {
            Some(size) => Err(LoadError::unsupported(
                path,
                format!("rows of {size} numbers"),
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn geometry(&self, page_tokens: u16, dtype: KvDtype, order: KvOrder) -> KvGeometry {
        let small = |size: usize| u16::try_from(size).expect("checked when the model was loaded");
        KvGeometry {
            layers: small(self.layers + self.drafts),
            kv_heads: small(self.kv_heads),
            head_dim: small(self.head_dim),
            page_tokens,
            dtype,
            kind: KvKind::Heads,
            order,
            context_bytes: (self.drafts * self.hidden * size_of::<f32>()) as u32,
        }
    }

    /// Names of the layers that have KV entries, in the order in which a step computes them.
    pub(crate) fn layer_names(&self) -> Arc<[String]> {
        let layers = (0..self.layers).map(|i| format!("layers.{i}"));
        let drafts = (0..self.drafts).map(|i| format!("mtp.{i}"));
        layers.chain(drafts).collect()
    }

    pub(crate) const fn attention_heads(&self) -> Heads {
        Heads {
            query: self.heads,
            kv: self.kv_heads,
            dim: self.head_dim,
        }
    }

    /// Numbers in a token's queries.
    pub(crate) const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Numbers in a token's keys (and values) of one layer.
    pub(crate) const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}
