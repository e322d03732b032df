//! `r1-tp --real`: the same fleets as processes of this machine, with workers of the timed engine, loaded by the harness.
//! What is simulated otherwise is real here: gateway, agents, leases, pages pushed over libfabric.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tandem_loadtest::arrivals::Process;
use tandem_loadtest::body::{Api, Asking};
use tandem_loadtest::plan::{Bounds, Load, Margin, RunPlan};
use tandem_loadtest::results::{LoadPoint, Part, Run};
use tandem_loadtest::slo::Slos;
use tandem_loadtest::workload::{Class, DEFAULT_CLASS, Source, Speech, Synthetic, Think, Workload};
use tandem_loadtest::{Harness, Live, Target};
use tandem_plan::FleetPlan;

use super::r1::{ANSWER, Figures, HEAD, MIXED, PROFILE, PROMPT, RATE};
use super::report::Report;
use super::{ExperimentArgs, poisson, pool, simulated};
use crate::console::complain;
use crate::failure::Failure;
use crate::lifetime::PARENT;

const REQUESTS: u32 = 120;
/// Token ids of prompts: tokenizers of every model that `up` takes have as many.
const VOCABULARY: u32 = 32_000;
const READY_WITHIN: Duration = Duration::from_secs(120);
/// `up` ends within five seconds of a signal.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// A request may last so long, in the profile's time.
const TIMEOUT: Duration = Duration::from_secs(600);

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    let scale = args.time_scale.unwrap_or(1.0);
    let count = args.requests(REQUESTS);
    let nodes = MIXED.to_string();
    let mixed = measure(args, &["--aggregated", &nodes], scale, count)?;
    let apart = measure(args, &["--prefill", "1", "--decode", "3"], scale, count)?;
    let trace = poisson(RATE, count, &[(PROMPT, ANSWER)])?;
    let simulation = |plan: &FleetPlan| Ok::<_, Failure>(Figures::of(&simulated(plan, &trace)?.0));
    let mixed_simulated = simulation(&FleetPlan::mixed(pool(PROFILE, MIXED)?))?;
    let apart_simulated = simulation(&FleetPlan::apart(pool(PROFILE, 1)?, pool(PROFILE, 3)?))?;
    let per_node = RATE / f64::from(MIXED);
    let rows = [
        mixed.0.row(&format!("{MIXED} mixed nodes"), per_node),
        mixed_simulated.row("the same, simulated", per_node),
        apart.0.row("1 prefill, 3 decode nodes", 1.0),
        apart_simulated.row("the same, simulated", 1.0),
    ];
    let about = |run: &Run, simulated: &Figures| {
        json!({
            "time_scale": scale,
            "requests": count,
            "invalid": run.invalid,
            "simulated": simulated.json(&json!({})),
        })
    };
    let json = json!({
        "mixed": mixed.0.json(&about(&mixed.1, &mixed_simulated)),
        "disaggregated": apart.0.json(&about(&apart.1, &apart_simulated)),
    });
    let mut report = Report::new(json)
        .says(format!(
            "{PROFILE}, real processes: {count} requests of {PROMPT} + {ANSWER} tokens, {RATE} a second of the profile's \
             time, of which one takes {scale} s. Times are the profile's."
        ))
        .table(HEAD, &rows);
    for why in mixed.1.invalid.iter().chain(&apart.1.invalid) {
        report = report.says(format!("The client's figures are in doubt: {why}"));
    }
    Ok(report)
}

/// What a fleet's requests got, in the profile's time.
fn measure(
    args: &ExperimentArgs,
    fleet: &[&str],
    scale: f64,
    count: usize,
) -> Result<(Figures, Run), Failure> {
    let up = Up::start(args, fleet, scale)?;
    let seconds = count as f64 / RATE * scale;
    complain(&format!(
        "{}: {count} requests, about {seconds:.0} s",
        fleet.join(" ")
    ));
    let target = Target {
        url: up.url.parse().map_err(Failure::fault)?,
        key: None,
        headers: Vec::new(),
        http2: false,
        ca: None,
    };
    let harness = Harness::start(target, Api::Completions, None).map_err(Failure::fault)?;
    let plan = plan(&harness, scale, count)?;
    let mut lines = Vec::new();
    let live = Arc::new(Live::default());
    let run = harness.run(&plan, &live, Some(&mut lines));
    let run = run.map_err(Failure::fault)?;
    let figures = figures(&lines, scale, count)?;
    Ok((figures, run))
}

fn plan(harness: &Harness, scale: f64, count: usize) -> Result<RunPlan, Failure> {
    let rate = RATE / scale;
    let lengths = |tokens: u32| tokens.to_string().parse().map_err(Failure::fault);
    let source = Source::Synthetic(Synthetic {
        classes: vec![Class {
            name: DEFAULT_CLASS.to_owned(),
            share: 1.0,
            input: lengths(PROMPT)?,
            output: lengths(ANSWER)?,
        }],
        prefix: None,
        turns: lengths(1)?,
        think: Think::Fixed(Duration::ZERO),
    });
    Ok(RunPlan {
        load: Load::Open {
            curve: rate.to_string().parse().map_err(Failure::fault)?,
            process: Process::Poisson,
        },
        point: LoadPoint::Rate(rate),
        repeat: 1,
        workload: Arc::new(Workload {
            seed: 1,
            speech: Arc::new(Speech::Ids(VOCABULARY)),
            source: Arc::new(source),
            max_context: harness.max_context(),
            chat: false,
        }),
        asking: Asking {
            api: Api::Completions,
            model: harness.model().to_owned(),
            usage: harness.usage(),
            ignore_eos: true,
            extra: Map::from_iter([("temperature".to_owned(), json!(0))]),
        },
        class_header: None,
        slos: Slos::default(),
        requests: Some(count as u64),
        duration: None,
        warm_up: Margin::None,
        cool_down: Margin::None,
        timeout: TIMEOUT.mul_f64(scale.max(1.0)),
        max_in_flight: 10_000,
        part: Part { number: 1, of: 1 },
        start_at: None,
        bounds: Bounds::default(),
    })
}

/// From a line of JSON for each request.
fn figures(lines: &[u8], scale: f64, count: usize) -> Result<Figures, Failure> {
    let records: Vec<Value> = serde_json::Deserializer::from_slice(lines)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(Failure::fault)?;
    let sorted = |name: &str| {
        let values = records.iter().filter_map(|record| record[name].as_f64());
        let mut values: Vec<f64> = values.map(|us| us / 1e3 / scale).collect();
        values.sort_by(f64::total_cmp);
        match values.len() == count {
            true => Ok(values),
            false => Err(Failure::fault(format!(
                "{} of {count} requests were answered: {}",
                values.len(),
                records
                    .iter()
                    .find(|record| !record["failure"].is_null())
                    .map_or_else(String::new, |record| record["failure"].to_string())
            ))),
        }
    };
    // Nearest rank.
    let at = |values: &[f64], share: f64| {
        let rank = (share * values.len() as f64).ceil() as usize;
        values.get(rank.max(1) - 1).copied().unwrap_or_default()
    };
    let (tpot, gap, ttft) = (
        sorted("tpot_us")?,
        sorted("longest_gap_us")?,
        sorted("ttft_us")?,
    );
    Ok(Figures {
        tps_p50: 1e3 / at(&tpot, 0.5),
        longest_stall_ms_p99: at(&gap, 0.99),
        longest_stall_ms_p50: at(&gap, 0.5),
        ttft_ms_p50: at(&ttft, 0.5),
        ttft_ms_p99: at(&ttft, 0.99),
    })
}

/// A running `tandem up`. It ends when this is dropped, and with this process.
struct Up {
    process: Child,
    url: String,
    _state: tempfile::TempDir,
}

impl Up {
    fn start(args: &ExperimentArgs, fleet: &[&str], scale: f64) -> Result<Self, Failure> {
        let state = tempfile::tempdir().map_err(Failure::fault)?;
        let one = pool(PROFILE, 1)?;
        let mut command = Command::new(std::env::current_exe().map_err(Failure::fault)?);
        command
            .args(["up", "--timed", PROFILE, "--listen", "127.0.0.1:0"])
            .args(["--time-scale", &scale.to_string()])
            .args(["--chunk-tokens", &one.chunk_tokens.to_string()])
            .args(["--max-batch", &one.max_batch.to_string()])
            .args(["--page-tokens", &one.page_tokens.to_string()])
            .arg("--state-dir")
            .arg(state.path())
            .args(fleet)
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(model) = &args.model {
            command.arg("--model").arg(model);
        }
        let mut process = command.spawn().map_err(Failure::fault)?;
        let out = process.stdout.take();
        let mut up = Self {
            process,
            url: String::new(),
            _state: state,
        };
        let (found, url) = mpsc::channel();
        // Reads on, so that `up` never waits for a reader; ends with it.
        std::thread::spawn(move || {
            let lines = out.map(|out| BufReader::new(out).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("ready ") {
                    let _ = found.send(url.to_owned());
                }
            }
        });
        let not_ready =
            |_| Failure::fault(format!("`tandem up {}` did not start", fleet.join(" ")));
        up.url = url.recv_timeout(READY_WITHIN).map_err(not_ready)?;
        Ok(up)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        // Not waited for yet: its id is nobody else's.
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + ENDS_WITHIN;
        while Instant::now() < until {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_records_in_the_profiles_time() {
        let line = |n: u32| {
            let record = json!({
                "tpot_us": 20_000.0 + f64::from(n), "longest_gap_us": 400_000 + n, "ttft_us": 100_000, "failure": null,
            });
            format!("{record}\n")
        };
        let lines: String = (0..10).map(line).collect();
        let found = figures(lines.as_bytes(), 2.0, 10).unwrap();
        assert!((found.tps_p50 - 100.0).abs() < 0.1, "{found:?}");
        assert!(
            (found.longest_stall_ms_p99 - 200.0).abs() < 0.1,
            "{found:?}"
        );
        assert!((found.ttft_ms_p50 - 50.0).abs() < 0.1, "{found:?}");
        let error = figures(lines.as_bytes(), 1.0, 11).unwrap_err().to_string();
        assert!(
            error.starts_with("10 of 11 requests were answered"),
            "{error}"
        );
    }
}
