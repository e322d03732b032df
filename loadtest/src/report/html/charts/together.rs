//! Several tests, or several settings of a server, in one plot.

use tandem_chart::{Axis, Bars, Chart, Plot};

use super::{AtLoad, PERCENTILES, Value, axis, line, points};
use crate::report::html::Shown;
use crate::summary::Metric;

/// A name, and what there is of it at each load.
type Named<'a, 'b> = (&'a str, Vec<&'b AtLoad<'b>>);

/// A median and a p99 of TTFT and TPOT, and goodput, of each test by load.
pub(in super::super) fn of_tests(tests: &[Shown<'_>]) -> Vec<String> {
    let all: Vec<(&str, Vec<AtLoad<'_>>)> = tests
        .iter()
        .map(|test| (test.name, points(test.results)))
        .collect();
    let all: Vec<Named<'_, '_>> = all
        .iter()
        .map(|(name, points)| (*name, points.iter().collect()))
        .collect();
    by_load(&all, "of all tests")
}

/// What each setting gives: bars where there is one load, lines by load where there are several.
pub(super) fn settings(points: &[AtLoad<'_>]) -> Vec<String> {
    let mut all: Vec<Named<'_, '_>> = Vec::new();
    for at in points {
        let name = at.place.setting.as_deref().unwrap_or("");
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, of)) => of.push(at),
            None => all.push((name, vec![at])),
        }
    }
    for (_, of) in &mut all {
        of.sort_by(|a, b| a.x().total_cmp(&b.x()));
    }
    if all.iter().any(|(_, of)| of.len() > 1) {
        return by_load(&all, "by setting and load");
    }
    let times = [Metric::Ttft, Metric::Tpot].map(|metric| percentiles(points, metric).svg());
    times.into_iter().chain([goodput(points).svg()]).collect()
}

fn by_load(all: &[Named<'_, '_>], of_what: &str) -> Vec<String> {
    let mut charts = Vec::new();
    for metric in [Metric::Ttft, Metric::Tpot] {
        for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
            let title = format!("{} {name} {of_what}", metric.name().to_uppercase());
            charts.push(plot(all, &title, "ms", |at| at.quantile(metric, q)).svg());
        }
    }
    let title = format!("Goodput {of_what}");
    charts.push(plot(all, &title, "requests/s", |at| at.goodput()).svg());
    charts
}

fn plot(
    all: &[Named<'_, '_>],
    title: &str,
    unit: &str,
    of: impl Fn(&AtLoad<'_>) -> Option<Value>,
) -> Plot {
    let found: Vec<(&str, Vec<(f64, Value)>)> = all
        .iter()
        .map(|(name, points)| {
            let points = points.iter();
            let pairs = points.filter_map(|at| Some((at.x(), of(at)?)));
            (*name, pairs.collect())
        })
        .collect();
    let values = found
        .iter()
        .flat_map(|(_, found)| found.iter().map(|(_, value)| value.value));
    let xs = all
        .iter()
        .flat_map(|(_, points)| points.iter().map(|at| at.x()));
    let plot = Plot::new(title, axis("load", xs), axis(unit, values));
    found
        .iter()
        .fold(plot, |plot, (name, found)| plot.series(line(name, found)))
}

/// Percentiles of a time, a group of bars for each setting.
fn percentiles(points: &[AtLoad<'_>], metric: Metric) -> Bars {
    let title = format!("{} by setting", metric.name().to_uppercase());
    let names = PERCENTILES.map(|(name, _)| name);
    let bars = Bars::new(title, "", Axis::linear("ms"), names);
    let value = |at: &AtLoad<'_>, q| at.quantile(metric, q).map_or(0.0, |found| found.value);
    let group = |bars: Bars, at: &AtLoad<'_>| {
        let values = PERCENTILES.map(|(_, q)| value(at, q));
        bars.group(at.place.setting.as_deref().unwrap_or(""), values)
    };
    points.iter().fold(bars, group)
}

fn goodput(points: &[AtLoad<'_>]) -> Bars {
    let names = ["offered", "goodput"];
    let bars = Bars::new("Goodput by setting", "", Axis::linear("requests/s"), names);
    let mean = |value: Option<Value>| value.map_or(0.0, |found| found.value);
    let group = |bars: Bars, at: &AtLoad<'_>| {
        let offered = at.mean(|run| Some(run.figures.offered_per_s));
        let values = [mean(offered), mean(at.goodput())];
        bars.group(at.place.setting.as_deref().unwrap_or(""), values)
    };
    points.iter().fold(bars, group)
}
