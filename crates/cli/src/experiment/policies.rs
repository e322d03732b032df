//! `policies`: routing rules on traces.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tandem_chart::{Axis, Bars, Chart, Size};
use tandem_loadtest::trace::Slice;
use tandem_plan::search::{faster, rate};
use tandem_plan::{FleetPlan, Request, Slo, Summary, simulate};
use tandem_policies::Rule;

use super::r1::PROFILE;
use super::real::measure;
use super::report::{Report, cell};
use super::{ExperimentArgs, pool};
use crate::failure::Failure;
use crate::planning::{self, millis, rounded};

/// Excerpts that come with Tandem: name, ending, text.
const EXCERPTS: [(&str, &str, &str); 2] = [
    (
        "mooncake-conversation-excerpt",
        ".jsonl",
        include_str!("../../../../policies/traces/mooncake-conversation-excerpt.jsonl"),
    ),
    (
        "azure-2023-code-excerpt",
        ".csv",
        include_str!("../../../../policies/traces/azure-2023-code-excerpt.csv"),
    ),
];
const REQUESTS: u32 = 3000;
const REAL_REQUESTS: u32 = 150;
const SLO: Slo = Slo {
    ttft: Duration::from_secs(2),
    tpot: Duration::from_millis(25),
};

/// Names and requests of the traces that were asked for, or of the excerpts.
pub(super) fn traces(args: &ExperimentArgs) -> Result<Vec<(String, Vec<Request>)>, Failure> {
    let most = args.requests(if args.real { REAL_REQUESTS } else { REQUESTS });
    let context = planning::profile(PROFILE)?.context_length;
    let read = |path: &Path, name: String| {
        let asked = planning::requests(path, Slice::WHOLE, most, context)?;
        Ok((name, asked.requests))
    };
    if args.trace.is_empty() {
        let excerpt = |(name, ending, text): &(&str, &str, &str)| {
            let mut file = tempfile::Builder::new()
                .suffix(ending)
                .tempfile()
                .map_err(Failure::fault)?;
            file.write_all(text.as_bytes()).map_err(Failure::fault)?;
            read(file.path(), (*name).to_owned())
        };
        return EXCERPTS.iter().map(excerpt).collect();
    }
    let named = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default();
        read(path, name.to_string_lossy().into_owned())
    };
    args.trace.iter().map(named).collect()
}

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    let rules = rules(args)?;
    let mut found = Vec::new();
    let mut report = Report::new(json!(null)).says(format!(
        "{PROFILE}: attained are answers with a first token within 2 s and others within 25 ms each.{}",
        match args.real {
            true => format!(
                " Times are the profile's, of which a second takes {} s of this machine's.",
                args.scale()
            ),
            false => String::new(),
        }
    ));
    for (at, (name, trace)) in traces(args)?.into_iter().enumerate() {
        let (decode, speed) = load(&trace)?;
        let trace = faster(&trace, speed);
        let plan = FleetPlan::apart(pool(PROFILE, PREFILL)?, pool(PROFILE, decode)?);
        let mut bars = Bars::new(
            format!("TTFT: {name}"),
            "policy",
            Axis::linear("s"),
            ["p50", "p90"],
        )
        .sized(WIDE);
        let (mut rows, mut policies, mut doubts) = (Vec::new(), Vec::new(), Vec::new());
        for (rule_name, rule) in rules.iter().copied() {
            let one = under(args, &plan, (rule_name, rule), &trace)?;
            let [p50, p90] = one.ttft_s;
            bars = bars.group(rule_name, [p50, p90]);
            rows.extend(one.rows);
            policies.push(one.json);
            doubts.extend(one.doubts);
        }
        report = report
            .says(format!(
                "{name}, {} requests, {:.2} a second ({speed:.2} times as fast as the trace), {PREFILL} prefill and \
                 {decode} decode nodes:",
                trace.len(),
                rate(&trace)
            ))
            .table(HEAD, &rows)
            .doubts(&doubts);
        if let Some(stem) = PLOTS.get(at) {
            report = report.plot(stem, &bars);
        }
        found.push(json!({
            "trace": name,
            "requests": trace.len(),
            "speed": rounded(speed),
            "prefill": PREFILL,
            "decode": decode,
            "policies": policies,
        }));
    }
    report.json = json!({ "traces": found });
    Ok(report)
}

/// What a trace came to under one rule.
struct Under {
    /// As simulated; of real processes, these and the same simulated.
    rows: Vec<[String; 8]>,
    json: Value,
    /// p50 and p90.
    ttft_s: [f64; 2],
    doubts: Vec<String>,
}

fn under(
    args: &ExperimentArgs,
    plan: &FleetPlan,
    (name, rule): (&str, Rule),
    trace: &[Request],
) -> Result<Under, Failure> {
    let mut policy = planning::policy(name)?;
    (policy.slo.ttft, policy.slo.tpot) = (Some(SLO.ttft), Some(SLO.tpot));
    let plan = plan.clone().under(&policy);
    let done = simulate(&plan, trace).map_err(Failure::mendable)?;
    let simulated = Summary::of(&done.outcomes, &SLO);
    let of = |all: &Summary| [all.ttft.p50, all.ttft.p90].map(|time| millis(time) / 1e3);
    let json = figures(name, &simulated, Some(simulated.local));
    let shown = format!("`{name}`");
    if !args.real {
        return Ok(Under {
            rows: vec![row(shown, &simulated, Some(simulated.local))],
            json,
            ttft_s: of(&simulated),
            doubts: Vec::new(),
        });
    }
    let table = planning::rule_table(rule, &scaled(args.scale()));
    let measured = measure(args, &plan, Some((name, &table)), trace)?;
    let real = measured.summary(&SLO);
    let mut own = figures(name, &real, None);
    own["invalid"] = json!(measured.invalid);
    own["simulated"] = json;
    Ok(Under {
        rows: vec![
            row(shown, &real, None),
            row(
                "the same, simulated".to_owned(),
                &simulated,
                Some(simulated.local),
            ),
        ],
        json: own,
        ttft_s: of(&real),
        doubts: measured.invalid,
    })
}

/// Those that were asked for, or all.
fn rules(args: &ExperimentArgs) -> Result<Vec<(&'static str, Rule)>, Failure> {
    let known = |name: &String| {
        let all = || Rule::NAMES.map(|(name, _)| name).join(", ");
        let found = Rule::NAMES.into_iter().find(|(known, _)| known == name);
        found.ok_or_else(|| Failure::mendable(format!("--policy {name}: want one of {}", all())))
    };
    match args.policy.is_empty() {
        true => Ok(Rule::NAMES.to_vec()),
        false => args.policy.iter().map(known).collect(),
    }
}

/// What is promised, in this machine's time.
fn scaled(scale: f64) -> Slo {
    Slo {
        ttft: SLO.ttft.mul_f64(scale),
        tpot: SLO.tpot.mul_f64(scale),
    }
}

/// `local`: how many prompts decode workers computed, which of real processes only the gateway knows.
fn row(name: String, all: &Summary, local: Option<usize>) -> [String; 8] {
    [
        name,
        cell(millis(all.ttft.p50)),
        cell(millis(all.ttft.p90)),
        cell(millis(all.ttft.p99)),
        cell(millis(all.tpot.p90)),
        format!("{:.1} %", all.cached_share * 100.0),
        format!("{:.1} %", all.attainment * 100.0),
        local.map_or_else(String::new, |local| local.to_string()),
    ]
}

fn figures(policy: &str, all: &Summary, local: Option<usize>) -> Value {
    let [p50, p90, p99] = [all.ttft.p50, all.ttft.p90, all.ttft.p99].map(|t| rounded(millis(t)));
    json!({
        "policy": policy,
        "ttft_ms": { "p50": p50, "p90": p90, "p99": p99 },
        "tpot_ms_p90": rounded(millis(all.tpot.p90)),
        "cached_share": rounded(all.cached_share),
        "attained": all.attained,
        "late": all.late,
        "rejected": all.rejected,
        "local": local,
    })
}

const HEAD: [&str; 8] = [
    "policy",
    "TTFT ms, p50",
    "p90",
    "p99",
    "TPOT ms, p90",
    "found in caches",
    "attained",
    "local",
];
/// Room for the names of all rules.
const WIDE: Size = Size {
    width: 960.0,
    height: 300.0,
};
/// Plots of the first traces.
const PLOTS: [&str; 4] = ["policies-1", "policies-2", "policies-3", "policies-4"];
/// How busy prefill nodes are meant to be, were there no caches: less, and every policy does; more, and none.
const BUSY: f64 = 0.8;
const PREFILL: u32 = 4;

/// Decode nodes beside four prefill nodes, and how much faster a trace is to come to keep these busy.
fn load(trace: &[Request]) -> Result<(u32, f64), Failure> {
    let profile = planning::profile(PROFILE)?;
    let span = trace.iter().map(|r| r.at).max().unwrap_or_default();
    let prompts: Duration = trace
        .iter()
        .map(|r| profile.prompt(0, r.prompt - 1, 8192))
        .sum();
    let speed = BUSY * f64::from(PREFILL) * span.as_secs_f64() / prompts.as_secs_f64();
    // Those that decode at once, by steps of 20 ms; one node has sixteen of them in such a step.
    let tokens: f64 = trace.iter().map(|r| f64::from(r.answer)).sum();
    let at_once = tokens * 0.02 / span.as_secs_f64().max(1.0) * speed;
    Ok((((at_once / 16.0).ceil() as u32).clamp(2, 64), speed))
}
