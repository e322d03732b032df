//! Randomness by seed: the same seed gives the same load on every machine and in every part of a test.
//!
//! Each thing that is drawn for has a stream of its own, named by a purpose and a number. So what one
//! request is does not depend on how many were made before it, or by whom.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// When requests arrive.
    Arrivals,
    /// What a request is: class, lengths, group, think times.
    Request,
    /// The words of a text that no other request has.
    Unique,
    /// The words of a shared prefix.
    Prefix,
    /// The words of a trace's block.
    Block,
    /// In which order a file's prompts are used.
    Order,
}

/// The stream of this purpose and number.
pub(crate) fn stream(seed: u64, purpose: Purpose, number: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&(purpose as u64).to_le_bytes());
    key[16..24].copy_from_slice(&number.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}
