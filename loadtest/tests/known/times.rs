//! Percentiles against what the server says that it wrote, to 1 ms or 1 %.
//!
//! What is compared are two clocks' views of the same writes, so what the server does late is no error. What
//! the machine does between a write and its reading is. A run in which the harness itself says that it did not
//! keep up is made again; so are a few others, as its bounds are on 99th percentiles: one event in hundreds that
//! the machine brings late is within them and can be the 99.9th, or stand where times lie far apart. An error
//! of the harness is there in every run.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tandem_loadtest::known_server::{Note, Script};
use tandem_loadtest::plan::{Bounds, RunPlan};
use tandem_loadtest::stream::TokenSource;
use tandem_loadtest::summary::Metric;

use crate::support::{Done, SCRIPT, Server, ms, open, plan, run, synthetic};

const TRIES: usize = 10;
/// Runs that call themselves valid and are wrong, at most.
const UNLUCKY: usize = 2;
/// The client's own delay must be below what is tested for.
const BOUNDS: Bounds = Bounds {
    lateness: Duration::from_micros(700),
    cpu_share: 1.0,
};

/// What the server's notes say that the harness should have measured, microseconds.
struct Truth {
    ttft: Vec<f64>,
    e2e: Vec<f64>,
    itl: Vec<f64>,
    gap: Vec<f64>,
    tpot: Vec<f64>,
}

fn us(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e6
}

/// Of the answers that were written whole.
fn truth(done: &Done, notes: &[Note]) -> Truth {
    let start = done.live.started().unwrap();
    let by_id: HashMap<&str, &Note> = notes
        .iter()
        .map(|note| (note.request_id.as_str(), note))
        .collect();
    let mut truth = Truth {
        ttft: vec![],
        e2e: vec![],
        itl: vec![],
        gap: vec![],
        tpot: vec![],
    };
    for record in &done.records {
        let Some(note) = by_id.get(record.request_id.as_str()) else {
            continue;
        };
        let Some(ended) = note.ended else { continue };
        let scheduled = start + Duration::from_micros(record.scheduled_us);
        let (first, last) = (note.events[0].0, note.events.last().unwrap().0);
        truth.ttft.push(us(scheduled, first));
        truth.e2e.push(us(scheduled, ended));
        for pair in note.events.windows(2) {
            let (gap, tokens) = (us(pair[0].0, pair[1].0), pair[1].1);
            truth.gap.push(gap);
            truth
                .itl
                .extend((0..tokens).map(|_| gap / f64::from(tokens)));
        }
        let later: u32 = note.events[1..].iter().map(|(_, tokens)| tokens).sum();
        truth.tpot.push(us(first, last) / f64::from(later));
    }
    truth
}

/// Whether all percentiles are right; what is wrong otherwise.
fn compare(done: &Done, truth: &Truth) -> Result<(), String> {
    for (metric, sample) in [
        (Metric::Ttft, &truth.ttft),
        (Metric::E2e, &truth.e2e),
        (Metric::Itl, &truth.itl),
        (Metric::Gap, &truth.gap),
        (Metric::Tpot, &truth.tpot),
    ] {
        let found = &done.run.phases.measured.all.metrics[&metric];
        assert_eq!(found.count(), sample.len() as u64, "{metric:?}");
        for q in [0.5, 0.9, 0.95, 0.99, 0.999] {
            let exact = tandem_loadtest::statistics::quantile(sample, q).unwrap();
            let measured = found.quantile(q).unwrap() as f64;
            if (measured - exact).abs() > (exact / 100.0).max(1000.0) {
                return Err(format!(
                    "{metric:?} {q}: {measured} us, the server wrote {exact} us"
                ));
            }
        }
    }
    Ok(())
}

/// Runs it until a run counts, and compares that one.
fn check(
    answer: impl Fn(u64, Duration) -> Script + Copy + Send + Sync + 'static,
    change: impl Fn(&mut RunPlan),
    also: impl Fn(&Done),
) {
    let mut wrong = String::new();
    let mut unlucky = 0;
    for _ in 0..TRIES {
        let server = Server::answering(move |asked| answer(asked.number, asked.at));
        let harness = server.harness().unwrap();
        let mut plan = plan(&harness, open("60@2s", "poisson"), synthetic("1", "0s"));
        plan.bounds = BOUNDS;
        change(&mut plan);
        let done = run(&harness, &plan);
        also(&done);
        let invalid = done.run.invalid.join("; ");
        match compare(&done, &truth(&done, &server.notes_of(&done.records))) {
            Ok(()) => return,
            Err(what) => wrong = format!("{wrong}\n{what}  {invalid}"),
        }
        unlucky += usize::from(invalid.is_empty());
        assert!(
            unlucky <= UNLUCKY,
            "{unlucky} runs that call themselves valid are wrong: {wrong}"
        );
    }
    panic!("no run was valid: {wrong}");
}

#[test]
fn percentiles_are_right_to_a_millisecond_or_a_hundredth() {
    let answer = |number: u64, _| Script {
        first: ms(20 + number * 7 % 90),
        gap: ms(2 + number % 11),
        tokens: 12,
        ..SCRIPT
    };
    check(
        answer,
        |_| {},
        |done| {
            assert_eq!(
                done.run
                    .phases
                    .measured
                    .token_sources
                    .keys()
                    .collect::<Vec<_>>(),
                [&TokenSource::ChunkUsage]
            );
        },
    );
}

#[test]
fn a_server_that_stalls_shows_in_all_requests_that_were_due_meanwhile() {
    // Between 0.5 s and 1.5 s nothing is answered: half of the requests wait, for half a second on average.
    let answer = |_, at: Duration| Script {
        first: ms(10)
            + if at > ms(500) {
                ms(1500).saturating_sub(at)
            } else {
                ms(0)
            },
        ..SCRIPT
    };
    check(
        answer,
        |_| {},
        |done| {
            let ttft = &done.run.phases.measured.all.metrics[&Metric::Ttft];
            assert!(
                ttft.quantile(0.7) > Some(300_000),
                "{:?}",
                ttft.quantile(0.7)
            );
            assert!(ttft.quantile(0.2) < Some(200_000));
            assert!(done.run.client.peak_in_flight > 40);
        },
    );
}

#[test]
fn tokens_that_come_in_bundles_share_their_gap() {
    let answer = |number: u64, _| Script {
        gap: ms(20 + number % 10),
        tokens: 26,
        tokens_per_event: 4,
        ..SCRIPT
    };
    check(
        answer,
        |_| {},
        |done| {
            let metrics = &done.run.phases.measured.all.metrics;
            let (itl, gap) = (
                metrics[&Metric::Itl].quantile(0.5),
                metrics[&Metric::Gap].quantile(0.5),
            );
            assert!(itl < Some(10_000) && gap > Some(15_000), "{itl:?} {gap:?}");
        },
    );
}

#[test]
fn dropped_connections_are_failures_and_the_others_times_stay_right() {
    use tandem_loadtest::known_server::Fault;
    let answer = |number: u64, _| Script {
        fault: match number % 5 {
            1 => Some(Fault::Drop),
            3 => Some(Fault::DropAfter(2)),
            _ => None,
        },
        ..SCRIPT
    };
    check(
        answer,
        |_| {},
        |done| {
            let counts = done.run.phases.measured.all.counts;
            assert!(counts.failed >= 2 * counts.all() / 5 - 2, "{counts:?}");
            assert_eq!(counts.failed + counts.attained, counts.all());
        },
    );
}
