//! Results of several processes or hosts that each sent a part of one test.

use crate::record::keep_slowest;

use super::{Figures, Results, Run, RunEnd};

/// Why results are not parts of one test.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Fewer than two.
    #[error("want two results at least, found {0}")]
    TooFew(usize),
    /// Another test.
    #[error(
        "result {number} is of another test: its {what} differ(s): {found}, in the first one {first}"
    )]
    Other {
        /// Which one, from 1.
        number: usize,
        /// What differs.
        what: String,
        /// There.
        found: String,
        /// In the first one.
        first: String,
    },
    /// The same part twice.
    #[error(
        "result {number} holds part {part}, which another one holds too: start processes with --part 1/N, 2/N..."
    )]
    Twice {
        /// Which one, from 1.
        number: usize,
        /// The part.
        part: String,
    },
    /// A search goes its own way in each process.
    #[error(
        "result {0} is a search: each process goes its own way in it, and their loads do not add up"
    )]
    Search(usize),
}

/// Settings in which parts of one test, and tests that are compared, may differ.
pub(crate) const OWN_SETTINGS: [&str; 12] = [
    "part",
    "url",
    "json",
    "csv",
    "html",
    "requests-file",
    "start-at",
    "quiet",
    "live",
    "config",
    "metrics",
    "metrics-match",
];

/// One result of all parts.
///
/// # Errors
///
/// [`MergeError`]: they are not parts of one test.
pub fn merge(parts: &[Results]) -> Result<Results, MergeError> {
    let [first, others @ ..] = parts else {
        return Err(MergeError::TooFew(0));
    };
    if others.is_empty() {
        return Err(MergeError::TooFew(1));
    }
    if let Some(at) = parts.iter().position(|part| part.search.is_some()) {
        return Err(MergeError::Search(at + 1));
    }
    let mut sum = first.clone();
    sum.assertions.clear();
    for own in OWN_SETTINGS {
        sum.settings.remove(own);
    }
    for (i, other) in others.iter().enumerate() {
        same_test(first, other, i + 2)?;
        for (run, more) in sum.runs.iter_mut().zip(&other.runs) {
            add(run, more, i + 2)?;
        }
    }
    Ok(sum)
}

fn same_test(first: &Results, other: &Results, number: usize) -> Result<(), MergeError> {
    let differ = |what: &str, found: &str, first: &str| {
        Err(MergeError::Other {
            number,
            what: what.to_owned(),
            found: found.to_owned(),
            first: first.to_owned(),
        })
    };
    if first.model != other.model {
        return differ("model", &other.model, &first.model);
    }
    let keys = first.settings.keys().chain(other.settings.keys());
    for key in keys.filter(|key| !OWN_SETTINGS.contains(&key.as_str())) {
        let (a, b) = (first.settings.get(key), other.settings.get(key));
        if a != b {
            let shown = |value: Option<&String>| value.map_or("not set".to_owned(), Clone::clone);
            return differ(&format!("--{key}"), &shown(b), &shown(a));
        }
    }
    let runs = |results: &Results| results.runs.len().to_string();
    if runs(first) != runs(other) {
        return differ("number of runs", &runs(other), &runs(first));
    }
    Ok(())
}

fn add(run: &mut Run, more: &Run, number: usize) -> Result<(), MergeError> {
    if let Some(part) = more.parts.iter().find(|part| run.parts.contains(part)) {
        let part = format!("{}/{}", part.number, part.of);
        return Err(MergeError::Twice { number, part });
    }
    run.parts.extend(&more.parts);
    run.window_s = run
        .window_s
        .into_iter()
        .chain(more.window_s)
        .reduce(f64::max);
    run.cut += more.cut;
    run.invalid.extend(
        more.invalid
            .iter()
            .map(|why| format!("result {number}: {why}")),
    );
    let notes = more.notes.iter();
    run.notes
        .extend(notes.map(|note| format!("result {number}: {note}")));
    run.started_unix_ms = run.started_unix_ms.min(more.started_unix_ms);
    if run.ended == RunEnd::Complete {
        run.ended = more.ended;
    }
    run.phases.add(&more.phases);
    let (client, other) = (&mut run.client, &more.client);
    client.cores += other.cores;
    client.wall_s = client.wall_s.max(other.wall_s);
    client.cpu_s += other.cpu_s;
    // The busiest one's: a mean would hide it.
    client.cpu_share = client.cpu_share.max(other.cpu_share);
    client.lateness.add(&other.lateness);
    client.loop_delay.add(&other.loop_delay);
    client.peak_in_flight += other.peak_in_flight;
    client.per(run.phases.requests(), run.phases.events());
    for (i, second) in more.timeline.iter().enumerate() {
        if run.timeline.len() == i {
            run.timeline.push(*second);
            continue;
        }
        let sum = &mut run.timeline[i];
        sum.scheduled += second.scheduled;
        sum.answered += second.answered;
        sum.failed += second.failed;
        sum.events += second.events;
        sum.tokens += second.tokens;
    }
    for record in &more.slowest {
        keep_slowest(&mut run.slowest, record);
    }
    // All parts press the same servers: what one saw of them, all saw.
    for metrics in &more.server {
        if !run.server.iter().any(|known| known.url == metrics.url) {
            run.server.push(metrics.clone());
        }
    }
    run.figures = Figures::of(&run.phases.measured, run.window_s);
    Ok(())
}

#[cfg(test)]
mod tests;
