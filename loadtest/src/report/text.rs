//! The summary that a terminal shows.

use std::fmt::Write;

use super::server::{server, troubles};
use super::table::{ms, number, percent, table};
use crate::assertion::Unit;
use crate::distribution::{Distribution, SHOWN};
use crate::results::{Results, Run, RunEnd, over_repeats, places};
use crate::search::{Ended, Found, wilson};
use crate::stream::TokenSource;
use crate::summary::{Group, Metric, Summary};

/// All of it: one run in full, several as a table, then what a search found and what was asserted.
#[must_use]
pub fn text(results: &Results) -> String {
    let mut text = format!("{}  {}\n", results.url, results.model);
    match results.runs.as_slice() {
        [] => text += "no run\n",
        [run] => text += &one(run, results),
        runs => {
            text += &several(runs);
            text += &repeats(runs);
            for run in runs {
                text += &remarks(run, &format!("{}: ", run.place()));
            }
        }
    }
    if let Some(found) = &results.search {
        text += &search(found);
    }
    for verdict in &results.assertions {
        let holds = if verdict.holds { "holds" } else { "MISSED" };
        let found = verdict.found.map_or("no such figure".to_owned(), |found| {
            shown(found, verdict.unit)
        });
        let _ = writeln!(
            text,
            "assert      {} {holds} ({found}; {})",
            verdict.assertion, verdict.load
        );
    }
    text
}

pub(super) fn shown(found: f64, unit: Unit) -> String {
    match unit {
        Unit::Us => format!("{} ms", ms(Some(found))),
        Unit::Share => percent(found),
        Unit::Tokens => number(found),
        Unit::PerSecond => format!("{} a second", number(found)),
    }
}

fn one(run: &Run, results: &Results) -> String {
    let measured = &run.phases.measured;
    let figures = &run.figures;
    let mut text = format!("load        {}, seed {}\n", run.place(), run.seed);
    if figures.requests == 0 {
        let _ = writeln!(text, "requests    {NOTHING}");
        return text + &server(&run.server) + &remarks(run, "");
    }
    let limited = !results.slos.is_empty();
    let slo = match limited {
        false => String::new(),
        true => format!("  (SLO {})", slos(results)),
    };
    let _ = writeln!(
        text,
        "requests    {} in {} s: {}{slo}",
        figures.requests,
        number(figures.span_s),
        counts(&measured.all, limited)
    );
    if limited {
        let _ = writeln!(text, "goodput     {}", goodput(run, &measured.all));
    }
    let _ = writeln!(
        text,
        "throughput  {} answers/s, {} output tokens/s, {} prompt tokens/s, {} of those cached",
        number(figures.answered_per_s),
        number(figures.output_tokens_per_s),
        number(figures.input_tokens_per_s),
        percent(figures.cached_share)
    );
    let _ = writeln!(text, "tokens      {}", sources(measured));
    text += &table(&distributions(&measured.all));
    for (class, group) in &measured.classes {
        let _ = writeln!(text, "\n{class}: {}", of_class(run, class, group, results));
        text += &table(&distributions(group));
    }
    text += &client(run);
    text += &server(&run.server);
    text + &remarks(run, "")
}

/// Of a run whose measured phase had no request.
pub(super) const NOTHING: &str = "nothing was measured";

/// How much of a group counts.
pub(super) fn goodput(run: &Run, group: &Group) -> String {
    let (attained, all) = (group.counts.attained, group.counts.all());
    let (low, high) = wilson(attained, all);
    format!(
        "{} requests/s, attainment {} (95 %: {} to {})",
        number(run.goodput_per_s(group)),
        percent(attained as f64 / all.max(1) as f64),
        percent(low),
        percent(high)
    )
}

/// What a class came to, and how much of it counts where it has limits.
pub(super) fn of_class(run: &Run, class: &str, group: &Group, results: &Results) -> String {
    let limited = results.slos.of(class).is_some();
    let mut text = counts(group, limited);
    if limited && group.counts.all() > 0 {
        let _ = write!(text, "; goodput {}", goodput(run, group));
    }
    text
}

pub(super) fn slos(results: &Results) -> String {
    let every = results.slos.every.iter().map(ToString::to_string);
    let classes = results
        .slos
        .classes
        .iter()
        .map(|(class, slo)| format!("{class}:{slo}"));
    every.chain(classes).collect::<Vec<_>>().join(" ")
}

/// What requests came to; without limits none is late.
pub(super) fn counts(group: &Group, limited: bool) -> String {
    let counts = &group.counts;
    let mut text = match limited {
        true => format!("{} attained, {} late", counts.attained, counts.late),
        false => format!("{} answered", counts.attained),
    };
    let _ = write!(
        text,
        ", {} rejected, {} failed",
        counts.rejected, counts.failed
    );
    if counts.unsent > 0 {
        let _ = write!(text, ", {} not sent", counts.unsent);
    }
    text
}

pub(super) fn sources(measured: &Summary) -> String {
    let named = measured.token_sources.iter().map(|(source, count)| {
        let name = match source {
            TokenSource::ChunkUsage => "usage with every event",
            TokenSource::Usage => "usage, one token an event",
            TokenSource::UsageSpread => "usage, spread evenly over the events (ITL is an estimate)",
            TokenSource::Chunks => "no usage: events counted as tokens",
        };
        match measured.token_sources.len() {
            1 => format!("by {name}"),
            _ => format!("by {name}: {count} answers"),
        }
    });
    let text = named.collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        "none".to_owned()
    } else {
        text
    }
}

pub(super) fn distributions(group: &Group) -> Vec<Vec<String>> {
    let mut head = vec![String::new()];
    head.extend(SHOWN.iter().map(|(name, _)| (*name).to_owned()));
    head.extend(["max".to_owned(), "mean".to_owned()]);
    let mut rows = vec![head];
    for metric in Metric::ALL {
        if let Some(found) = group.metrics.get(&metric) {
            rows.push(distribution(metric, found));
        }
    }
    rows
}

fn distribution(metric: Metric, found: &Distribution) -> Vec<String> {
    let (name, shown): (String, fn(Option<f64>) -> String) = match metric.is_time() {
        true => (format!("{} ms", metric.name().to_uppercase()), ms),
        false => (metric.name().replace('_', " "), |n| {
            n.map_or("-".to_owned(), number)
        }),
    };
    let mut row = vec![name];
    let quantiles = SHOWN.iter().map(|(_, q)| found.quantile(*q));
    row.extend(
        quantiles
            .chain([found.max()])
            .map(|v| shown(v.map(|v| v as f64))),
    );
    row.push(shown(found.mean()));
    row
}

fn client(run: &Run) -> String {
    let client = &run.client;
    let p99 = |delays: &Distribution| ms(delays.quantile(0.99).map(|us| us as f64));
    format!(
        "client      {} of {} cores, {} ms CPU a request, {} us an event; begun {} ms late and noticing {} ms late at \
         p99; {} under way at most\n",
        percent(client.cpu_share),
        client.cores,
        ms(client.cpu_us_per_request),
        client.cpu_us_per_event.map_or("-".to_owned(), number),
        p99(&client.lateness),
        p99(&client.loop_delay),
        client.peak_in_flight
    )
}

/// What else has to be known of a run.
fn remarks(run: &Run, of: &str) -> String {
    let mut text = String::new();
    for (kind, failures) in &run.phases.measured.failures {
        let kind = serde_json::to_value(kind).unwrap_or_default();
        let kind = kind.as_str().unwrap_or("").replace('_', " ");
        let _ = writeln!(
            text,
            "{of}{} x {kind}: {}",
            failures.count, failures.example
        );
    }
    let apart = [
        ("warm-up", &run.phases.warm_up),
        ("cool-down", &run.phases.cool_down),
    ];
    for (name, phase) in apart {
        let requests = phase.all.counts.all();
        if requests > 0 && of.is_empty() {
            let _ = writeln!(text, "{name}: {requests} requests, in none of the figures");
        }
    }
    if run.phases.measured.clipped > 0 {
        let clipped = run.phases.measured.clipped;
        let _ = writeln!(
            text,
            "{of}{clipped} requests were shortened to fit the model's context"
        );
    }
    match run.ended {
        RunEnd::Complete => {}
        RunEnd::Interrupted => {
            let _ = writeln!(
                text,
                "{of}INTERRUPTED: {} requests under way are in no figure",
                run.cut
            );
        }
        RunEnd::ServerGone => {
            let _ = writeln!(
                text,
                "{of}THE SERVER IS GONE: the figures are of what came before"
            );
        }
    }
    text += &troubles(&run.server, of);
    for note in &run.notes {
        let _ = writeln!(text, "{of}NOTE: {note}");
    }
    for why in &run.invalid {
        let _ = writeln!(text, "{of}INVALID: {why}");
    }
    text
}

fn several(runs: &[Run]) -> String {
    let head = [
        "LOAD",
        "REQUESTS",
        "GOODPUT/S",
        "ATTAINED",
        "LATE",
        "REJECTED",
        "FAILED",
        "TTFT p50 ms",
        "p99",
        "TPOT p50 ms",
        "p99",
        "ITL p99",
        "TOKENS/S",
        "",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for run in runs {
        let (figures, measured) = (&run.figures, &run.phases.measured);
        let counts = &measured.all.counts;
        if figures.requests == 0 {
            let mut row = vec![run.load.to_string(), NOTHING.to_owned()];
            row.resize(head.len() - 1, String::new());
            row.push(trust(run));
            rows.push(row);
            continue;
        }
        let share = |n: u64| percent(n as f64 / figures.requests as f64);
        let at = |metric, q| {
            let found = measured.all.metrics.get(&metric);
            ms(found
                .and_then(|found| found.quantile(q))
                .map(|us| us as f64))
        };
        rows.push(vec![
            run.place().to_string(),
            figures.requests.to_string(),
            number(figures.goodput_per_s),
            share(counts.attained),
            share(counts.late),
            share(counts.rejected),
            share(counts.failed + counts.unsent),
            at(Metric::Ttft, 0.5),
            at(Metric::Ttft, 0.99),
            at(Metric::Tpot, 0.5),
            at(Metric::Tpot, 0.99),
            at(Metric::Itl, 0.99),
            number(figures.output_tokens_per_s),
            trust(run),
        ]);
    }
    table(&rows)
}

fn trust(run: &Run) -> String {
    let word = if run.invalid.is_empty() {
        ""
    } else {
        "INVALID"
    };
    word.to_owned()
}

/// Means over the repeats at each load, with their intervals.
fn repeats(runs: &[Run]) -> String {
    let mut text = String::new();
    for place in places(runs) {
        let same: Vec<&Run> = runs.iter().filter(|run| place.holds(run)).collect();
        if same.len() < 2 {
            continue;
        }
        let _ = write!(text, "{place}, {} repeats (95 %):", same.len());
        for (metric, q, name) in [
            (Metric::Ttft, 0.5, "TTFT p50"),
            (Metric::Ttft, 0.99, "TTFT p99"),
            (Metric::Tpot, 0.5, "TPOT p50"),
            (Metric::Tpot, 0.99, "TPOT p99"),
        ] {
            let quantile = |run: &&Run| run.phases.measured.all.metrics.get(&metric)?.quantile(q);
            let values: Vec<f64> = same
                .iter()
                .filter_map(quantile)
                .map(|us| us as f64)
                .collect();
            if let Some(interval) = over_repeats(&values) {
                let (mean, half) = (ms(Some(interval.mean)), ms(interval.half_width));
                let _ = write!(text, " {name} {mean} ± {half} ms");
            }
        }
        text.push('\n');
    }
    text
}

pub(super) fn search(found: &Found) -> String {
    let why = match found.ended {
        Ended::Converged => "the bounds are within the tolerance",
        Ended::AtHighest => "even the highest load that was to be tried met it: raise --search-max",
        Ended::NoneMet => {
            "not even the lowest load met it: no load does, or the SLO is too tight for one request alone"
        }
        Ended::OutOfRuns => "after --search-runs",
        Ended::ClientLimit => "the client could not keep up with more: use more hosts",
        Ended::Interrupted => "it was interrupted",
        Ended::ServerGone => "the server was gone",
    };
    let best = found.best.map_or("none".to_owned(), number);
    let too_much = found.too_much.map_or(String::new(), |load| {
        format!(", {} is too much", number(load))
    });
    let unsure = found.probes.iter().filter(|probe| probe.undecided).count();
    let mut text = format!(
        "search      highest load with {} of requests within the SLO: {best}{too_much} ({why})\n",
        percent(found.plan.attainment)
    );
    if unsure > 0 {
        let _ = writeln!(
            text,
            "            {unsure} load(s) were too close to call at 95 %: the share itself decided"
        );
    }
    text
}

#[cfg(test)]
mod tests;
