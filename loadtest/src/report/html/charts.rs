//! The plots of a report.

mod together;

pub(super) use together::of_tests;

use tandem_chart::{Axis, Chart, Plot, Row, Segment, Series, Stack, Waterfall};

use crate::record::{Outcome, Record};
use crate::report::table::number;
use crate::results::{LoadPoint, Place, Results, Run, over_repeats, places};
use crate::search::wilson;
use crate::slo::{Slo, Slos};
use crate::summary::{Metric, Summary};

/// Loads of which a plot of distributions has a line each.
const MOST_LINES: usize = 6;
/// Steps of a timeline.
const MOST_STEPS: usize = 120;
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// What all runs of a test show together.
pub(super) fn of_test(results: &Results) -> Vec<String> {
    let points = points(results);
    let mut charts = Vec::new();
    if points.iter().any(|at| at.place.setting.is_some()) {
        charts.extend(together::settings(&points));
    } else if points.len() > 1 {
        for metric in [Metric::Ttft, Metric::Tpot] {
            charts.push(by_load(&points, metric, &results.slos).svg());
        }
        charts.push(goodput(&points, results).svg());
        if !results.slos.is_empty() {
            charts.push(attainment(&points, results).svg());
        }
    }
    let metrics = [Metric::Ttft, Metric::Tpot, Metric::Itl, Metric::E2e];
    charts.extend(
        metrics
            .into_iter()
            .filter_map(|metric| cumulative(results, metric))
            .map(|plot| plot.svg()),
    );
    charts
}

/// What one run shows: second by second, and its slowest requests.
pub(super) fn of_run(run: &Run, results: &Results) -> Vec<String> {
    let mut charts = Vec::new();
    if !run.timeline.is_empty() {
        charts.push(requests_by_second(run).svg());
        charts.push(tokens_by_second(run).svg());
    }
    let title = "The slowest requests";
    charts.extend(waterfall(title, &run.slowest, &results.slos).map(|chart| chart.svg()));
    charts
}

/// The runs at one load, and of one setting.
struct AtLoad<'a> {
    place: Place,
    runs: Vec<&'a Run>,
}

/// A value, and how far from it the true one may be.
struct Value {
    value: f64,
    low: f64,
    high: f64,
}

impl AtLoad<'_> {
    const fn x(&self) -> f64 {
        match self.place.load {
            LoadPoint::Rate(value) | LoadPoint::TraceSpeed(value) => value,
            LoadPoint::Concurrency(value) => value as f64,
        }
    }

    fn mean(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<Value> {
        let values: Vec<f64> = self.runs.iter().filter_map(|run| of(run)).collect();
        let interval = over_repeats(&values)?;
        let half = interval.half_width.unwrap_or(0.0);
        Some(Value {
            value: interval.mean,
            low: (interval.mean - half).max(0.0),
            high: interval.mean + half,
        })
    }

    /// Of a time, milliseconds.
    fn quantile(&self, metric: Metric, q: f64) -> Option<Value> {
        self.mean(|run| {
            let found = run.phases.measured.all.metrics.get(&metric)?;
            found.quantile(q).map(|us| us as f64 / 1000.0)
        })
    }

    fn goodput(&self) -> Option<Value> {
        self.mean(|run| Some(run.figures.goodput_per_s))
    }

    fn sum(&self) -> Summary {
        let mut sum = Summary::default();
        self.runs
            .iter()
            .for_each(|run| sum.add(&run.phases.measured));
        sum
    }
}

/// The loads of a test, lightest first; none where they are of several kinds.
fn points(results: &Results) -> Vec<AtLoad<'_>> {
    let mut points: Vec<AtLoad<'_>> = places(&results.runs)
        .into_iter()
        .map(|place| AtLoad {
            runs: results.runs.iter().filter(|run| place.holds(run)).collect(),
            place,
        })
        .collect();
    let kind = |at: &AtLoad<'_>| std::mem::discriminant(&at.place.load);
    let first = points.first().map(kind);
    if points.iter().any(|at| Some(kind(at)) != first) {
        return Vec::new();
    }
    // Settings stay in their order.
    if !points.iter().any(|at| at.place.setting.is_some()) {
        points.sort_by(|a, b| a.x().total_cmp(&b.x()));
    }
    points
}

/// An axis for these values: logarithmic where they are far apart.
fn axis(label: &str, values: impl Iterator<Item = f64>) -> Axis {
    let (low, high) = values
        .filter(|value| *value > 0.0 && value.is_finite())
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    if high > low * 12.0 {
        Axis::log(label)
    } else {
        Axis::linear(label)
    }
}

fn x_axis(points: &[AtLoad<'_>]) -> Axis {
    let label = match points.first().map(|at| at.place.load) {
        Some(LoadPoint::Concurrency(_)) => "requests at a time",
        Some(LoadPoint::TraceSpeed(_)) => "speed of the trace",
        _ => "offered rate, requests/s",
    };
    axis(label, points.iter().map(AtLoad::x))
}

fn by_load(points: &[AtLoad<'_>], metric: Metric, slos: &Slos) -> Plot {
    let mut series = Vec::new();
    let mut values = Vec::new();
    for (name, q) in PERCENTILES {
        let found: Vec<(f64, Value)> = points
            .iter()
            .filter_map(|at| Some((at.x(), at.quantile(metric, q)?)))
            .collect();
        values.extend(
            found
                .iter()
                .flat_map(|(_, value)| [value.value, value.high]),
        );
        series.push(line(name, &found));
    }
    let name = metric.name().to_uppercase();
    let plot = Plot::new(
        format!("{name} by load"),
        x_axis(points),
        axis("ms", values.into_iter()),
    );
    let plot = series.into_iter().fold(plot, Plot::series);
    limits(slos, metric)
        .into_iter()
        .fold(plot, |plot, (name, ms)| plot.limit(name, ms))
}

/// Points with whiskers where there are repeats.
fn line(name: &str, found: &[(f64, Value)]) -> Series {
    let series = Series::line(name, found.iter().map(|(x, value)| (*x, value.value)));
    match found.iter().any(|(_, value)| value.high > value.low) {
        true => series.whiskers(found.iter().map(|(_, value)| (value.low, value.high))),
        false => series,
    }
}

/// The SLO's limits of a metric, milliseconds.
fn limits(slos: &Slos, metric: Metric) -> Vec<(String, f64)> {
    let of = |slo: &Slo| match metric {
        Metric::Ttft => slo.ttft_us,
        Metric::Tpot => slo.tpot_us,
        Metric::Itl => slo.itl_us,
        Metric::E2e => slo.e2e_us,
        _ => None,
    };
    let every = slos.every.iter().map(|slo| (String::new(), slo));
    let classes = slos
        .classes
        .iter()
        .map(|(class, slo)| (format!("{class}: "), slo));
    let named = every.chain(classes).filter_map(|(name, slo)| {
        let ms = of(slo)? as f64 / 1000.0;
        Some((format!("{name}SLO {} ms", number(ms)), ms))
    });
    named.collect()
}

/// What was attained of what was offered.
fn goodput(points: &[AtLoad<'_>], results: &Results) -> Plot {
    let offered = |at: &AtLoad<'_>| {
        at.mean(|run| Some(run.figures.offered_per_s))
            .map(|value| value.value)
    };
    let pair = |at: &AtLoad<'_>| Some((at.x(), at.goodput()?));
    let attained: Vec<(f64, Value)> = points.iter().filter_map(pair).collect();
    let name = if results.slos.is_empty() {
        "answered"
    } else {
        "within the SLO"
    };
    let plot = Plot::new(
        "Goodput by load",
        x_axis(points),
        Axis::linear("requests/s"),
    );
    let asked = points.iter().filter_map(|at| Some((at.x(), offered(at)?)));
    plot.series(Series::reference("offered", asked))
        .series(line(name, &attained))
}

/// The share within the SLO, with Wilson's interval, and what a search wanted of it.
fn attainment(points: &[AtLoad<'_>], results: &Results) -> Plot {
    let share = |at: &AtLoad<'_>| {
        let counts = at.sum().all.counts;
        let (low, high) = wilson(counts.attained, counts.all());
        let value = counts.attained as f64 / counts.all().max(1) as f64;
        (at.x(), Value { value, low, high })
    };
    let found: Vec<(f64, Value)> = points.iter().map(share).map(percent).collect();
    let axis = Axis::linear("% of requests").to(100.0);
    let plot = Plot::new("Within the SLO by load", x_axis(points), axis).series(line("", &found));
    match &results.search {
        Some(found) => plot.limit("wanted", found.plan.attainment * 100.0),
        None => plot,
    }
}

fn percent((x, value): (f64, Value)) -> (f64, Value) {
    let value = Value {
        value: value.value * 100.0,
        low: value.low * 100.0,
        high: value.high * 100.0,
    };
    (x, value)
}

/// Some of the loads, evenly chosen, the first and the last among them.
fn some<'a, 'b>(points: &'b [AtLoad<'a>]) -> Vec<&'b AtLoad<'a>> {
    let last = points.len().saturating_sub(1);
    if points.len() <= MOST_LINES {
        return points.iter().collect();
    }
    (0..MOST_LINES)
        .map(|i| &points[i * last / (MOST_LINES - 1)])
        .collect()
}

/// Which share of all took no longer than this.
fn cumulative(results: &Results, metric: Metric) -> Option<Plot> {
    let name = metric.name().to_uppercase();
    let all = match points(results) {
        points if points.is_empty() => return None,
        points => points,
    };
    let left_out = if all.len() > MOST_LINES {
        ", some loads"
    } else {
        ""
    };
    let axis = Axis::linear("% of all").to(100.0);
    let mut plot = Plot::new(
        format!("Distribution of {name}{left_out}"),
        Axis::log("ms"),
        axis,
    );
    let mut any = false;
    for at in some(&all) {
        let sum = at.sum();
        let Some(found) = sum.all.metrics.get(&metric) else {
            continue;
        };
        // What took no measurable time stands at a microsecond.
        let points = found
            .cumulative()
            .into_iter()
            .map(|(us, share)| (us.max(1) as f64 / 1000.0, share * 100.0));
        plot = plot.series(Series::step(at.place.to_string(), points).without_markers());
        any |= found.count() > 0;
    }
    let plot = limits(&results.slos, metric)
        .into_iter()
        .fold(plot, |plot, (name, ms)| plot.x_limit(name, ms));
    any.then_some(plot)
}

/// Seconds that are one step of a timeline.
fn stride(run: &Run) -> usize {
    run.timeline.len().div_ceil(MOST_STEPS).max(1)
}

/// A figure of each step, per second.
fn steps(run: &Run, of: impl Fn(&crate::results::Second) -> u64) -> Vec<f64> {
    let chunks = run.timeline.chunks(stride(run));
    chunks
        .map(|chunk| chunk.iter().map(&of).sum::<u64>() as f64 / chunk.len() as f64)
        .collect()
}

fn requests_by_second(run: &Run) -> Stack {
    let step = stride(run) as f64;
    Stack::new(
        "Requests by time",
        Axis::linear("s"),
        Axis::linear("ended each second"),
        0.0,
        step,
    )
    .layer("answered", steps(run, |second| second.answered))
    .layer("failed or rejected", steps(run, |second| second.failed))
    .outline("scheduled", steps(run, |second| second.scheduled))
}

fn tokens_by_second(run: &Run) -> Stack {
    let step = stride(run) as f64;
    Stack::new(
        "Output tokens by time",
        Axis::linear("s"),
        Axis::linear("tokens each second"),
        0.0,
        step,
    )
    .layer("", steps(run, |second| second.tokens))
}

const PARTS: [&str; 5] = [
    "not begun",
    "connecting",
    "to the answer's head",
    "to the first token",
    "answer",
];

/// Where the time of some requests went; `None` without one.
pub(super) fn waterfall(title: &str, records: &[Record], slos: &Slos) -> Option<Waterfall> {
    if records.is_empty() {
        return None;
    }
    let chart = Waterfall::new(title, Axis::linear("ms from the scheduled send"), PARTS);
    let chart = records.iter().map(row).fold(chart, Waterfall::row);
    let limits = limits(slos, Metric::Ttft).into_iter();
    Some(limits.fold(chart, |chart, (name, ms)| {
        chart.limit(format!("TTFT {name}"), ms)
    }))
}

fn row(record: &Record) -> Row {
    let end = record.e2e_us;
    let moments = [
        Some(record.lateness_us),
        record.connected_us,
        record.head_us,
        record.ttft_us,
        Some(end),
    ];
    let mut from = 0;
    let mut segments = Vec::new();
    for (kind, moment) in moments.into_iter().enumerate() {
        // A part that did not come ends nothing: its time is in the next one.
        let Some(to) = moment.map(|at| at.clamp(from, end)) else {
            continue;
        };
        if to > from {
            segments.push(Segment {
                kind,
                from: from as f64 / 1000.0,
                to: to as f64 / 1000.0,
            });
        }
        from = to;
    }
    let what = match record.outcome {
        Outcome::Attained => "",
        Outcome::Late => ", late",
        Outcome::Rejected => ", rejected",
        Outcome::Failed => ", failed",
        Outcome::Unsent => ", not sent",
    };
    let turn = if record.turn > 0 {
        format!(".{}", record.turn)
    } else {
        String::new()
    };
    Row {
        name: format!("#{}{turn}", record.index),
        note: format!("{} ms{what}", number(end as f64 / 1000.0)),
        segments,
    }
}

#[cfg(test)]
mod tests;
