//! Policies compared on traces, in simulated time: the gateway's front door and policies, and workers
//! that are page pools with a clock.
//!
//! `cargo run --release -p tandem-policies --example compare -- [--speed N] TRACE...`: a table for each
//! trace, Mooncake's `.jsonl` or Azure's `.csv`. `--speed 2` has requests come twice as fast.
#![allow(clippy::print_stdout, reason = "a program that prints a table")]

mod replay;
mod trace;

use std::path::PathBuf;
use std::time::Duration;

use replay::{Arrival, Outcome, Shape, Times, play};
use tandem_core::pairing::Targets;
use tandem_policies::{PolicySettings, Rule, Scorer};

fn main() -> Result<(), String> {
    let mut speed = 1.0;
    let mut paths = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--speed" {
            let value = arguments.next().unwrap_or_default();
            speed = value
                .parse()
                .map_err(|_| format!("--speed {value}: want a number"))?;
        } else {
            paths.push(PathBuf::from(argument));
        }
    }
    if paths.is_empty() {
        return Err("compare [--speed N] TRACE...".to_owned());
    }
    for path in paths {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let shape = shape();
        let mut trace = trace::read(&path, shape.page_tokens)?;
        trace
            .iter_mut()
            .for_each(|arrival| arrival.at = arrival.at.div_f64(speed));
        table(&name, &trace, shape);
    }
    Ok(())
}

/// Twelve workers that prefill and eight that decode, each about eight A800 with a 70B model: 5,000
/// prompt tokens a second, room for 1.2 million tokens.
fn shape() -> Shape {
    Shape {
        prefills: 12,
        decodes: 8,
        page_tokens: 512,
        pages: 2400,
        times: Times {
            prefill_base: Duration::from_millis(10),
            prefill_token: Duration::from_micros(200),
            push: Duration::from_millis(10),
            step_base: Duration::from_millis(15),
            step_sequence: Duration::from_micros(200),
            step_kilotoken: Duration::from_micros(40),
        },
        report: Duration::from_millis(50),
    }
}

fn policies() -> Vec<(&'static str, PolicySettings)> {
    let all = Rule::NAMES.iter().map(|(name, rule)| {
        let mut settings = PolicySettings::default();
        (settings.prefill.choose, settings.decode.choose) = (*rule, *rule);
        settings.prefill.weights = vec![(Scorer::Prefix, 1.0), (Scorer::Ttft, 2.0)];
        settings.decode.weights = vec![(Scorer::Pages, 1.0), (Scorer::Tpot, 1.0)];
        settings.slo = Targets {
            ttft: Some(Duration::from_secs(10)),
            tpot: Some(Duration::from_millis(50)),
        };
        (*name, settings)
    });
    all.collect()
}

fn table(name: &str, trace: &[Arrival], shape: Shape) {
    println!("{name}, {} requests\n", trace.len());
    println!(
        "| policy | TTFT p50 s | p90 s | p99 s | TPOT p90 ms | prefix hits | balance | local |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, settings) in policies() {
        let out = play(trace, shape, &settings);
        let ttft = |share| Outcome::at(&out.ttft_ms, share) / 1e3;
        println!(
            "| `{name}` | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} % | {:.2} | {} |",
            ttft(0.5),
            ttft(0.9),
            ttft(0.99),
            Outcome::at(&out.tpot_ms, 0.9),
            out.hit_share * 100.0,
            out.balance,
            out.local,
        );
    }
    println!();
}
