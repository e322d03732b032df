//! How many writes carry a request's pages, with and without merging, as pools fill up and fragment:
//!
//! ```text
//! cargo run --release -p tandem-core --example writes_per_request
//! ```
//!
//! Both sides run leases of 4 to 64 pages that come and go at random until their pools have settled,
//! then a request of 32 pages is leased on both. `pages` is what an engine that sends one write for each
//! page of a layer needs.
#![allow(clippy::print_stdout, reason = "a program's output")]

use tandem_core::arena::ArenaLayout;
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::lease::{Lease, Leased};
use tandem_core::plan::{Side, templates};
use tandem_core::pool::PagePool;

const PAGES: u32 = 4096;
const REQUEST: u32 = 32;
/// Of each occupancy.
const REQUESTS: u32 = 400;

/// A Llama of eight KV heads of 128, half precision, 16 tokens a page: 64 KiB a page and layer.
const GEOMETRY: KvGeometry = KvGeometry {
    layers: 1,
    kv_heads: 8,
    head_dim: 128,
    page_tokens: 16,
    dtype: KvDtype::F16,
    kind: KvKind::Heads,
    order: KvOrder::Together,
    context_bytes: 0,
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A pool whose leases come and go, so that about `percent` of its pages are in use.
struct Churn {
    pool: PagePool,
    held: Vec<Lease<Leased>>,
    random: Random,
    most: u32,
}

impl Churn {
    fn new(percent: u32, seed: u64) -> Self {
        let mut this = Self {
            pool: PagePool::new(PAGES),
            held: Vec::new(),
            random: Random(seed),
            most: PAGES * percent / 100,
        };
        (0..20_000).for_each(|_| this.turn());
        this
    }

    fn turn(&mut self) {
        let asked = 4 + self.random.below(61) as u32;
        while PAGES - self.pool.free() + asked > self.most && !self.held.is_empty() {
            let which = self.random.below(self.held.len() as u64) as usize;
            self.pool.free_leased(self.held.swap_remove(which));
        }
        if PAGES - self.pool.free() + asked <= self.most
            && let Ok(lease) = self.pool.lease(asked)
        {
            self.held.push(lease);
        }
    }
}

fn main() {
    println!("writes of a layer for a request of {REQUEST} pages, mean of {REQUESTS} requests");
    println!(
        "{:>9}  {:>6}  {:>7}  {:>8}",
        "occupied", "pages", "merged", "fewer by"
    );
    for percent in [0, 25, 50, 75, 90, 97] {
        let merged = measure(percent);
        let pages = f64::from(REQUEST);
        println!(
            "{percent:>8}%  {pages:>6.1}  {merged:>7.2}  {:>7.1}x",
            pages / merged
        );
    }
}

fn measure(percent: u32) -> f64 {
    let arena = ArenaLayout::new(GEOMETRY, PAGES);
    let (mut from, mut to) = (Churn::new(percent, 1), Churn::new(percent, 2));
    let mut writes = 0;
    for _ in 0..REQUESTS {
        from.turn();
        to.turn();
        let leases = (from.pool.lease(REQUEST), to.pool.lease(REQUEST));
        let (Ok(source), Ok(target)) = leases else {
            unreachable!("three in a hundred pages are free, and more than a request needs")
        };
        let side = |lease: &Lease<Leased>| lease.pages().to_vec();
        let (source_pages, target_pages) = (side(&source), side(&target));
        let side = |pages| Side {
            arena: &arena,
            pages,
            from: 0,
            head: 0,
        };
        let tokens = 0..REQUEST * u32::from(GEOMETRY.page_tokens);
        let planned = templates(side(&source_pages), side(&target_pages), 8, tokens, 1 << 20);
        writes += planned.len();
        from.pool.free_leased(source);
        to.pool.free_leased(target);
    }
    writes as f64 / f64::from(REQUESTS)
}
