//! The exact bytes of every token, in one table.

use std::sync::LazyLock;

/// Token ids at and above this are refused, so that one wrong id cannot claim gigabytes.
pub(crate) const MAX_VOCABULARY: u32 = 1 << 22;

/// Bytes of token `t`: `bytes[ends[t - 1]..ends[t]]`.
#[derive(Default)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    special: Vec<bool>,
}

impl Pieces {
    /// Adds the next token. Special tokens have bytes, but are no text in an answer.
    pub(crate) fn push(&mut self, bytes: &[u8], special: bool) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.special.push(special);
    }

    /// How many tokens there are.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// A token's bytes; none for an id out of range.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        let index = token as usize;
        let Some(&end) = self.ends.get(index) else {
            return &[];
        };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..end]
    }

    /// Bytes of the longest token.
    pub(crate) fn longest(&self) -> usize {
        (0..self.len())
            .map(|token| self.bytes(token).len())
            .max()
            .unwrap_or(0)
    }

    /// Whether a token is a control token; false for an id out of range.
    pub(crate) fn is_special(&self, token: u32) -> bool {
        self.special.get(token as usize).copied().unwrap_or(false)
    }
}

/// GPT-2's alphabet: every byte has a printable character (`bytes_to_unicode` of its encoder.py).
/// Bytes that print stand for themselves, the others for U+0100 upwards, in order.
static BYTE_OF_CHARACTER: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
    let mut table = [None; 0x144];
    let mut next = 0x100;
    for byte in 0..=u8::MAX {
        let prints = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let place = if prints { usize::from(byte) } else { next };
        next += usize::from(!prints);
        table[place] = Some(byte);
    }
    table
});

/// The bytes of a byte-level token. As in Hugging Face's decoder, a token with any character
/// outside the alphabet stands for itself.
pub(crate) fn byte_level(token: &str) -> Vec<u8> {
    token
        .chars()
        .map(|character| *BYTE_OF_CHARACTER.get(character as usize)?)
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The bytes of a SentencePiece token: `<0xE2>` is a byte, `▁` a space.
pub(crate) fn sentence_piece(token: &str) -> Vec<u8> {
    let byte = token
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'))
        .filter(|digits| digits.len() == 2)
        .and_then(|digits| u8::from_str_radix(digits, 16).ok());
    match byte {
        Some(byte) => vec![byte],
        None => token.replace('\u{2581}', " ").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_names_every_byte_once() {
        let mut bytes: Vec<u8> = BYTE_OF_CHARACTER.iter().flatten().copied().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=u8::MAX).collect::<Vec<_>>());
        assert_eq!(byte_level("Ġa"), b" a");
        assert_eq!(byte_level("Ċ"), b"\n");
        assert_eq!(byte_level("日"), "日".as_bytes());
    }

    #[test]
    fn sentence_piece_tokens_are_bytes_or_text() {
        assert_eq!(sentence_piece("<0x0A>"), b"\n");
        assert_eq!(sentence_piece("▁the"), b" the");
        assert_eq!(sentence_piece("<0x>"), b"<0x>");
    }

    #[test]
    fn an_id_out_of_range_has_no_bytes() {
        let mut pieces = Pieces::default();
        pieces.push(b"ab", false);
        pieces.push(b"", true);
        pieces.push(b"c", false);
        assert_eq!(pieces.bytes(0), b"ab");
        assert_eq!(pieces.bytes(1), b"");
        assert_eq!(pieces.bytes(2), b"c");
        assert_eq!(pieces.bytes(3), b"");
        assert!(pieces.is_special(1) && !pieces.is_special(3));
    }
}
