//! `chunk-size`: what the prompt tokens of a step do.

use serde_json::json;
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::{FleetPlan, Pool};

use super::r1::PROFILE;
use super::report::{Report, cell};
use super::{ExperimentArgs, poisson, pool, simulated};
use crate::failure::Failure;
use crate::planning::{millis, rounded};

const HEAD: [&str; 6] = [
    "fleet",
    "chunk tokens",
    "longest stall ms, p99",
    "TTFT ms, p50",
    "p99",
    "tokens/s, p50",
];

/// Without lines as yet: stalls, first tokens, speeds.
fn plots() -> [Plot; 3] {
    let x = || Axis::log("prompt tokens in a step");
    let stalls = Axis::log("ms, p99 of requests");
    [
        Plot::new("Chunk size: longest stall", x(), stalls),
        Plot::new("Chunk size: time to first token", x(), Axis::log("ms, p50")),
        Plot::new(
            "Chunk size: speed of answers",
            x(),
            Axis::linear("tokens/s, p50"),
        ),
    ]
}

const CHUNKS: [u32; 6] = [512, 1024, 2048, 4096, 8192, 16_384];

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    let count = args.requests(1500);
    let (prompt, answer) = (8000, 300);
    let mut plots = plots();
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    // The same two requests a second: on three nodes that do both, and on one and two.
    let trace = poisson(2.0, count, &[(prompt, answer)])?;
    for apart in [false, true] {
        let name = if apart {
            "1 prefill, 2 decode nodes"
        } else {
            "3 mixed nodes"
        };
        let mut all = Vec::new();
        for chunk_tokens in CHUNKS {
            let of = |workers| {
                Ok::<_, Failure>(Pool {
                    chunk_tokens,
                    ..pool(PROFILE, workers)?
                })
            };
            let plan = match apart {
                true => FleetPlan::apart(of(1)?, of(2)?),
                false => FleetPlan::mixed(of(3)?),
            };
            let summary = simulated(&plan, &trace)?.0;
            let figures = [
                millis(summary.longest_gap.p99),
                millis(summary.ttft.p50),
                millis(summary.ttft.p99),
                summary.tokens_per_second(),
            ];
            rows.push([
                name.to_owned(),
                chunk_tokens.to_string(),
                cell(figures[0]),
                cell(figures[1]),
                cell(figures[2]),
                cell(figures[3]),
            ]);
            found.push(json!({
                "disaggregated": apart,
                "chunk_tokens": chunk_tokens,
                "longest_stall_ms_p99": rounded(figures[0]),
                "ttft_ms_p50": rounded(figures[1]),
                "ttft_ms_p99": rounded(figures[2]),
                "tps_p50": rounded(figures[3]),
            }));
            all.push((f64::from(chunk_tokens), figures));
        }
        let series = |at: usize| Series::line(name, all.iter().map(move |(x, f)| (*x, f[at])));
        let [stalls, ttfts, speeds] = plots;
        plots = [
            stalls.series(series(0)),
            ttfts.series(series(1)),
            speeds.series(series(3)),
        ];
    }
    let [stalls, ttfts, speeds] = plots;
    Ok(Report::new(json!({ "runs": found }))
        .says(format!(
            "{PROFILE}: {count} requests of {prompt} + {answer} tokens, 2 a second, Poisson."
        ))
        .table(HEAD, &rows)
        .plot("chunk-size-stalls", &stalls)
        .plot("chunk-size-ttft", &ttfts)
        .plot("chunk-size-tokens", &speeds))
}
