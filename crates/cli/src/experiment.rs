//! `tandem experiment`: published results reproduced, and what single settings do. docs/experiments.md has what each
//! gives, beside what was published.
//!
//! An experiment simulates fleets and makes one [`Report`] of it: a table for people, JSON, and plots. It takes nothing
//! from what was published but the set-up; profiles are fitted to the times of components, elsewhere.

mod chunk_size;
mod layerwise;
mod local_prefill;
mod page_size;
mod pd_ratio;
mod policies;
mod r1;
mod r1_dp;
mod real;
mod report;
mod ttft;

use std::fs;
use std::path::PathBuf;

use clap::Args;
use tandem_loadtest::arrivals::{Arrivals, Process};
use tandem_plan::{FleetPlan, PlanError, Pool, Request, Simulation, Slo, Summary, simulate};

use crate::console::{say, table};
use crate::failure::Failure;
use crate::planning;
use report::Report;

/// Command line of `tandem experiment`.
#[derive(Args)]
pub(crate) struct ExperimentArgs {
    /// Which one; without a name all are listed.
    name: Option<String>,
    /// Answer in JSON.
    #[arg(long, requires = "name")]
    json: bool,
    /// Write the plots into this folder.
    #[arg(long, value_name = "DIR", requires = "name")]
    svg: Option<PathBuf>,
    /// Requests of each simulated run [default: as docs/experiments.md has them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    requests: Option<u32>,
    /// Of policies and page-size: replay this trace instead of the excerpts that come with Tandem; several times.
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Of policies: only this rule; several times.
    #[arg(long, value_name = "RULE")]
    policy: Vec<String>,
    /// Of r1-tp, pd-ratio and policies: start real gateways and workers of the timed engine and load them too.
    #[arg(long)]
    real: bool,
    /// Seconds that pass for one of the profile's [default: 1]
    #[arg(long, value_name = "X", requires = "real", value_parser = scale)]
    time_scale: Option<f64>,
    /// Of --real: whose tokenizer the workers have [default: as `tandem up`]
    #[arg(long, value_name = "PATH", requires = "real")]
    model: Option<PathBuf>,
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text
        .parse()
        .ok()
        .filter(|scale| (0.01..=100.0).contains(scale));
    scale.ok_or_else(|| "want a number from 0.01 to 100".to_owned())
}

/// One experiment.
struct Experiment {
    name: &'static str,
    what: &'static str,
    run: fn(&ExperimentArgs) -> Result<Report, Failure>,
}

const ALL: &[Experiment] = &[
    Experiment {
        name: "r1-tp",
        what: "DeepSeek-R1 on nodes of 8 H200: workers that do both, beside 1 prefill and 3 decode nodes",
        run: r1::run,
    },
    Experiment {
        name: "r1-dp",
        what: "the same with 8 data-parallel ranks on a node",
        run: r1_dp::run,
    },
    Experiment {
        name: "qwen3-ttft",
        what: "time to first token of Qwen3-235B with and without disaggregation, 4K to 128K tokens",
        run: ttft::run,
    },
    Experiment {
        name: "pd-ratio",
        what: "how many prefill and decode nodes serve most, by kind of request",
        run: pd_ratio::run,
    },
    Experiment {
        name: "chunk-size",
        what: "prompt tokens in a step: stalls against time to first token",
        run: chunk_size::run,
    },
    Experiment {
        name: "page-size",
        what: "tokens of a page: speed of transfers, prefix hits, room",
        run: page_size::run,
    },
    Experiment {
        name: "layerwise",
        what: "pages that travel while the prompt is computed, and afterwards",
        run: layerwise::run,
    },
    Experiment {
        name: "local-prefill",
        what: "short prompts computed by their decode workers",
        run: local_prefill::run,
    },
    Experiment {
        name: "policies",
        what: "routing policies on traces",
        run: policies::run,
    },
];

/// Carries one out, or lists all.
pub(crate) fn run(args: &ExperimentArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        let rows: Vec<_> = ALL
            .iter()
            .map(|known| [known.name.to_owned(), known.what.to_owned()])
            .collect();
        say(&table(["NAME", "WHAT"], &rows));
        return Ok(());
    };
    let Some(experiment) = ALL.iter().find(|known| known.name == name) else {
        let known: Vec<&str> = ALL.iter().map(|known| known.name).collect();
        return Err(Failure::mendable(format!(
            "no experiment {name:?}: want one of {}",
            known.join(", ")
        )));
    };
    refuse_unused(args, name)?;
    let report = (experiment.run)(args)?;
    if let Some(folder) = &args.svg {
        let wrong = |error| Failure::mendable(format!("--svg {}: {error}", folder.display()));
        fs::create_dir_all(folder).map_err(wrong)?;
        for (stem, svg) in &report.plots {
            fs::write(folder.join(format!("{stem}.svg")), svg).map_err(wrong)?;
        }
    }
    match args.json {
        true => say(&format!("{:#}", report.json)),
        false => say(report.text.trim_end()),
    }
    Ok(())
}

/// What would be ignored is refused.
fn refuse_unused(args: &ExperimentArgs, name: &str) -> Result<(), Failure> {
    let unused = [
        (
            "--real",
            args.real,
            ["r1-tp", "pd-ratio", "policies"].contains(&name),
        ),
        ("--policy", !args.policy.is_empty(), name == "policies"),
        (
            "--trace",
            !args.trace.is_empty(),
            ["policies", "page-size"].contains(&name),
        ),
        (
            "--requests",
            args.requests.is_some(),
            !["qwen3-ttft"].contains(&name),
        ),
    ];
    match unused.iter().find(|(_, given, used)| *given && !*used) {
        Some((flag, ..)) => Err(Failure::mendable(format!("{flag} means nothing to {name}"))),
        None => Ok(()),
    }
}

impl ExperimentArgs {
    /// Seconds that pass for one of the profile's.
    fn scale(&self) -> f64 {
        self.time_scale.unwrap_or(1.0)
    }

    fn requests(&self, default: u32) -> usize {
        self.requests.unwrap_or(default) as usize
    }
}

/// Workers of a profile that comes with Tandem.
fn pool(profile: &str, workers: u32) -> Result<Pool, Failure> {
    Ok(Pool::new(planning::profile(profile)?, workers))
}

/// Requests at random times, with lengths taken one after the other from a list.
fn poisson(rate: f64, count: usize, lengths: &[(u32, u32)]) -> Result<Vec<Request>, Failure> {
    let curve = rate.to_string().parse().map_err(Failure::fault)?;
    let arrivals = Arrivals::new(curve, Process::Poisson, 1);
    let requests = arrivals.zip(lengths.iter().cycle()).take(count);
    let request = |(at, (prompt, answer)): (_, &(u32, u32))| Request::new(at, *prompt, *answer);
    Ok(requests.map(request).collect())
}

fn simulated(plan: &FleetPlan, trace: &[Request]) -> Result<(Summary, Simulation), Failure> {
    let done = simulate(plan, trace).map_err(|error: PlanError| Failure::fault(error))?;
    Ok((Summary::of(&done.outcomes, &Slo::ANY), done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lengths_take_turns() {
        let mut names: Vec<_> = ALL.iter().map(|known| known.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        let trace = poisson(10.0, 1000, &[(1, 2), (3, 4)]).unwrap();
        let lengths: Vec<_> = trace.iter().take(3).map(|r| (r.prompt, r.answer)).collect();
        assert_eq!(lengths, [(1, 2), (3, 4), (1, 2)]);
        let rate = tandem_plan::search::rate(&trace);
        assert!((rate - 10.0).abs() < 1.0, "{rate}");
    }
}
