//! `r1-tp`: workers that do both, and one prefill node beside three decode nodes.
//!
//! Published ("Disaggregated Prefill and Decode", Perplexity, August 2025): about 50 tokens a second for a request with
//! prefill and decode mixed, with stalls; over 90 with one prefill node for three decode nodes at about one request a
//! second for each of these, and about 100 ms more to the first token. Not published: lengths, the mixed nodes' rate,
//! tokens for each step (multi-token prediction).

use serde_json::{Value, json};
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::{FleetPlan, Request, Slo, Summary};

use super::real::measure;
use super::report::{Report, cell};
use super::{ExperimentArgs, poisson, pool, simulated};
use crate::failure::Failure;
use crate::planning::{millis, rounded};

pub(super) const PROFILE: &str = "deepseek-r1-tp8-h200";
/// Assumed: several thousand tokens of search results and instructions, an answer of some paragraphs.
pub(super) const PROMPT: u32 = 4000;
pub(super) const ANSWER: u32 = 400;
/// One a second for each of three decode nodes.
const RATE: f64 = 3.0;
/// Assumed: the same requests, on so many nodes that do both.
const MIXED: u32 = 2;
const REQUESTS: u32 = 2000;

/// What a fleet's requests got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) tps_p50: f64,
    longest_stall_ms_p99: f64,
    longest_stall_ms_p50: f64,
    ttft_ms_p50: f64,
    ttft_ms_p99: f64,
}

impl Figures {
    pub(super) fn of(summary: &Summary) -> Self {
        Self {
            tps_p50: summary.tokens_per_second(),
            longest_stall_ms_p99: millis(summary.longest_gap.p99),
            longest_stall_ms_p50: millis(summary.longest_gap.p50),
            ttft_ms_p50: millis(summary.ttft.p50),
            ttft_ms_p99: millis(summary.ttft.p99),
        }
    }

    /// With what more there is to say.
    pub(super) fn json(&self, more: &Value) -> Value {
        let mut own = json!({
            "tps_p50": rounded(self.tps_p50),
            "longest_stall_ms_p99": rounded(self.longest_stall_ms_p99),
            "longest_stall_ms_p50": rounded(self.longest_stall_ms_p50),
            "ttft_ms_p50": rounded(self.ttft_ms_p50),
            "ttft_ms_p99": rounded(self.ttft_ms_p99),
        });
        if let (Some(own), Some(more)) = (own.as_object_mut(), more.as_object()) {
            own.extend(more.clone());
        }
        own
    }

    pub(super) fn row(&self, fleet: &str, rate: f64) -> [String; 7] {
        [
            fleet.to_owned(),
            cell(rate),
            cell(self.tps_p50),
            cell(self.longest_stall_ms_p50),
            cell(self.longest_stall_ms_p99),
            cell(self.ttft_ms_p50),
            cell(self.ttft_ms_p99),
        ]
    }
}

pub(super) const HEAD: [&str; 7] = [
    "fleet",
    "requests/s per node that decodes",
    "tokens/s of a request, p50",
    "longest stall ms, p50",
    "p99",
    "TTFT ms, p50",
    "p99",
];

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    if args.real {
        return run_real(args);
    }
    let count = args.requests(REQUESTS);
    let trace = poisson(RATE, count, &[(PROMPT, ANSWER)])?;
    let mixed = |nodes| figures(&FleetPlan::mixed(pool(PROFILE, nodes)?), &trace);
    let apart = figures(
        &FleetPlan::apart(pool(PROFILE, 1)?, pool(PROFILE, 3)?),
        &trace,
    )?;
    let all: Vec<(u32, Figures)> = [2, 3, 4]
        .into_iter()
        .map(|nodes| Ok((nodes, mixed(nodes)?)))
        .collect::<Result<_, Failure>>()?;
    let per_node = |nodes: u32| RATE / f64::from(nodes);
    let mut rows: Vec<_> = all
        .iter()
        .map(|(nodes, found)| found.row(&format!("{nodes} mixed nodes"), per_node(*nodes)))
        .collect();
    rows.push(apart.row("1 prefill, 3 decode nodes", 1.0));
    let others = all.iter().filter(|(nodes, _)| *nodes != MIXED);
    let others: Vec<Value> = others
        .map(|(nodes, f)| f.json(&json!({"nodes": nodes, "rate_per_node": per_node(*nodes)})))
        .collect();
    let chosen = all.iter().find(|(nodes, _)| *nodes == MIXED);
    let chosen = chosen.map_or(apart, |(_, found)| *found);
    let set_up = json!({"prompt_tokens": PROMPT, "answer_tokens": ANSWER, "requests": count});
    let json = json!({
        "mixed": chosen.json(&json!({
            "nodes": MIXED, "rate_per_node": per_node(MIXED), "assumed": set_up, "on_more_nodes": others,
        })),
        "disaggregated": apart.json(&json!({
            "prefill_nodes": 1, "decode_nodes": 3, "rate_per_node": 1.0, "assumed": set_up,
        })),
    });
    let report = Report::new(json)
        .says(format!(
            "{PROFILE}: {count} requests of {PROMPT} + {ANSWER} tokens (assumed), {RATE} a second, Poisson. Published: \
             about 50 tokens/s mixed, over 90 at 1 request/s per decode node, about 100 ms more to the first token."
        ))
        .table(HEAD, &rows);
    sweep(report, count)
}

const REAL_REQUESTS: u32 = 120;

/// The two fleets as processes, beside the same simulated.
fn run_real(args: &ExperimentArgs) -> Result<Report, Failure> {
    let count = args.requests(REAL_REQUESTS);
    let trace = poisson(RATE, count, &[(PROMPT, ANSWER)])?;
    let fleets = [
        (
            "mixed",
            format!("{MIXED} mixed nodes"),
            FleetPlan::mixed(pool(PROFILE, MIXED)?),
        ),
        (
            "disaggregated",
            "1 prefill, 3 decode nodes".to_owned(),
            FleetPlan::apart(pool(PROFILE, 1)?, pool(PROFILE, 3)?),
        ),
    ];
    let mut json = json!({});
    let (mut rows, mut doubts) = (Vec::new(), Vec::new());
    for (name, fleet, plan) in fleets {
        let simulated = figures(&plan, &trace)?;
        let measured = measure(args, &plan, None, &trace)?;
        let found = Figures::of(&measured.summary(&Slo::ANY));
        let per_node = RATE / f64::from(plan.decode.workers);
        rows.extend([
            found.row(&fleet, per_node),
            simulated.row("the same, simulated", per_node),
        ]);
        json[name] = found.json(&json!({
            "time_scale": args.scale(),
            "requests": count,
            "invalid": measured.invalid,
            "simulated": simulated.json(&json!({})),
        }));
        doubts.extend(measured.invalid);
    }
    Ok(Report::new(json)
        .says(format!(
            "{PROFILE}, real processes: {count} requests of {PROMPT} + {ANSWER} tokens, {RATE} a second of the profile's \
             time, of which one takes {} s. Times are the profile's.",
            args.scale()
        ))
        .table(HEAD, &rows)
        .doubts(&doubts))
}

fn figures(plan: &FleetPlan, trace: &[Request]) -> Result<Figures, Failure> {
    Ok(Figures::of(&simulated(plan, trace)?.0))
}

/// The same for other rates and lengths: where the published figures come out.
fn sweep(mut report: Report, count: usize) -> Result<Report, Failure> {
    let rates = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0];
    let (x, y) = (
        "requests/s per node that decodes",
        "tokens/s of a request, p50",
    );
    let mut speeds = Plot::new(
        "DeepSeek-R1, TP 8: tokens/s",
        Axis::linear(x),
        Axis::linear(y),
    )
    .limit("published, mixed", 50.0)
    .limit("published, disaggregated", 90.0);
    let mut stalls = Plot::new(
        "DeepSeek-R1, TP 8: longest stall",
        Axis::linear(x),
        Axis::linear("ms, p99 of requests"),
    );
    let mut rows = Vec::new();
    for (prompt, apart) in [(2000, false), (4000, false), (8000, false), (4000, true)] {
        let plan = match apart {
            true => FleetPlan::apart(pool(PROFILE, 1)?, pool(PROFILE, 3)?),
            false => FleetPlan::mixed(pool(PROFILE, 3)?),
        };
        let name = match apart {
            true => format!("1P 3D, {prompt} + {ANSWER}"),
            false => format!("mixed, {prompt} + {ANSWER}"),
        };
        let mut found = Vec::new();
        for rate in rates {
            let trace = poisson(3.0 * rate, count, &[(prompt, ANSWER)])?;
            found.push((rate, figures(&plan, &trace)?));
        }
        let points = |of: fn(&Figures) -> f64| found.iter().map(move |(rate, f)| (*rate, of(f)));
        speeds = speeds.series(Series::line(name.as_str(), points(|f| f.tps_p50)));
        stalls = stalls.series(Series::line(
            name.as_str(),
            points(|f| f.longest_stall_ms_p99),
        ));
        let mut row = [const { String::new() }; 9];
        row[0] = name;
        for (cell_of, (_, f)) in row.iter_mut().skip(1).zip(&found) {
            *cell_of = cell(f.tps_p50);
        }
        rows.push(row);
    }
    report = report.says("Tokens/s of a request (p50) by requests/s per node that decodes:");
    let head = ["", "0.25", "0.5", "0.75", "1", "1.25", "1.5", "1.75", "2"];
    report = report.table(head, &rows);
    Ok(report
        .plot("r1-tp-tokens", &speeds)
        .plot("r1-tp-stalls", &stalls))
}
