//! `pd-ratio`: how many of a fleet's nodes compute prompts.

use std::time::Duration;

use serde_json::json;
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::search::{Goal, Space, Tried, search};
use tandem_plan::simulate;
use tandem_plan::{FleetPlan, Slo, Summary};
use tandem_policies::PolicySettings;

use super::r1::PROFILE;
use super::real::measure;
use super::report::{Report, cell};
use super::{ExperimentArgs, poisson, pool};
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

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    if args.real {
        return run_real(args);
    }
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

/// Of real processes: the chats, at a rate that some ratios serve and others do not.
const REAL_KIND: usize = 1;
const REAL_RATE: f64 = 12.0;
const REAL_REQUESTS: u32 = 300;
const REAL_HEAD: [&str; 9] = [
    "P:D",
    "attained",
    "simulated",
    "requests/s within the SLO",
    "simulated",
    "TTFT ms, p90",
    "simulated",
    "TPOT ms, p90",
    "simulated",
];

/// Each ratio as processes, beside the same simulated.
fn run_real(args: &ExperimentArgs) -> Result<Report, Failure> {
    let count = args.requests(REAL_REQUESTS);
    let (kind, prompt, answer) = KINDS[REAL_KIND];
    let trace = poisson(REAL_RATE, count, &[(prompt, answer)])?;
    let (mut rows, mut found, mut doubts) = (Vec::new(), Vec::new(), Vec::new());
    for prefill in 0..NODES {
        let decode = NODES - prefill;
        let plan = match prefill {
            0 => FleetPlan::mixed(pool(PROFILE, decode)?),
            _ => FleetPlan::apart(pool(PROFILE, prefill)?, pool(PROFILE, decode)?),
        };
        let simulation = simulate(&plan, &trace).map_err(Failure::fault)?;
        let simulated = Summary::of(&simulation.outcomes, &SLO);
        let measured = measure(args, &plan, None, &trace)?;
        let real = measured.summary(&SLO);
        let both = |of: fn(&Summary) -> f64| [cell(of(&real)), cell(of(&simulated))];
        let mut row = vec![match prefill {
            0 => format!("{NODES} mixed"),
            _ => format!("{prefill}:{decode}"),
        }];
        row.extend([&real, &simulated].map(|all| format!("{:.1} %", all.attainment * 100.0)));
        row.extend(both(|all| all.goodput));
        row.extend(both(|all| millis(all.ttft.p90)));
        row.extend(both(|all| millis(all.tpot.p90)));
        rows.push(std::array::from_fn(|column| {
            std::mem::take(&mut row[column])
        }));
        let figures = |all: &Summary| {
            json!({
                "attained": all.attained,
                "late": all.late,
                "rejected": all.rejected,
                "goodput_per_s": rounded(all.goodput),
                "ttft_ms_p90": rounded(millis(all.ttft.p90)),
                "tpot_ms_p90": rounded(millis(all.tpot.p90)),
            })
        };
        let mut one = figures(&real);
        one["prefill"] = prefill.into();
        one["decode"] = decode.into();
        one["invalid"] = json!(measured.invalid);
        one["simulated"] = figures(&simulated);
        found.push(one);
        doubts.extend(measured.invalid);
    }
    let set_up = json!({
        "nodes": NODES, "kind": kind, "prompt_tokens": prompt, "answer_tokens": answer, "rate": REAL_RATE,
        "requests": count, "time_scale": args.scale(), "fleets": found,
    });
    Ok(Report::new(set_up)
        .says(format!(
            "{PROFILE}, {NODES} nodes, real processes: {count} {kind} of {prompt} + {answer} tokens, {REAL_RATE} a second of \
             the profile's time, of which one takes {} s. Times are the profile's; attained are answers with a first token \
             within 2 s and others within 25 ms each.",
            args.scale()
        ))
        .table(REAL_HEAD, &rows)
        .doubts(&doubts))
}
