//! `local-prefill`: short prompts that their decode workers compute themselves, up to several lengths.

use serde_json::json;
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::FleetPlan;

use super::r1::PROFILE;
use super::report::{Report, cell};
use super::{ExperimentArgs, poisson, pool, simulated};
use crate::failure::Failure;
use crate::planning::{millis, rounded};

/// Up to so many tokens.
const LIMITS: [u32; 7] = [0, 128, 256, 512, 1024, 2048, 4096];
/// Prompts and answers: many short ones and some long ones.
const LENGTHS: [(u32, u32); 8] = [
    (100, 250),
    (6000, 250),
    (200, 250),
    (900, 250),
    (400, 250),
    (12_000, 250),
    (250, 250),
    (1800, 250),
];

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    let count = args.requests(2000);
    let trace = poisson(4.0, count, &LENGTHS)?;
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    let mut all = Vec::new();
    for limit in LIMITS {
        let mut plan = FleetPlan::apart(pool(PROFILE, 1)?, pool(PROFILE, 3)?);
        plan.policy.local_prefill.max_prompt_tokens = limit;
        let summary = simulated(&plan, &trace)?.0;
        let times = [
            summary.ttft.p50,
            summary.ttft.p90,
            summary.tpot.p50,
            summary.tpot.p90,
            summary.longest_gap.p90,
        ]
        .map(millis);
        let share = summary.local as f64 / summary.requests as f64;
        rows.push([
            limit.to_string(),
            format!("{:.0} %", share * 100.0),
            cell(times[0]),
            cell(times[1]),
            cell(times[2]),
            cell(times[3]),
            cell(times[4]),
        ]);
        found.push(json!({
            "max_prompt_tokens": limit,
            "local_share": rounded(share),
            "ttft_ms_p50": rounded(times[0]),
            "ttft_ms_p90": rounded(times[1]),
            "tpot_ms_p50": rounded(times[2]),
            "tpot_ms_p90": rounded(times[3]),
            "longest_stall_ms_p90": rounded(times[4]),
        }));
        all.push((f64::from(limit), times));
    }
    let line =
        |name: &str, at: usize| Series::line(name, all.iter().map(move |(x, t)| (*x, t[at])));
    let plot = Plot::new(
        "Local prefill: gains and losses",
        Axis::linear("prompts up to so many tokens are computed by the decode node"),
        Axis::log("ms"),
    )
    .series(line("TTFT p50", 0))
    .series(line("TTFT p90", 1))
    .series(line("TPOT p90", 3))
    .series(line("longest stall p90", 4));
    let head = [
        "max_prompt_tokens",
        "computed locally",
        "TTFT ms, p50",
        "p90",
        "TPOT ms, p50",
        "p90",
        "longest stall ms, p90",
    ];
    Ok(Report::new(json!({ "runs": found }))
        .says(format!(
            "{PROFILE}, 1 prefill and 3 decode nodes: {count} requests, 4 a second, Poisson, prompts of 100 to 12,000 \
             tokens, answers of 250."
        ))
        .table(head, &rows)
        .plot("local-prefill", &plot))
}
