//! Names of a prompt's pages, from what a trace says of its text.

use std::sync::Arc;

use tandem_core::blocks::{BlockChain, BlockHash, BlockSeed};

use crate::Request;

/// How the workers with such pages name them.
pub(crate) const fn seed(page_tokens: u16) -> BlockSeed {
    BlockSeed::announced(BlockHash([0; 16]), page_tokens)
}

/// The whole pages of a prompt but its last token, for each way of naming. A page's name stands for all the
/// text up to its end.
pub(crate) fn chains(request: &Request, seeds: &[BlockSeed]) -> Arc<[BlockChain]> {
    let chain = |seed: &BlockSeed| BlockChain {
        seed: *seed,
        blocks: pages(request, u32::from(seed.page_tokens())),
    };
    seeds.iter().map(chain).collect()
}

fn pages(request: &Request, page_tokens: u32) -> Arc<[BlockHash]> {
    let Some(blocks) = &request.blocks else {
        return [].into();
    };
    let whole = (request.prompt - 1) / page_tokens;
    let mut ids = blocks.ids.iter().zip(0u64..).peekable();
    let mut name = u64::from(page_tokens);
    let page = |page: u32| {
        let end = u64::from(page + 1) * u64::from(page_tokens);
        // A block belongs to the page in which it begins; a page within a block differs by its place.
        while let Some((id, _)) = ids.next_if(|(_, at)| at * u64::from(blocks.tokens) < end) {
            name = mix(name ^ mix(id.wrapping_add(1)));
        }
        let (high, low) = (mix(name ^ end), mix(name.rotate_left(32) ^ !end));
        BlockHash((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    };
    (0..whole).map(page).collect()
}

/// The finaliser of SplitMix64.
const fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blocks;
    use std::time::Duration;

    fn names(ids: &[u64], prompt: u32, page: u16) -> Vec<BlockHash> {
        let blocks = Blocks {
            tokens: 512,
            ids: ids.into(),
        };
        let request = Request {
            blocks: Some(blocks),
            ..Request::new(Duration::ZERO, prompt, 1)
        };
        chains(&request, &[seed(page)])[0].blocks.to_vec()
    }

    #[test]
    fn pages_are_the_same_up_to_where_the_text_differs() {
        for page in [16, 64, 512, 1024] {
            let (one, two) = (
                names(&[1, 2, 3, 4], 2048, page),
                names(&[1, 2, 9, 4], 2048, page),
            );
            let same = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
            assert_eq!(same, 1024 / usize::from(page), "pages of {page}");
            assert_eq!(
                one.len(),
                2047 / usize::from(page),
                "the last token has no entry"
            );
            let mut all = one.clone();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), one.len(), "no two pages are alike");
        }
    }

    #[test]
    fn a_prompt_that_goes_on_begins_with_the_same_pages() {
        let (short, long) = (names(&[1, 2], 1000, 64), names(&[1, 2, 3], 1500, 64));
        assert_eq!(long[..short.len()], short);
    }
}
