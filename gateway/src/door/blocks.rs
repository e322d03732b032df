//! The names of a prompt's blocks, for routing.

use std::sync::Arc;

use tandem_core::blocks::{BlockChain, BlockSeed};

/// Longer prompts are hashed off the I/O threads: SHA-256 takes some 10 ns a token.
const LONG: usize = 4096;

/// A prompt's blocks, for each way in which workers name them.
pub(super) async fn chains(seeds: &Arc<[BlockSeed]>, tokens: &[u32]) -> Arc<[BlockChain]> {
    if seeds.is_empty() {
        return [].into();
    }
    if tokens.len() <= LONG {
        return all(seeds, tokens);
    }
    let (seeds, tokens) = (Arc::clone(seeds), tokens.to_vec());
    let hashing = tokio::task::spawn_blocking(move || all(&seeds, &tokens));
    // Without them the request is served all the same.
    hashing.await.unwrap_or_else(|_| [].into())
}

fn all(seeds: &[BlockSeed], tokens: &[u32]) -> Arc<[BlockChain]> {
    let chain = |seed: &BlockSeed| BlockChain::of_prompt(*seed, &[], tokens);
    seeds.iter().map(chain).collect()
}
