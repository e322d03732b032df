//! `tandem fabric`: what libfabric offers here, and how fast it and the engine are.

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use tandem_fabric::bench::{self, Plan, Receiver, Report};
use tandem_worker_agent::measure::{self, BumpPlan, BumpToPost};

use crate::console::say;
use crate::failure::Failure;

/// Command line of `tandem fabric`.
#[derive(Args)]
pub(crate) struct FabricArgs {
    /// The file to load libfabric from, as `[fabric] library` [default: $TANDEM_LIBFABRIC, or
    /// libfabric.so.1]
    #[arg(long, value_name = "FILE", global = true)]
    library: Option<PathBuf>,
    #[command(subcommand)]
    command: FabricCommand,
}

#[derive(Subcommand)]
enum FabricCommand {
    /// Say which providers there are, what each promises, and what a configured name comes to.
    Info {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measure the transfer engine beside a bare loop of fi_writemsg, plain TCP and memcpy.
    Bench(BenchArgs),
    /// The receiving process of a measurement on this host.
    #[command(hide = true)]
    Receive {
        /// Where the measuring process listens.
        address: String,
    },
}

#[derive(Args)]
struct BenchArgs {
    /// As in `[fabric] provider`.
    #[arg(long, default_value = "tcp")]
    provider: String,
    /// Rounds, in which all cases take turns; medians are reported [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// MiB that each case moves in a round [default: 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4095))]
    mib: Option<u32>,
    /// Only pieces of so many KiB.
    #[arg(long, value_name = "N")]
    piece_kib: Option<u32>,
    /// One round of little: whether it works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Use the receiver that runs at HOST:PORT, instead of one on this host.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "listen")]
    to: Option<String>,
    /// Be the receiver for another host's measurement, until interrupted. Anybody who reaches this
    /// address can use it: for trusted networks.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
}

/// Does it.
pub(crate) fn run(args: FabricArgs) -> Result<(), Failure> {
    // A bare name is a file here, not one that the loader looks for elsewhere.
    let library = args.library.as_deref().map(|p| Path::new(".").join(p));
    let library = library.as_deref();
    // All that follows uses it.
    tandem_fabric::load(library).map_err(Failure::mendable)?;
    match args.command {
        FabricCommand::Info { json } => info(json),
        FabricCommand::Bench(args) => match &args.listen {
            Some(address) => listen(address),
            None => measure(&args, library),
        },
        FabricCommand::Receive { address } => {
            bench::receive(address, &[]).map_err(Failure::mendable)
        }
    }
}

fn info(json: bool) -> Result<(), Failure> {
    let providers = tandem_fabric::describe_providers().map_err(Failure::mendable)?;
    if json {
        say(&serde_json::to_string_pretty(&providers).map_err(Failure::fault)?);
    } else {
        say(providers.to_string().trim_end());
    }
    Ok(())
}

fn listen(address: &str) -> Result<(), Failure> {
    let refused = |error| Failure::mendable(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(refused)?;
    let local = listener.local_addr().map_err(refused)?;
    say(&format!("receiving at {local}"));
    loop {
        if let Err(error) = bench::serve(&listener, &[]) {
            say(&format!("a measurement ended: {error}"));
        }
    }
}

fn measure(args: &BenchArgs, library: Option<&Path>) -> Result<(), Failure> {
    let mut plan = if args.quick {
        Plan::quick(&args.provider)
    } else {
        Plan::standard(&args.provider)
    };
    if let Some(kib) = args.piece_kib {
        plan.cases
            .retain(|case| Some(case.piece_bytes) == kib.checked_mul(1024));
        if plan.cases.is_empty() {
            let known = "there are cases of 16, 64 and 256 KiB";
            return Err(Failure::mendable(format!("no case of {kib} KiB: {known}")));
        }
    }
    if let Some(rounds) = args.rounds {
        plan.rounds = rounds.into();
    }
    if let Some(mebibytes) = args.mib {
        let bytes = mebibytes << 20;
        for case in &mut plan.cases {
            case.pieces = (bytes / case.piece_bytes).max(1);
        }
    }
    let receiver = match &args.to {
        Some(address) => Receiver::Connect(address.clone()),
        None => Receiver::Spawn(receive(library)),
    };
    let bumps = if args.quick {
        BumpPlan::quick(&args.provider)
    } else {
        BumpPlan::standard(&args.provider)
    };
    let transfers = bench::run(&plan, &receiver).map_err(Failure::mendable)?;
    let bumps = measure::bump_to_post(&bumps, &receiver).map_err(Failure::mendable)?;
    let report = Measured {
        transfers,
        bump_to_post_us: bumps,
    };
    if args.json {
        say(&serde_json::to_string_pretty(&report).map_err(Failure::fault)?);
    } else {
        say(report.to_string().trim_end());
    }
    Ok(())
}

/// The arguments of a receiver that uses the same library.
fn receive(library: Option<&Path>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["fabric".into(), "receive".into()];
    if let Some(library) = library {
        arguments.extend(["--library".into(), library.into()]);
    }
    arguments
}

/// All that was measured.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    transfers: Report,
    /// From a bump of an engine's counter to the layer's first posted write.
    bump_to_post_us: Vec<BumpToPost>,
}

impl Display for Measured {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.transfers)?;
        writeln!(
            f,
            "microseconds from the counter's bump to the layer's first posted write, p50/p99"
        )?;
        for row in &self.bump_to_post_us {
            let BumpToPost {
                provider,
                threads,
                samples,
                us,
                ..
            } = row;
            let cores = if row.pinned { ", pinned" } else { "" };
            writeln!(
                f,
                "{provider}  {threads}{cores}  {:.1}/{:.1}  of {samples} layers",
                us.p50, us.p99
            )?;
        }
        Ok(())
    }
}
