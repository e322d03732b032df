//! Names of a prompt's blocks, for a log from which loads are replayed: equal prompts show as equal, and
//! how long a prefix two prompts share.

use std::fmt::Write;

use tandem_core::blocks::BlockSeed;
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};

/// As in Mooncake's traces.
const BLOCK_TOKENS: u16 = 512;
/// Bytes of a name that are logged.
const SHOWN: usize = 8;

/// Hexadecimal names of the whole blocks, first to last, with commas between them. They are the same for
/// the same tokens on every gateway, whatever its workers are.
pub(super) fn hashes(tokens: &[u32]) -> String {
    let geometry = KvGeometry {
        layers: 0,
        kv_heads: 0,
        head_dim: 0,
        page_tokens: BLOCK_TOKENS,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };
    let mut text = String::new();
    for block in BlockSeed::new("", &geometry, b"").chain(b"", tokens) {
        if !text.is_empty() {
            text.push(',');
        }
        for byte in &block.0[..SHOWN] {
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_that_begin_alike_share_names() {
        let long: Vec<u32> = (0..1600).collect();
        let mut other = long.clone();
        other[600] = 0;
        let (long, other) = (hashes(&long), hashes(&other));
        let long: Vec<&str> = long.split(',').collect();
        let other: Vec<&str> = other.split(',').collect();
        assert_eq!(long.len(), 3, "what is left makes no block");
        assert_eq!(long[0], other[0]);
        assert_ne!(long[1], other[1]);
        assert_ne!(long[2], other[2], "a name stands for all before it");
        assert_eq!(long[0].len(), 16);
        assert_eq!(hashes(&[1; 511]), "");
    }
}
