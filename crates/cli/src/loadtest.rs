//! `tandem loadtest`: reads the command line, has the harness carry out the test, and writes what it found.
//! Exit code 0 fine; 1 where requests failed, an assertion was missed, or the figures cannot be trusted; 2 for what
//! the one who typed it can mend, a server that is not there among it.

mod args;
mod compare;
mod config;
mod interrupt;
mod loads;
mod merge;
mod output;
mod progress;
mod record;
mod report;
mod requests;
mod saved;
mod verdict;
mod view;

pub(crate) use args::LoadtestArgs;
pub(crate) use config::arguments;

use tandem_loadtest::campaign::{self, Runs};
use tandem_loadtest::results::{FORMAT, Results};
use tandem_loadtest::server_metrics::Scrapers;
use tandem_loadtest::{Harness, RunError, StartError, TargetError};

use crate::failure::Failure;
use args::Action;
use interrupt::Stop;
use output::Outputs;
use progress::Progress;
use verdict::Meant;

/// Does it.
pub(crate) fn run(args: &LoadtestArgs) -> Result<(), Failure> {
    match &args.action {
        Some(Action::Merge(merge)) => merge::run(merge),
        Some(Action::Report(report)) => report::run(report),
        Some(Action::Compare(compare)) => compare::run(compare),
        Some(Action::Record(record)) => record::run(record),
        None => test(args),
    }
}

/// What keeps a test from starting: the server, or what it was told of it.
fn unstarted(error: StartError) -> Failure {
    let flag = match &error {
        StartError::Unreachable { .. } => Some("--url"),
        StartError::Model { .. } => Some("--model"),
        StartError::Target(TargetError::Authorities(_)) => Some("--ca"),
        _ => None,
    };
    let failure = Failure::mendable(error);
    match flag {
        Some(flag) => failure.about(flag),
        None => failure,
    }
}

fn test(args: &LoadtestArgs) -> Result<(), Failure> {
    let assertions = verdict::assertions(args)?;
    let slos = loads::slos(args)?;
    // What is wrong with the command line shows before the server is asked.
    let workload = requests::workload(args)?;
    let runs = loads::runs(args, &workload)?;
    let base = loads::base(args, workload, slos.clone())?;
    verdict::check_classes(&assertions, &slos, &base.workload.class_names())?;
    let mut outputs = Outputs::create(args)?;
    let target = requests::target(args)?;
    let names = requests::flag("--metrics-match", &args.metrics_match)?;
    let mut harness =
        Harness::start(target.clone(), args.api.into(), args.model.clone()).map_err(unstarted)?;
    if !args.metrics.is_empty() {
        let scrapers = Scrapers::start(&args.metrics, &target, names);
        let scrapers = scrapers.map_err(|error| requests::wrong("--metrics", error))?;
        harness = harness.with_metrics(scrapers);
    }
    let base = loads::of_server(base, &harness);
    let stop = Stop::listen()?;
    let mut progress = Progress::new(args, &runs, &stop);
    let outcome = campaign::carry_out(&harness, &base, &runs, &mut progress, outputs.requests());
    progress.clear();
    let outcome = outcome.map_err(|error| match error {
        RunError::Thread(_) => Failure::fault(error),
        other => Failure::mendable(other),
    })?;
    let mut results = Results {
        format: FORMAT.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        url: harness.url(),
        model: harness.model().to_owned(),
        settings: args.settings()?,
        slos,
        runs: outcome.runs,
        search: outcome.search,
        assertions: Vec::new(),
    };
    results.assertions = verdict::check(&assertions, &results);
    outputs.write(&results)?;
    let meant = Meant {
        beyond_capacity: matches!(runs, Runs::Search { .. }),
        not_begun: outcome.not_begun,
    };
    verdict::verdict(&results, &assertions, meant)
}
