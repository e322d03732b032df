//! `--real`: fleets as processes of this machine, with workers of the timed engine, loaded by the harness. What is simulated
//! otherwise is real here: gateway, agents, leases, pages pushed over libfabric.

mod up;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};
use tandem_loadtest::body::{Api, Asking};
use tandem_loadtest::plan::{Bounds, Load, Margin, RunPlan};
use tandem_loadtest::record::{self, Record};
use tandem_loadtest::results::{LoadPoint, Part};
use tandem_loadtest::slo::Slos;
use tandem_loadtest::trace::{Trace, TraceRow};
use tandem_loadtest::workload::{Source, Speech, Workload};
use tandem_loadtest::{Harness, Live, Target};
use tandem_plan::{Answer, FleetPlan, Outcome, Request, Slo, Summary};

use super::ExperimentArgs;
use crate::console::complain;
use crate::failure::Failure;
use up::Up;

/// Token ids of prompts: tokenizers of every model that `up` takes have as many.
const VOCABULARY: u32 = 32_000;
/// A request may last so long, in the profile's time.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What a fleet's requests got, in the profile's time.
pub(super) struct Measured {
    pub(super) outcomes: Vec<Outcome>,
    /// Why the client's figures are not to be trusted, if so.
    pub(super) invalid: Vec<String>,
}

impl Measured {
    pub(super) fn summary(&self, slo: &Slo) -> Summary {
        Summary::of(&self.outcomes, slo)
    }
}

/// Starts the fleet and sends it the trace. Its policy is the `[policy]` of that text, or the gateway's own.
pub(super) fn measure(
    args: &ExperimentArgs,
    plan: &FleetPlan,
    policy: Option<(&str, &str)>,
    trace: &[Request],
) -> Result<Measured, Failure> {
    let up = Up::start(args, plan, policy.map(|(_, table)| table))?;
    let under = policy.map_or_else(String::new, |(name, _)| format!(", {name}"));
    let name = format!("{}{under}", up.fleet);
    let seconds = trace.last().map_or(0.0, |last| last.at.as_secs_f64()) * args.scale();
    complain(&format!(
        "{name}: {} requests in {seconds:.0} s",
        trace.len()
    ));
    let target = Target {
        url: up.url.parse().map_err(Failure::fault)?,
        key: None,
        headers: Vec::new(),
        http2: false,
        ca: None,
    };
    let harness = Harness::start(target, Api::Completions, None).map_err(Failure::fault)?;
    let mut lines = Vec::new();
    let live = Arc::new(Live::default());
    let run_plan = run_plan(&harness, args.scale(), trace);
    let run = harness.run(&run_plan, &live, Some(&mut lines));
    let doubts = run.map_err(Failure::fault)?.invalid;
    Ok(Measured {
        invalid: doubts.iter().map(|why| format!("{name}: {why}")).collect(),
        outcomes: outcomes(&lines, args.scale(), trace.len())?,
    })
}

/// The same requests, as the harness takes them.
fn replayed(trace: &[Request]) -> Trace {
    let row = |request: &Request| TraceRow {
        at: request.at,
        input_tokens: request.prompt,
        output_tokens: request.answer,
        blocks: request
            .blocks
            .iter()
            .flat_map(|blocks| blocks.ids.iter().copied())
            .collect(),
        class: None,
    };
    let block_tokens = trace.iter().find_map(|request| request.blocks.as_ref());
    Trace {
        rows: trace.iter().map(row).collect(),
        block_tokens: block_tokens.map_or(1, |blocks| blocks.tokens),
    }
}

fn run_plan(harness: &Harness, scale: f64, trace: &[Request]) -> RunPlan {
    let speed = 1.0 / scale;
    RunPlan {
        load: Load::Trace { speed },
        point: LoadPoint::TraceSpeed(speed),
        setting: None,
        repeat: 1,
        workload: Arc::new(Workload {
            seed: 1,
            renewed: 0,
            speech: Arc::new(Speech::Ids(VOCABULARY)),
            source: Arc::new(Source::Trace(replayed(trace))),
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
        session_header: SESSION.parse().ok(),
        slos: Slos::default(),
        requests: None,
        duration: None,
        warm_up: Margin::None,
        cool_down: Margin::None,
        timeout: TIMEOUT.mul_f64(scale.max(1.0)),
        max_in_flight: 10_000,
        part: Part { number: 1, of: 1 },
        start_at: None,
        bounds: Bounds::default(),
    }
}

/// What the gateway takes a session's name from, where it was told nothing else.
const SESSION: &str = "x-session-id";

/// From a line of JSON for each request. One that failed is an error: then fleets cannot be compared.
fn outcomes(lines: &[u8], scale: f64, count: usize) -> Result<Vec<Outcome>, Failure> {
    let records: Vec<Record> = serde_json::Deserializer::from_slice(lines)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(Failure::fault)?;
    let found: Vec<Outcome> = records
        .iter()
        .filter_map(|record| outcome(record, scale))
        .collect();
    if found.len() == count {
        return Ok(found);
    }
    let failure = records
        .iter()
        .find(|record| outcome(record, scale).is_none());
    let why = failure.and_then(|record| record.failure.as_ref());
    Err(Failure::fault(format!(
        "{} of {count} requests were answered or rejected{}",
        found.len(),
        why.map_or_else(String::new, |why| format!(
            ", the first other one: {}",
            why.message
        ))
    )))
}

/// `None` for one that failed.
fn outcome(record: &Record, scale: f64) -> Option<Outcome> {
    match record.outcome {
        record::Outcome::Rejected => return Some(Outcome::Rejected("rejected")),
        record::Outcome::Failed | record::Outcome::Unsent => return None,
        record::Outcome::Attained | record::Outcome::Late => {}
    }
    let time = |us: f64| Duration::from_secs_f64(us / 1e6 / scale);
    let tokens = u32::try_from(record.output_tokens).ok()?;
    let later = f64::from(tokens.saturating_sub(1));
    Some(Outcome::Answered(Answer {
        ttft: time(record.ttft_us? as f64),
        decoding: time(record.tpot_us.unwrap_or(0.0) * later),
        longest_gap: time(record.longest_gap_us.unwrap_or(0) as f64),
        prompt: u32::try_from(record.input_tokens?).ok()?,
        tokens,
        // The gateway alone knows these.
        queued: Duration::ZERO,
        exposed: Duration::ZERO,
        cached: u32::try_from(record.cached_tokens.unwrap_or(0)).ok()?,
        local: false,
        ended: time((record.scheduled_us + record.e2e_us) as f64),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(outcome: &str, more: &str) -> String {
        format!(
            r#"{{"index":0,"turn":0,"class":"default","phase":"measured","request_id":"r","scheduled_us":1000000,
            "lateness_us":0,"connected_us":null,"head_us":null,"ttft_us":100000,"tpot_us":20000.0,"itl_p99_us":null,
            "longest_gap_us":400000,"e2e_us":300000,"wanted_input_tokens":7,"wanted_output_tokens":11,"input_tokens":7,
            "cached_tokens":4,"output_tokens":11,"token_source":null,"events":11,"clipped":false,"status":200,
            "outcome":"{outcome}","failure":null,"finish_reason":null{more}}}"#
        )
    }

    #[test]
    fn outcomes_are_those_of_the_records_in_the_profiles_time() {
        let lines = [line("attained", ""), line("rejected", "")].join("\n");
        let found = outcomes(lines.as_bytes(), 2.0, 2).unwrap();
        let Outcome::Answered(answer) = found[0] else {
            panic!("{found:?}")
        };
        let ms = Duration::from_millis;
        let times = [answer.ttft, answer.tpot(), answer.longest_gap, answer.ended];
        assert_eq!(times, [ms(50), ms(10), ms(200), ms(650)]);
        assert_eq!((answer.prompt, answer.cached, answer.tokens), (7, 4, 11));
        assert_eq!(found[1], Outcome::Rejected("rejected"));
    }

    #[test]
    fn a_fleet_that_loses_a_request_is_not_compared() {
        let lines = [line("attained", ""), line("failed", "")].join("\n");
        let error = outcomes(lines.as_bytes(), 1.0, 2).unwrap_err().to_string();
        assert!(
            error.starts_with("1 of 2 requests were answered or rejected"),
            "{error}"
        );
    }

    #[test]
    fn a_trace_is_replayed_as_it_is_simulated() {
        let mut request = Request::new(Duration::from_secs(3), 700, 9);
        request.blocks = Some(tandem_plan::Blocks {
            tokens: 512,
            ids: [4, 5].into(),
        });
        request.session = Some(5);
        let trace = replayed(&[Request::new(Duration::ZERO, 8, 2), request]);
        assert_eq!(trace.block_tokens, 512);
        let [first, second] = &trace.rows[..] else {
            panic!("{trace:?}")
        };
        assert_eq!(
            (first.input_tokens, first.output_tokens, first.session()),
            (8, 2, None)
        );
        assert_eq!(
            (second.at, &*second.blocks, second.session()),
            (Duration::from_secs(3), &[4, 5][..], Some(5))
        );
    }
}
