//! The engine against a bare loop of `fi_writemsg`, between two processes:
//!
//! ```text
//! cargo run --release -p tandem-fabric --example fabric_bench -- [PROVIDER [ROUNDS [MIB]]]
//! ```
//!
//! Rounds alternate, since the machine's speed drifts; the ratio is the median over rounds of
//! engine ÷ bare of the same round.
#![allow(clippy::print_stdout, reason = "a program's output")]

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use tandem_fabric::bare::{BareReport, Load, bare_push, bare_receive, engine_push, engine_receive};

const PIECES: [usize; 3] = [12 << 10, 64 << 10, 256 << 10];
const WINDOW: u32 = 64;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Bare,
    Engine,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["receive", kind, provider, piece, pieces, address] => {
            let load = load(provider, piece.parse()?, pieces.parse()?);
            let mut peer = TcpStream::connect(address)?;
            match *kind {
                "Bare" => bare_receive(&load, &mut peer)?,
                _ => engine_receive(&load, &mut peer)?,
            }
            Ok(())
        }
        rest => {
            let provider = rest.first().copied().unwrap_or("tcp");
            let rounds = rest.get(1).map_or(Ok(7), |n| n.parse())?;
            let mebibytes = rest.get(2).map_or(Ok(512), |n| n.parse())?;
            compare(provider, rounds, mebibytes)
        }
    }
}

fn load(provider: &str, piece: usize, pieces: usize) -> Load {
    Load {
        provider: provider.into(),
        piece,
        pieces,
        window: WINDOW,
    }
}

fn compare(provider: &str, rounds: usize, mebibytes: usize) -> Result<(), Box<dyn Error>> {
    println!("{provider}, window {WINDOW}, {rounds} rounds of {mebibytes} MiB, medians");
    println!(
        "{:>9} {:>12} {:>12} {:>7}  (ratio of each round)",
        "piece", "bare", "engine", "ratio"
    );
    for piece in PIECES {
        let load = load(provider, piece, (mebibytes << 20) / piece);
        let (mut bare, mut engine, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let b = measure(Kind::Bare, &load)?.rate();
            let e = measure(Kind::Engine, &load)?.rate();
            bare.push(b / 1e9);
            engine.push(e / 1e9);
            ratios.push(e / b);
        }
        let each: Vec<String> = ratios.iter().map(|r| format!("{r:.2}")).collect();
        println!(
            "{:>5} KiB {:>7.2} GB/s {:>7.2} GB/s {:>7.2}  ({})",
            piece >> 10,
            median(&mut bare),
            median(&mut engine),
            median(&mut ratios),
            each.join(" ")
        );
    }
    Ok(())
}

fn measure(kind: Kind, load: &Load) -> Result<BareReport, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut receiver = Command::new(std::env::current_exe()?)
        .args(["receive", &format!("{kind:?}"), &load.provider])
        .args([load.piece.to_string(), load.pieces.to_string()])
        .arg(listener.local_addr()?.to_string())
        .spawn()?;
    let (mut peer, _) = listener.accept()?;
    let report = match kind {
        Kind::Bare => bare_push(load, &mut peer),
        Kind::Engine => engine_push(load, &mut peer),
    };
    if report.is_err() {
        receiver.kill()?;
    }
    let status = receiver.wait()?;
    let report = report?;
    if status.success() {
        Ok(report)
    } else {
        Err("the receiver failed".into())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
