//! Naming blocks of tokens, so that KV entries computed once are found again.
//!
//! A block is a page's worth of tokens. Its name is a hash over the block before it and its own
//! tokens, so it stands for everything from the first token on: equal names, equal KV entries. The
//! chain begins with a seed over what the entries depend on besides tokens: the model's weights, the
//! shape of the cache, and a salt that keeps those apart who must not learn of each other's prompts.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::geometry::KvGeometry;

/// The name of a block: SHA-256 over the chain, cut to 128 bits. Nobody can find two blocks of one
/// name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub [u8; 16]);

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// What a chain begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSeed {
    start: BlockHash,
    page_tokens: u16,
}

impl BlockSeed {
    /// `fingerprint` names the model's weights. How heads are cut into shards and how planes lie is no
    /// part of it: entries are the same.
    #[must_use]
    pub fn new(fingerprint: &str, geometry: &KvGeometry, salt: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        for part in [fingerprint.as_bytes(), salt] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let shape = [
            geometry.layers,
            geometry.kv_heads,
            geometry.head_dim,
            geometry.page_tokens,
        ];
        for number in shape {
            hasher.update(number.to_le_bytes());
        }
        hasher.update(geometry.dtype.as_str());
        hasher.update(geometry.kind.as_str());
        Self {
            start: cut(hasher),
            page_tokens: geometry.page_tokens,
        }
    }

    /// The seed that a worker announced: its start, and the tokens of its pages.
    #[must_use]
    pub const fn announced(start: BlockHash, page_tokens: u16) -> Self {
        Self { start, page_tokens }
    }

    /// What the chain begins with.
    #[must_use]
    pub const fn start(&self) -> BlockHash {
        self.start
    }

    /// Tokens of a block.
    #[must_use]
    pub const fn page_tokens(&self) -> u16 {
        self.page_tokens
    }

    /// Names of all whole blocks of these tokens, first to last. `salt` keeps a request's blocks apart
    /// from those of another salt.
    #[must_use]
    pub fn chain(&self, salt: &[u8], tokens: &[u32]) -> Vec<BlockHash> {
        let mut before = self.start;
        if !salt.is_empty() {
            let mut hasher = Sha256::new();
            hasher.update(before.0);
            hasher.update(salt);
            before = cut(hasher);
        }
        let block = |tokens: &[u32]| {
            let mut hasher = Sha256::new();
            hasher.update(before.0);
            for token in tokens {
                hasher.update(token.to_le_bytes());
            }
            before = cut(hasher);
            before
        };
        tokens
            .chunks_exact(usize::from(self.page_tokens))
            .map(block)
            .collect()
    }
}

/// A prompt's blocks as workers of one seed name them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockChain {
    /// Whose names these are.
    pub seed: BlockSeed,
    /// First to last.
    pub blocks: Arc<[BlockHash]>,
}

impl BlockChain {
    /// The whole blocks of a prompt that a worker may have: of all its tokens but the last, whose
    /// KV entries no prefill makes.
    #[must_use]
    pub fn of_prompt(seed: BlockSeed, salt: &[u8], tokens: &[u32]) -> Self {
        let prefilled = &tokens[..tokens.len().saturating_sub(1)];
        Self {
            seed,
            blocks: seed.chain(salt, prefilled).into(),
        }
    }
}

fn cut(hasher: Sha256) -> BlockHash {
    let mut name = [0; 16];
    name.copy_from_slice(&hasher.finalize()[..16]);
    BlockHash(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvKind, KvOrder};

    const G: KvGeometry = KvGeometry {
        layers: 2,
        kv_heads: 1,
        head_dim: 8,
        page_tokens: 4,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };

    #[test]
    fn a_block_stands_for_all_tokens_before_it() {
        let seed = BlockSeed::new("model", &G, b"");
        let tokens: Vec<u32> = (0..13).collect();
        let chain = seed.chain(b"", &tokens);
        assert_eq!(chain.len(), 3, "only whole blocks");
        assert_eq!(seed.chain(b"", &tokens[..8]), chain[..2]);
        let mut other = tokens.clone();
        other[0] = 99;
        let changed = seed.chain(b"", &other);
        assert!(chain.iter().zip(&changed).all(|(a, b)| a != b));
        // The same four tokens at another place.
        let twice: Vec<u32> = [1, 2, 3, 4, 1, 2, 3, 4].into();
        let chain = seed.chain(b"", &twice);
        assert_ne!(chain[0], chain[1]);
    }

    #[test]
    fn model_shape_and_salt_keep_blocks_apart() {
        let tokens = [1, 2, 3, 4];
        let first = |seed: BlockSeed, salt: &[u8]| seed.chain(salt, &tokens)[0];
        let seed = BlockSeed::new("model", &G, b"");
        let plain = first(seed, b"");
        let mut bf16 = G;
        bf16.dtype = KvDtype::Bf16;
        let others = [
            first(BlockSeed::new("other", &G, b""), b""),
            first(BlockSeed::new("model", &G, b"tenant"), b""),
            first(BlockSeed::new("model", &bf16, b""), b""),
            first(seed, b"tenant"),
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(*other, plain, "{i}");
        }
        let apart = KvGeometry {
            order: KvOrder::Apart,
            ..G
        };
        assert_eq!(first(BlockSeed::new("model", &apart, b""), b""), plain);
    }
}
