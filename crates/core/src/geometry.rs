//! What one token's and one page's KV entries look like.
//!
//! Layout is HND: in a page, heads come before tokens, so that a range of heads is contiguous. In
//! one layer a page has one *plane* for keys and one for values (or a single one, for MLA's latent):
//!
//! ```text
//! plane = [kv_heads][page_tokens][head_dim]
//! ```

use std::fmt;

/// The number type of KV entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvDtype {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl KvDtype {
    /// Bytes of one number.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// As written in configuration and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for KvDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What attention keeps of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvKind {
    /// A key and a value for each KV head (MHA, GQA, MQA).
    Heads,
    /// One latent vector for all heads (MLA): a single head of a single plane, replicated on every
    /// tensor-parallel rank.
    Latent,
}

impl KvKind {
    /// Planes of a page in a layer.
    #[must_use]
    pub const fn planes(self) -> u16 {
        match self {
            Self::Heads => 2,
            Self::Latent => 1,
        }
    }

    /// As written in configuration and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Heads => "heads",
            Self::Latent => "latent",
        }
    }
}

impl fmt::Display for KvKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a layer's keys and values lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvOrder {
    /// A page's keys, then its values, then the next page.
    Together,
    /// All pages' keys, then all pages' values.
    Apart,
}

impl KvOrder {
    /// As written in configuration and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::Apart => "apart",
        }
    }
}

impl fmt::Display for KvOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The shape of a KV cache: a whole model's, or one shard's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvGeometry {
    /// Layers that have KV entries.
    pub layers: u16,
    /// KV heads in each layer.
    pub kv_heads: u16,
    /// Numbers in one head's key (and value) of one token; in the latent, for MLA.
    pub head_dim: u16,
    /// Tokens in one page.
    pub page_tokens: u16,
    /// Number type.
    pub dtype: KvDtype,
    /// What attention keeps.
    pub kind: KvKind,
    /// Where keys and values lie.
    pub order: KvOrder,
    /// Bytes of *context*: what the token behind the last prefilled one needs of it beside the KV
    /// entries (its hidden state, its logits), in the engine's own form. 0 where nothing is needed.
    pub context_bytes: u32,
}

impl KvGeometry {
    /// Bytes of one head's entry of one token in one plane.
    #[must_use]
    pub const fn token_bytes(&self) -> usize {
        self.head_dim as usize * self.dtype.bytes()
    }

    /// Bytes of one head of one page in one plane.
    #[must_use]
    pub const fn head_bytes(&self) -> usize {
        self.page_tokens as usize * self.token_bytes()
    }

    /// Bytes of one plane of one page in one layer.
    #[must_use]
    pub const fn plane_bytes(&self) -> usize {
        self.kv_heads as usize * self.head_bytes()
    }

    /// Bytes of one page in one layer, all planes.
    #[must_use]
    pub const fn piece_bytes(&self) -> usize {
        self.kind.planes() as usize * self.plane_bytes()
    }

    /// Bytes of one page over all layers.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.piece_bytes() * self.layers as usize
    }

    /// How far an engine's counter moves in one step: once for each layer, then once for the context
    /// where there is one.
    #[must_use]
    pub const fn bumps(&self) -> u64 {
        self.layers as u64 + (self.context_bytes > 0) as u64
    }

    /// Pages that hold `tokens` tokens.
    #[must_use]
    pub const fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens as usize)
    }
}

impl fmt::Display for KvGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} layers x {} KV {} x {} x {}, {} tokens a page, HND, planes {}",
            self.layers,
            self.kv_heads,
            self.kind,
            self.head_dim,
            self.dtype,
            self.page_tokens,
            self.order
        )?;
        match self.context_bytes {
            0 => Ok(()),
            bytes => write!(f, ", {bytes} bytes of context"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMOLLM2: KvGeometry = KvGeometry {
        layers: 30,
        kv_heads: 3,
        head_dim: 64,
        page_tokens: 16,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };

    #[test]
    fn a_page_of_smollm2_is_12_kib_a_layer() {
        assert_eq!(SMOLLM2.piece_bytes(), 12 * 1024);
        assert_eq!(SMOLLM2.page_bytes(), 360 * 1024);
        assert_eq!(SMOLLM2.pages_for(0), 0);
        assert_eq!(SMOLLM2.pages_for(1), 1);
        assert_eq!(SMOLLM2.pages_for(16), 1);
        assert_eq!(SMOLLM2.pages_for(17), 2);
    }
}
