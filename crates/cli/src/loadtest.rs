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
mod prepare;
mod progress;
mod record;
mod report;
mod requests;
mod saved;
mod verdict;
mod view;

pub(crate) use args::LoadtestArgs;
pub(crate) use config::arguments;

use std::sync::Arc;

use tandem_loadtest::campaign::{self, Outcome, Runs};
use tandem_loadtest::plan::RunPlan;
use tandem_loadtest::results::{FORMAT, Results, Run, RunEnd};
use tandem_loadtest::server_metrics::Scrapers;
use tandem_loadtest::slo::Slos;
use tandem_loadtest::{Harness, RunError, StartError, TargetError};

use crate::failure::Failure;
use args::Action;
use interrupt::Stop;
use output::Outputs;
use prepare::Settings;
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
    let settings = prepare::settings(args)?;
    let workload = requests::workload(args)?;
    let runs = loads::runs(args, &workload)?;
    let base = loads::base(args, workload, slos.clone())?;
    verdict::check_classes(&assertions, &slos, &base.workload.class_names())?;
    let mut outputs = Outputs::create(args)?;
    let stop = Stop::listen()?;
    let count = settings
        .as_ref()
        .map_or(1, |settings| settings.values.len());
    let mut test = Test::new(args, (&runs, count), &stop);
    let ended = match &settings {
        Some(settings) => test.each(settings, base, &mut outputs),
        None => test.run(base, &mut outputs),
    };
    let mut results = match ended {
        Ok(()) => test.results(slos)?,
        // Of a sweep what there is stays.
        Err(failure) if test.outcome.runs.is_empty() => return Err(failure),
        Err(failure) => {
            outputs.write(&test.results(slos)?)?;
            return Err(failure);
        }
    };
    results.assertions = verdict::check(&assertions, &results);
    outputs.write(&results)?;
    let meant = Meant {
        beyond_capacity: matches!(runs, Runs::Search { .. }),
        not_begun: test.not_begun,
    };
    verdict::verdict(&results, &assertions, meant)
}

/// A test on its way.
struct Test<'a> {
    args: &'a LoadtestArgs,
    runs: &'a Runs,
    stop: &'a Stop,
    progress: Progress<'a>,
    /// Address and model of the server that was asked last.
    server: (String, String),
    outcome: Outcome,
    /// Runs that it did not come to.
    not_begun: usize,
}

impl<'a> Test<'a> {
    /// For so many settings.
    fn new(args: &'a LoadtestArgs, (runs, settings): (&'a Runs, usize), stop: &'a Stop) -> Self {
        Self {
            args,
            runs,
            stop,
            progress: Progress::new(args, runs, settings, stop),
            server: (args.url.clone(), String::new()),
            outcome: Outcome::default(),
            not_begun: 0,
        }
    }

    /// All runs on one server.
    fn run(&mut self, base: RunPlan, outputs: &mut Outputs) -> Result<(), Failure> {
        let harness = harness(self.args)?;
        self.server = (harness.url(), harness.model().to_owned());
        let base = loads::of_server(base, &harness);
        let requests = outputs.requests();
        let outcome = campaign::carry_out(&harness, &base, self.runs, &mut self.progress, requests);
        self.progress.clear();
        let outcome = outcome.map_err(|error| match error {
            RunError::Thread(_) => Failure::fault(error),
            other => Failure::mendable(other),
        })?;
        self.outcome.runs.extend(outcome.runs);
        self.outcome.search = outcome.search;
        self.not_begun += outcome.not_begun;
        Ok(())
    }

    /// All runs for each value of a setting, each on the server that was made so.
    fn each(
        &mut self,
        settings: &Settings<'_>,
        base: RunPlan,
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        for (done, value) in settings.values.iter().enumerate() {
            settings.prepare(value, self.stop)?;
            let mut base = base.clone();
            base.setting = Some(settings.label(value));
            // The same load, of which a server that was not started anew knows no prompt.
            Arc::make_mut(&mut base.workload).renewed = done as u64;
            self.run(base, outputs)?;
            // A server that is gone may be there again for the next value.
            let stopped = |run: &Run| run.ended == RunEnd::Interrupted;
            if self.outcome.runs.last().is_some_and(stopped) || self.stop.is_asked() {
                let left = settings.values.len() - done - 1;
                self.not_begun += left * self.runs.count().unwrap_or(1);
                break;
            }
        }
        Ok(())
    }

    fn results(&mut self, slos: Slos) -> Result<Results, Failure> {
        let outcome = std::mem::take(&mut self.outcome);
        let (url, model) = self.server.clone();
        Ok(Results {
            format: FORMAT.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url,
            model,
            settings: self.args.settings()?,
            slos,
            runs: outcome.runs,
            search: outcome.search,
            assertions: Vec::new(),
        })
    }
}

fn harness(args: &LoadtestArgs) -> Result<Harness, Failure> {
    let target = requests::target(args)?;
    let names = requests::flag("--metrics-match", &args.metrics_match)?;
    let harness =
        Harness::start(target.clone(), args.api.into(), args.model.clone()).map_err(unstarted)?;
    if args.metrics.is_empty() {
        return Ok(harness);
    }
    let scrapers = Scrapers::start(&args.metrics, &target, names);
    let scrapers = scrapers.map_err(|error| requests::wrong("--metrics", error))?;
    Ok(harness.with_metrics(scrapers))
}
