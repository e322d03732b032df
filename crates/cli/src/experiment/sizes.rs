//! `pd-ratio` and `chunk-size`: what two numbers of a fleet do.

use std::time::Duration;

use serde_json::json;
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::search::{Goal, Space, Tried, search};
use tandem_plan::{FleetPlan, Pool, Slo};
use tandem_policies::PolicySettings;

use super::r1::PROFILE;
use super::report::{Report, cell};
use super::{ExperimentArgs, poisson, pool, simulated};
use crate::failure::Failure;
use crate::planning::{millis, rounded};

const NODES: u32 = 8;
/// Kinds of requests: name, tokens of prompts and answers.
const KINDS: [(&str, u32, u32); 3] = [
    ("short prompts, long answers", 500, 1000),
    ("chats", 2000, 400),
    ("long prompts, short answers", 8000, 150),
];
const SLO: Slo = Slo {
    ttft: Duration::from_secs(2),
    tpot: Duration::from_millis(25),
};

pub(super) fn ratio(args: &ExperimentArgs) -> Result<Report, Failure> {
    let count = args.requests(800);
    let one = pool(PROFILE, 1)?;
    let space = Space {
        prefill: &one,
        decode: &one,
        workers: NODES,
        policies: &[PolicySettings::default()],
        mixed: true,
    };
    let goal = Goal {
        slo: SLO,
        attainment: 0.9,
    };
    let mut plot = Plot::new(
        "DeepSeek-R1 on 8 nodes: goodput by P:D",
        Axis::linear("prefill nodes of 8 (0: all do both)"),
        Axis::linear("requests/s within the SLO"),
    );
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    for (kind, prompt, answer) in KINDS {
        let trace = poisson(4.0, count, &[(prompt, answer)])?;
        let tried = search(&space, &trace, &goal, |_| ()).map_err(Failure::fault)?;
        let rate = |prefill: u32| {
            let is = |tried: &&Tried| tried.prefill == prefill;
            tried.iter().find(is).map_or(0.0, |tried| tried.best.rate)
        };
        let rates: Vec<f64> = (0..NODES).map(rate).collect();
        let points = (0..NODES)
            .zip(&rates)
            .map(|(p, rate)| (f64::from(p), *rate));
        plot = plot.series(Series::line(format!("{kind}, {prompt} + {answer}"), points));
        let best = tried.iter().find(|tried| tried.prefill > 0);
        let best = best.map_or((0, 0), |best| (best.prefill, best.decode));
        let mut row = [const { String::new() }; 10];
        row[0] = format!("{kind}, {prompt} + {answer}");
        for (cell_of, rate) in row.iter_mut().skip(1).zip(&rates) {
            *cell_of = cell(*rate);
        }
        row[9] = format!("{}:{}", best.0, best.1);
        rows.push(row);
        found.push(json!({
            "kind": kind,
            "prompt_tokens": prompt,
            "answer_tokens": answer,
            "rate_by_prefill_nodes": rates.iter().copied().map(rounded).collect::<Vec<_>>(),
            "best": { "prefill": best.0, "decode": best.1 },
        }));
    }
    let head = [
        "requests", "8 mixed", "1:7", "2:6", "3:5", "4:4", "5:3", "6:2", "7:1", "best P:D",
    ];
    Ok(Report::new(json!({ "nodes": NODES, "kinds": found }))
        .says(format!(
            "{PROFILE}, {NODES} nodes: requests/s at which 90 % have their first token within 2 s and their others within \
             25 ms each, by prefill:decode nodes."
        ))
        .table(head, &rows)
        .plot("pd-ratio", &plot))
}

const CHUNK_HEAD: [&str; 6] = [
    "fleet",
    "chunk tokens",
    "longest stall ms, p99",
    "TTFT ms, p50",
    "p99",
    "tokens/s, p50",
];

/// Without lines as yet: stalls, first tokens, speeds.
fn chunk_plots() -> [Plot; 3] {
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

pub(super) fn chunk(args: &ExperimentArgs) -> Result<Report, Failure> {
    let count = args.requests(1500);
    let (prompt, answer) = (8000, 300);
    let mut plots = chunk_plots();
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
        .table(CHUNK_HEAD, &rows)
        .plot("chunk-size-stalls", &stalls)
        .plot("chunk-size-ttft", &ttfts)
        .plot("chunk-size-tokens", &speeds))
}
