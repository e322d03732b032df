//! `r1-dp`: the same with eight data-parallel ranks on a node, experts over all eight.
//!
//! Published: about 50 tokens a second for a request at one request a second for each rank.

use serde_json::json;
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::{FleetPlan, Pool};

use super::r1::{ANSWER, Figures, HEAD, PROMPT};
use super::report::{Report, cell};
use super::{ExperimentArgs, poisson, pool, simulated};
use crate::failure::Failure;
use crate::planning::rounded;

const PROFILE: &str = "deepseek-r1-dp8-h200";
const RANKS: u32 = 8;
/// Ranks that decode: three nodes.
const DECODE: u32 = 3 * RANKS;
/// Ranks that prefill: what prompts of this length at one request a second for each decode rank take, and some.
const PREFILL: u32 = 5 * RANKS;
const REQUESTS: u32 = 4000;

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    let count = args.requests(REQUESTS);
    let rate = f64::from(DECODE);
    let lengths = [(PROMPT, ANSWER)];
    let trace = poisson(rate, count, &lengths)?;
    let at = |plan: &FleetPlan| Ok::<_, Failure>(Figures::of(&simulated(plan, &trace)?.0));
    let apart = at(&FleetPlan::apart(
        pool(PROFILE, PREFILL)?,
        pool(PROFILE, DECODE)?,
    ))?;
    let all = PREFILL + DECODE;
    let mixed = at(&FleetPlan::mixed(pool(PROFILE, all)?))?;
    let wide = at(&FleetPlan::apart(pool(PROFILE, PREFILL)?, wide(DECODE)?))?;
    let nodes = |ranks: u32| ranks / RANKS;
    let rows = [
        mixed.row(
            &format!("{} mixed nodes", nodes(all)),
            rate / f64::from(nodes(all)),
        ),
        apart.row(
            &format!("{} prefill, 3 decode nodes", nodes(PREFILL)),
            rate / 3.0,
        ),
        wide.row("the same, experts over 24 GPUs", rate / 3.0),
    ];
    let per_step = 50.0 / apart.tps_p50;
    let json = json!({
        "mixed": mixed.json(&json!({"ranks": all, "rate_per_rank": rate / f64::from(all)})),
        "disaggregated": apart.json(&json!({
            "prefill_ranks": PREFILL,
            "decode_ranks": DECODE,
            "rate_per_rank": 1.0,
            "tokens_per_step_for_50": rounded(per_step),
            "with_experts_over_24_gpus": { "tps_p50": rounded(wide.tps_p50) },
        })),
    });
    let report = Report::new(json)
        .says(format!(
            "{PROFILE}: {count} requests of {PROMPT} + {ANSWER} tokens (assumed), one a second for each decode rank. \
             Published: about 50 tokens/s. For that, this profile's steps would have to give {} tokens each.",
            cell(per_step)
        ))
        .table(HEAD, &rows);
    let plot = by_rate(count)?;
    Ok(report.plot("r1-dp-tokens", &plot))
}

/// What if three nodes' GPUs shared the experts: each reads a third of the weights for the tokens of three times as many
/// ranks. The exchange between nodes is taken to cost what the one inside a node does, so this is a bound.
fn wide(workers: u32) -> Result<Pool, Failure> {
    let mut pool = pool(PROFILE, workers)?;
    if let Some(experts) = &mut pool.profile.experts {
        experts.expert_mb /= 3.0;
        experts.ranks *= 3;
    }
    Ok(pool)
}

fn by_rate(count: usize) -> Result<Plot, Failure> {
    let (x, y) = ("requests/s per decode rank", "tokens/s of a request, p50");
    let mut plot = Plot::new(
        "DeepSeek-R1, DP 8: tokens/s",
        Axis::linear(x),
        Axis::linear(y),
    );
    for (name, decode) in [
        ("experts over 8 GPUs", pool(PROFILE, DECODE)?),
        ("experts over 24 GPUs", wide(DECODE)?),
    ] {
        let plan = FleetPlan::apart(pool(PROFILE, 2 * PREFILL)?, decode);
        let mut points = Vec::new();
        for rate in [0.125, 0.25, 0.5, 1.0, 1.5, 2.0] {
            let trace = poisson(rate * f64::from(DECODE), count, &[(PROMPT, ANSWER)])?;
            points.push((rate, simulated(&plan, &trace)?.0.tokens_per_second()));
        }
        plot = plot.series(Series::line(name, points));
    }
    Ok(plot.limit("published", 50.0))
}
