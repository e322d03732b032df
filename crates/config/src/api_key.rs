//! The text of an API key: `tandem-<id>-<secret>`.
//!
//! The id finds the key's entry in the file; the secret is 192 random bits, so that its hash tells
//! nobody anything. A slow hash (argon2, bcrypt) guards what people choose and others can guess; here it
//! would only let anyone make the gateway compute for each wrong key.

use std::fmt;

use sha2::{Digest, Sha256 as Hasher};

use crate::Sha256;

const PREFIX: &str = "tandem-";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 24;

/// A whole key. Shown by [`ApiKey::reveal`] only.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Bytes of chance that a key is made from.
    pub const RANDOM_BYTES: usize = ID_BYTES + SECRET_BYTES;

    /// Makes a key from bytes that nobody can guess.
    #[must_use]
    pub fn from_random(bytes: [u8; Self::RANDOM_BYTES]) -> Self {
        let (id, secret) = bytes.split_at(ID_BYTES);
        Self(format!("{PREFIX}{}-{}", hex(id), hex(secret)))
    }

    /// The key itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The part that is no secret.
    #[must_use]
    pub fn id(&self) -> &str {
        Self::id_of(&self.0).unwrap_or_default()
    }

    /// The part of a text that is no secret; `None` where the text is no key.
    #[must_use]
    pub fn id_of(text: &str) -> Option<&str> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('-')?;
        (is_id(id) && is_hex(secret, SECRET_BYTES)).then_some(id)
    }

    /// What is kept of a key.
    #[must_use]
    pub fn hash_of(text: &str) -> Sha256 {
        Sha256(Hasher::digest(text.as_bytes()).into())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}, not shown)", self.id())
    }
}

/// Whether `text` can be the part of a key that is no secret.
pub(crate) fn is_id(text: &str) -> bool {
    is_hex(text, ID_BYTES)
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_an_id_and_never_shows_its_secret() {
        let key = ApiKey::from_random([0xab; ApiKey::RANDOM_BYTES]);
        assert_eq!(key.id(), "abababababab");
        assert_eq!(ApiKey::id_of(key.reveal()), Some("abababababab"));
        assert_eq!(format!("{key:?}"), "ApiKey(abababababab, not shown)");
        let digest = ApiKey::hash_of(key.reveal()).to_string();
        assert_ne!(digest, ApiKey::hash_of(&key.reveal()[1..]).to_string());
    }

    #[test]
    fn a_text_of_another_form_is_no_key() {
        let key = ApiKey::from_random([1; ApiKey::RANDOM_BYTES]);
        let text = key.reveal();
        let upper = text.replace('0', "A");
        for bad in [
            "",
            "tandem-",
            "sk-abc",
            &text[..text.len() - 1],
            &text[1..],
            &upper,
        ] {
            assert_eq!(ApiKey::id_of(bad), None, "{bad}");
        }
    }
}
