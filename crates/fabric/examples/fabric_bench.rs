//! The engine beside a bare loop of `fi_writemsg`, plain TCP and `memcpy`, between two processes:
//!
//! ```text
//! cargo run --release -p tandem-fabric --example fabric_bench -- \
//!     [--provider NAME] [--quick] [--rounds N] [--mib N] [--piece-kib N] [--json] [--to HOST:PORT]
//! fabric_bench --listen ADDRESS:PORT       # on the other host, for --to
//! fabric_bench --info [--json]             # which providers there are
//! ```
#![allow(clippy::print_stdout, reason = "a program's output")]

use std::error::Error;
use std::net::TcpListener;

use tandem_fabric::bench::{Plan, Receiver, receive, run, serve};
use tandem_fabric::describe_providers;

struct Arguments {
    plan: Plan,
    json: bool,
    receiver: Receiver,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--info", format @ ..] => {
            let providers = describe_providers()?;
            if format.contains(&"--json") {
                println!("{}", serde_json::to_string_pretty(&providers)?);
            } else {
                print!("{providers}");
            }
            Ok(())
        }
        ["receive", address] => Ok(receive(*address, &[])?),
        ["--listen", address] => {
            let listener = TcpListener::bind(address)?;
            loop {
                if let Err(error) = serve(&listener, &[]) {
                    println!("{error}");
                }
            }
        }
        words => {
            let Arguments {
                plan,
                json,
                receiver,
            } = parse(words)?;
            let report = run(&plan, &receiver)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                print!("{report}");
            }
            Ok(())
        }
    }
}

fn parse(words: &[&str]) -> Result<Arguments, Box<dyn Error>> {
    let value = |name: &str| {
        let at = words.iter().position(|w| *w == name)?;
        words.get(at + 1).copied()
    };
    let provider = value("--provider").unwrap_or("tcp");
    let mut plan = if words.contains(&"--quick") {
        Plan::quick(provider)
    } else {
        Plan::standard(provider)
    };
    if let Some(kib) = value("--piece-kib") {
        let kib: u32 = kib.parse()?;
        plan.cases.retain(|case| case.piece_bytes == kib << 10);
    }
    if let Some(rounds) = value("--rounds") {
        plan.rounds = rounds.parse()?;
    }
    if let Some(mebibytes) = value("--mib") {
        let bytes = mebibytes.parse::<u32>()?.min(4095) << 20;
        for case in &mut plan.cases {
            case.pieces = (bytes / case.piece_bytes).max(1);
        }
    }
    let receiver = match value("--to") {
        Some(address) => Receiver::Connect(address.into()),
        None => Receiver::Spawn(vec!["receive".into()]),
    };
    Ok(Arguments {
        plan,
        json: words.contains(&"--json"),
        receiver,
    })
}
