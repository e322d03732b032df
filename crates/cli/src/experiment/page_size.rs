//! `page-size`: what the tokens of a page change. Small pages are small writes, which a NIC does not fill its link with;
//! large ones waste room and share less of a prefix.

use serde_json::json;
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::{FleetPlan, Pool, Request};
use tandem_policies::Rule;

use super::policies::traces;
use super::r1::PROFILE;
use super::report::{Report, cell};
use super::{ExperimentArgs, pool, simulated};
use crate::failure::Failure;
use crate::planning::{millis, rounded};

const PAGES: [u16; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// Writes a second of a GPU's two NICs, and what its link carries: 1 KiB to 64 KiB over EFA, Table 2 of arXiv
/// 2510.27656.
const WRITES_PER_S: f64 = 2.1e6;
const GBIT_PER_S: f64 = 364.0;
/// Tokens of a prompt whose layer travels.
const TOKENS: u64 = 8192;

/// Nodes with such pages, each page a write of its own: as where pages lie scattered. Tandem merges contiguous ones.
fn with_pages(page_tokens: u16) -> Result<Pool, Failure> {
    let mut pool = Pool {
        page_tokens,
        ..pool(PROFILE, 1)?
    };
    let bytes = pool.profile.attention.kv_bytes_per_token;
    let by_bytes = bytes * 8.0 / GBIT_PER_S;
    let by_writes = 1e9 / WRITES_PER_S / f64::from(page_tokens);
    pool.profile.link.ns_per_token = by_bytes.max(by_writes);
    Ok(pool)
}

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    let found = traces(args)?;
    // Without names of blocks there is nothing to find.
    let known = found
        .into_iter()
        .find(|(_, all)| all.iter().any(|r| r.blocks.is_some()));
    let (name, trace): (String, Vec<Request>) = known.ok_or_else(|| {
        Failure::mendable("page-size wants a trace with hash_ids, such as Mooncake's")
    })?;
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    let mut found = Vec::new();
    for page_tokens in PAGES {
        let pool = with_pages(page_tokens)?;
        let layer = millis(pool.profile.push(TOKENS));
        let mut plan = FleetPlan::apart(pool.of(3), pool.of(3));
        (plan.policy.prefill.choose, plan.policy.decode.choose) = (Rule::KvCost, Rule::LeastLoaded);
        let (summary, done) = simulated(&plan, &trace)?;
        let wasted = wasted(&trace, page_tokens);
        let figures = [
            layer,
            millis(summary.exposed.p50),
            summary.cached_share * 100.0,
            wasted * 100.0,
            millis(summary.ttft.p50),
        ];
        rows.push([
            page_tokens.to_string(),
            cell(figures[0]),
            cell(figures[1]),
            cell(figures[2]),
            cell(figures[3]),
            cell(figures[4]),
        ]);
        found.push(json!({
            "page_tokens": page_tokens,
            "layer_of_8192_tokens_ms": rounded(figures[0]),
            "transfer_ms_p50": rounded(figures[1]),
            "cached_share": rounded(summary.cached_share),
            "wasted_room_share": rounded(wasted),
            "ttft_ms_p50": rounded(figures[4]),
            "most_pages_share": rounded(done.decode.most_pages),
        }));
        all.push((f64::from(page_tokens), figures));
    }
    let [way, room] = plots(&all);
    Ok(Report::new(json!({ "trace": name, "runs": found }))
        .says(format!(
            "{PROFILE}, 3 prefill and 3 decode nodes, {} requests of {name}; each page is one write.",
            trace.len()
        ))
        .table(HEAD, &rows)
        .plot("page-size-transfer", &way)
        .plot("page-size-room", &room))
}

const HEAD: [&str; 6] = [
    "page tokens",
    "a layer of 8,192 tokens, ms",
    "transfer adds to TTFT, ms, p50",
    "found in caches, %",
    "room wasted, %",
    "TTFT ms, p50",
];

/// By tokens of a page, of the figures in the order of [`HEAD`]: the transfer, and the room.
fn plots(all: &[(f64, [f64; 5])]) -> [Plot; 2] {
    let line =
        |name: &str, at: usize| Series::line(name, all.iter().map(move |(x, f)| (*x, f[at])));
    let x = || Axis::log("tokens of a page");
    let way = Plot::new(
        "Page size: a layer of 8,192 tokens",
        x(),
        Axis::linear("ms"),
    );
    let room = Plot::new(
        "Page size: prefixes found, room wasted",
        x(),
        Axis::linear("%"),
    );
    [
        way.series(line("each page a write", 0)),
        room.series(line("prompt tokens found in a cache", 2))
            .series(line("room that requests cannot use", 3)),
    ]
}

/// Share of the pages' room in which requests keep nothing.
fn wasted(trace: &[Request], page_tokens: u16) -> f64 {
    let page = u64::from(page_tokens);
    let kept: u64 = trace.iter().map(Request::room).sum();
    let taken: u64 = trace.iter().map(|r| r.room().next_multiple_of(page)).sum();
    1.0 - kept as f64 / taken.max(1) as f64
}
