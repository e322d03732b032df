//! What one token's and one page's KV entries look like.
//!
//! Layout is HND: in a page, heads come before tokens, so that a range of heads is contiguous. In
//! one layer a page is one *piece*: all heads' keys, then all heads' values:
//!
//! ```text
//! piece = K [kv_heads][page_tokens][head_dim]  then  V [kv_heads][page_tokens][head_dim]
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

/// The shape of a model's KV cache on one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvGeometry {
    /// Transformer layers.
    pub layers: u16,
    /// KV heads in each layer.
    pub kv_heads: u16,
    /// Numbers in one head's key (and value) of one token.
    pub head_dim: u16,
    /// Tokens in one page.
    pub page_tokens: u16,
    /// Number type.
    pub dtype: KvDtype,
}

/// Two workers whose KV caches cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("KV geometry differs: {field} is {ours} here and {theirs} there")]
pub struct GeometryMismatch {
    /// Which property differs.
    pub field: &'static str,
    /// This side's value.
    pub ours: String,
    /// The other side's value.
    pub theirs: String,
}

impl KvGeometry {
    /// Bytes of one page in one layer (K and V together).
    #[must_use]
    pub const fn piece_bytes(&self) -> usize {
        2 * self.kv_heads as usize
            * self.page_tokens as usize
            * self.head_dim as usize
            * self.dtype.bytes()
    }

    /// Bytes of one page over all layers.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.piece_bytes() * self.layers as usize
    }

    /// Pages that hold `tokens` tokens.
    #[must_use]
    pub const fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens as usize)
    }

    /// Whether pages of `theirs` can be copied into ours byte for byte; otherwise the first
    /// property that differs, with both values.
    pub fn matches(&self, theirs: &Self) -> Result<(), GeometryMismatch> {
        let differs = |field, ours: &dyn fmt::Display, theirs: &dyn fmt::Display| {
            let (ours, theirs) = (ours.to_string(), theirs.to_string());
            if ours == theirs {
                Ok(())
            } else {
                Err(GeometryMismatch {
                    field,
                    ours,
                    theirs,
                })
            }
        };
        differs("layers", &self.layers, &theirs.layers)?;
        differs("kv_heads", &self.kv_heads, &theirs.kv_heads)?;
        differs("head_dim", &self.head_dim, &theirs.head_dim)?;
        differs("page_tokens", &self.page_tokens, &theirs.page_tokens)?;
        differs("dtype", &self.dtype, &theirs.dtype)
    }
}

impl fmt::Display for KvGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} layers x {} KV heads x {} x {}, {} tokens a page, HND",
            self.layers, self.kv_heads, self.head_dim, self.dtype, self.page_tokens
        )
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

    #[test]
    fn a_mismatch_names_the_property_and_both_values() {
        let other = KvGeometry {
            page_tokens: 32,
            ..SMOLLM2
        };
        let text = SMOLLM2.matches(&other).unwrap_err().to_string();
        assert_eq!(
            text,
            "KV geometry differs: page_tokens is 16 here and 32 there"
        );
        let other = KvGeometry {
            dtype: KvDtype::Bf16,
            ..SMOLLM2
        };
        let text = SMOLLM2.matches(&other).unwrap_err().to_string();
        assert_eq!(
            text,
            "KV geometry differs: dtype is f16 here and bf16 there"
        );
    }
}
