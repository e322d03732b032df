//! `qwen3-ttft`: one prompt at a time, with and without disaggregation, beside the paper's table.

use serde_json::json;
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::{Answer, FleetPlan, Outcome, Pool, Request};
use tandem_timing::Work;

use super::report::{Report, cell};
use super::{ExperimentArgs, pool, simulated};
use crate::failure::Failure;
use crate::planning::{millis, rounded};

pub(super) const PROFILE: &str = "qwen3-235b-tp4-h200";
pub(super) const CHUNK: u32 = 16_384;

/// Table 3 of arXiv 2510.27656: tokens; time to first token without and with disaggregation, in ms.
const PAPER: [(u32, f64, f64); 6] = [
    (4096, 214.0, 260.0),
    (8192, 433.0, 501.0),
    (16_384, 929.0, 1042.0),
    (32_768, 2179.0, 2317.0),
    (65_536, 5681.0, 5852.0),
    (131_072, 16_735.0, 17_056.0),
];

/// As the paper's: chunks of at most 16,384 tokens, pages of 128.
pub(super) fn node() -> Result<Pool, Failure> {
    Ok(Pool {
        chunk_tokens: CHUNK,
        page_tokens: 128,
        ..pool(PROFILE, 1)?
    })
}

/// One prompt by itself.
pub(super) fn alone(plan: &FleetPlan, tokens: u32) -> Result<Answer, Failure> {
    let trace = [Request::new(std::time::Duration::ZERO, tokens, 2)];
    let outcomes = simulated(plan, &trace)?.1.outcomes;
    let answer = outcomes.first().and_then(Outcome::answer).copied();
    answer.ok_or_else(|| Failure::fault("the request was not answered"))
}

pub(super) fn run(_: &ExperimentArgs) -> Result<Report, Failure> {
    let one = node()?;
    let profile = one.profile.clone();
    let plan = FleetPlan::apart(one.clone(), one);
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (tokens, their_base, their_ttft) in PAPER {
        // One node computes all tokens of the prompt and samples from the last one.
        let base = millis(profile.prompt(0, tokens, CHUNK));
        let answer = alone(&plan, tokens)?;
        let ttft = millis(answer.ttft);
        let transfer = millis(answer.exposed);
        let step = millis(profile.step(&Work::decode(tokens - 1)));
        let (delta, their_delta) = (ttft - base, their_ttft - their_base);
        ours.push((f64::from(tokens), delta));
        theirs.push((f64::from(tokens), their_delta));
        rows.push([
            format!("{}K", tokens / 1024),
            format!("{base:.0}"),
            format!("{their_base:.0}"),
            format!("{ttft:.0}"),
            format!("{their_ttft:.0}"),
            format!("{delta:.1}"),
            format!("{their_delta:.0}"),
            cell(transfer),
            cell(step),
        ]);
        found.push(json!({
            "tokens": tokens,
            "base_ms": rounded(base),
            "disaggregated_ms": rounded(ttft),
            "delta_ms": rounded(delta),
            "transfer_ms": rounded(transfer),
            "decode_step_ms": rounded(step),
            "paper": { "base_ms": their_base, "disaggregated_ms": their_ttft, "delta_ms": their_delta },
        }));
    }
    let plot = Plot::new(
        "Qwen3-235B: added to the first token",
        Axis::log("tokens of the prompt"),
        Axis::linear("ms"),
    )
    .series(Series::line("simulated", ours))
    .series(Series::line("published", theirs));
    let head = [
        "prompt",
        "one node, ms",
        "paper",
        "disaggregated, ms",
        "paper",
        "added, ms",
        "paper",
        "of it transfer, ms",
        "of it the decode step, ms",
    ];
    Ok(Report::new(json!({ "rows": found }))
        .says(format!(
            "{PROFILE}: one prompt at a time, chunks of {CHUNK} tokens, pages of 128. Paper: Table 3 of arXiv 2510.27656."
        ))
        .table(head, &rows)
        .plot("qwen3-ttft", &plot))
}
