//! Results of servers that never were.

use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, LogNormal};

use crate::record::{Outcome, Phase, Record};
use crate::results::{
    ClientFigures, FORMAT, Figures, LoadPoint, Part, Results, Run, RunEnd, Second,
};
use crate::search::{Ended, Found, Probe, SearchPlan};
use crate::slo::Slos;
use crate::summary::{Metric, Phases};

/// A server in which a time is so many times as long, with some of the requests failing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) requests: u64,
    pub(crate) slower: f64,
    pub(crate) failing: f64,
}

/// One run of it: times scatter log-normally, the tokens of an answer stay together.
pub(crate) fn run(rng: &mut SmallRng, load: LoadPoint, repeat: u32, made: Made) -> Run {
    let mut phases = Phases::default();
    let measured = &mut phases.measured;
    let around = |rng: &mut SmallRng, median: f64, sigma: f64| {
        let scatter = LogNormal::new(f64::ln(median * made.slower), sigma).unwrap();
        scatter.sample(rng)
    };
    for _ in 0..made.requests {
        if rng.random::<f64>() < made.failing {
            measured.all.counts.failed += 1;
            continue;
        }
        let ttft = around(rng, 50_000.0, 0.5);
        let tpot = around(rng, 20_000.0, 0.2);
        let tokens = rng.random_range(10..30_u64);
        let mut add = |metric, value: f64, n| {
            let found = measured.all.metrics.entry(metric).or_default();
            found.record_n(value.round() as u64, n);
        };
        add(Metric::Ttft, ttft, 1);
        add(Metric::Tpot, tpot, 1);
        add(Metric::Itl, tpot, tokens - 1);
        add(Metric::Gap, tpot, tokens - 1);
        add(Metric::E2e, ttft + tpot * (tokens - 1) as f64, 1);
        add(Metric::OutputTokens, tokens as f64, 1);
        measured.output_tokens += tokens;
        measured.events += tokens;
        match ttft < 100_000.0 {
            true => measured.all.counts.attained += 1,
            false => measured.all.counts.late += 1,
        }
    }
    let seconds = made.requests as f64 / 10.0;
    (measured.first_us, measured.last_us) = (Some(0), Some((seconds * 1e6) as u64));
    let second = Second {
        scheduled: 10,
        answered: 10,
        failed: 0,
        events: 200,
        tokens: 200,
    };
    Run {
        load,
        setting: None,
        repeat,
        seed: 1,
        parts: vec![Part { number: 1, of: 1 }],
        started_unix_ms: 0,
        window_s: Some(seconds),
        ended: RunEnd::Complete,
        cut: 0,
        invalid: Vec::new(),
        notes: Vec::new(),
        figures: Figures::of(&phases.measured, Some(seconds)),
        client: ClientFigures::default(),
        phases,
        timeline: vec![second; seconds as usize],
        slowest: Vec::new(),
        server: Vec::new(),
    }
}

/// A measured request that was answered whole after so many microseconds.
pub(crate) fn record(index: u64, e2e_us: u64) -> Record {
    Record {
        index,
        turn: 0,
        class: "default".to_owned(),
        phase: Phase::Measured,
        request_id: format!("r{index}"),
        scheduled_us: 0,
        lateness_us: 0,
        connected_us: None,
        head_us: None,
        ttft_us: None,
        tpot_us: None,
        itl_p99_us: None,
        longest_gap_us: None,
        e2e_us,
        wanted_input_tokens: None,
        wanted_output_tokens: 10,
        input_tokens: None,
        cached_tokens: None,
        output_tokens: 10,
        token_source: None,
        events: 10,
        clipped: false,
        status: Some(200),
        outcome: Outcome::Attained,
        failure: None,
        finish_reason: None,
    }
}

/// A search for a rate that ended between these, with the step that found the first.
pub(crate) fn search(best: f64, too_much: f64) -> Found {
    Found {
        plan: SearchPlan {
            start: 1.0,
            lowest: 0.1,
            highest: 100.0,
            attainment: 0.9,
            tolerance: 0.05,
            most_runs: 40,
            whole: false,
        },
        best: Some(best),
        too_much: Some(too_much),
        ended: Ended::Converged,
        probes: vec![Probe {
            load: best,
            attained: 190,
            total: 200,
            interval: (0.91, 0.97),
            met: true,
            undecided: false,
            tries: 1,
        }],
    }
}

/// A test of these runs.
pub(crate) fn results(runs: Vec<Run>) -> Results {
    let mut slos = Slos::default();
    slos.add("ttft=100ms").unwrap();
    Results {
        format: FORMAT.to_owned(),
        version: "1".to_owned(),
        url: "http://server".to_owned(),
        model: "m".to_owned(),
        settings: std::iter::once(("rate".to_owned(), "10".to_owned())).collect(),
        slos,
        runs,
        search: None,
        assertions: Vec::new(),
    }
}
