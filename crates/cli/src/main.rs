//! `tandem`: the one binary. Reads the command line, hands over to a subcommand, and turns its
//! failure into one line and an exit code: 0 fine, 2 for what the one who typed it can mend
//! (configuration, model, port), 1 for anything else.

#![forbid(unsafe_code)]

mod admin;
mod check;
mod console;
mod entry;
mod experiment;
mod fabric;
mod failure;
mod http;
mod keys;
mod lifetime;
mod loadtest;
mod logging;
mod pki;
mod plan;
mod planning;
mod serve;
mod started;
mod status;
mod supervisor;
mod topology;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Disaggregated LLM serving: prefill and decode on separate workers.
#[derive(Parser)]
#[command(name = "tandem", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a gateway and its workers on this machine.
    Up(up::UpArgs),
    /// Run one gateway.
    Gateway(ConfigArgs),
    /// Run one worker, or several in one process.
    Worker(ConfigsArgs),
    /// Run the engine of a worker whose configuration has an `engine_socket`.
    Engine(ConfigArgs),
    /// Say whether a configuration file is right, and what it comes to.
    Check(ConfigArgs),
    /// Show a running gateway's workers.
    Status(status::StatusArgs),
    /// See and change what a running gateway does.
    Admin(admin::AdminArgs),
    /// Make API keys, and show which a file holds.
    Keys(keys::KeysArgs),
    /// Make, renew and show certificates of gateways and workers.
    Pki(pki::PkiArgs),
    /// Show which NICs and cores belong to which device of this machine.
    Topology(topology::TopologyArgs),
    /// Show what libfabric offers on this machine, or measure it.
    Fabric(fabric::FabricArgs),
    /// Find the fleet that serves a trace within an SLO, in simulated time.
    Plan(plan::PlanArgs),
    /// Reproduce a published result, or show what a setting does, in simulated time.
    Experiment(experiment::ExperimentArgs),
    /// Measure any OpenAI-compatible endpoint under load.
    Loadtest(Box<loadtest::LoadtestArgs>),
}

#[derive(Args)]
struct ConfigArgs {
    /// The TOML file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Args)]
struct ConfigsArgs {
    /// The TOML file; of each worker, where it is given several times.
    #[arg(long, value_name = "FILE", required = true)]
    config: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let given = lifetime::die_with_parent().and_then(|()| loadtest::arguments(std::env::args_os()));
    let result = given.and_then(
        |(arguments, origins)| match Cli::parse_from(arguments).command {
            Command::Up(args) => up::run(&args),
            Command::Gateway(args) => serve::gateway(&args.config),
            Command::Worker(args) => serve::worker(&args.config),
            Command::Engine(args) => serve::engine(&args.config),
            Command::Check(args) => check::run(&args.config),
            Command::Status(args) => status::run(&args),
            Command::Admin(args) => admin::run(&args),
            Command::Keys(args) => keys::run(args),
            Command::Pki(args) => pki::run(&args),
            Command::Topology(args) => topology::run(&args),
            Command::Fabric(args) => fabric::run(args),
            Command::Plan(args) => plan::run(&args),
            Command::Experiment(args) => experiment::run(&args),
            Command::Loadtest(args) => {
                loadtest::run(&args).map_err(|failure| origins.locate(failure))
            }
        },
    );
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
