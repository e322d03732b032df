//! Each kind of chart, as files in the folder that is named: to look at.
#![forbid(unsafe_code)]

use std::path::Path;

use tandem_chart::{Axis, Bar, Bars, Chart, Plot, Row, Segment, Series, Stack, Waterfall};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let write = |name: &str, svg: String| std::fs::write(Path::new(&folder).join(name), svg);
    write("lines.svg", lines())?;
    write("steps.svg", steps())?;
    write("bars.svg", bars(false))?;
    write("stacked.svg", bars(true))?;
    write("stack.svg", stack())?;
    write("waterfall.svg", waterfall())
}

fn lines() -> String {
    let rates = [1.0, 2.0, 4.0, 8.0, 16.0];
    let mut plot = Plot::new(
        "TTFT by rate",
        Axis::log("offered rate (requests/s)"),
        Axis::log("TTFT (ms)"),
    );
    for (i, name) in ["p50", "p90", "p95", "p99", "p99.9", "max"]
        .iter()
        .enumerate()
    {
        let value = |rate: f64| 40.0 * (1.0 + i as f64) * (1.0 + rate * rate / 20.0);
        let points = rates.map(|rate| (rate, value(rate)));
        let ends = points.map(|(_, y)| (y * 0.9, y * 1.15));
        plot = plot.series(Series::line(*name, points).whiskers(ends));
    }
    let published = Series::reference("published", rates.map(|rate| (rate, 45.0)));
    plot.series(published).limit("SLO 500 ms", 500.0).file()
}

fn steps() -> String {
    let mut plot = Plot::new(
        "TTFT",
        Axis::log("ms"),
        Axis::linear("share of answers").to(1.0),
    );
    for i in 0..8 {
        let points = (0..=50).map(|n| {
            (
                20.0 * f64::from(i + 1) * (1.0 + f64::from(n) / 20.0),
                f64::from(n) / 50.0,
            )
        });
        plot = plot.series(Series::step(format!("{} requests/s", i + 1), points).without_markers());
    }
    plot.x_limit("SLO 200 ms", 200.0).file()
}

fn bars(stacked: bool) -> String {
    let bars = Bars::new(
        "Where the time goes",
        "prompt tokens",
        Axis::linear("ms"),
        ["prefill", "transfer", "first step"],
    );
    let bars = bars
        .group(
            "4K",
            [
                Bar::new(120.0).whisker(110.0, 135.0),
                Bar::new(20.0),
                Bar::new(12.0),
            ],
        )
        .group(
            "32K",
            [
                Bar::new(900.0).whisker(850.0, 990.0),
                Bar::new(60.0),
                Bar::new(13.0),
            ],
        )
        .group(
            "128K",
            [
                Bar::new(4100.0).whisker(4000.0, 4150.0),
                Bar::new(220.0),
                Bar::new(14.0),
            ],
        )
        .limit("without disaggregation", 3800.0);
    if stacked { bars.stacked() } else { bars }.file()
}

fn stack() -> String {
    let wave = |phase: f64, high: f64| {
        (0..90).map(move |s| (high * (1.0 + (f64::from(s) / 9.0 + phase).sin())).round())
    };
    Stack::new(
        "Ended each second",
        Axis::linear("s"),
        Axis::linear("requests"),
        0.0,
        1.0,
    )
    .layer("answered", wave(0.0, 12.0))
    .layer("failed", wave(2.0, 2.0))
    .outline("scheduled", wave(0.4, 14.0))
    .file()
}

fn waterfall() -> String {
    let mut chart = Waterfall::new(
        "The slowest requests",
        Axis::linear("ms from the scheduled send"),
        ["not begun", "connecting", "to the first token", "answer"],
    );
    for i in 0..12_u32 {
        let slow = f64::from(12 - i);
        let ends = [0.0, 3.0 * slow, 5.0 * slow, 60.0 * slow, 140.0 * slow];
        let segments = ends.windows(2).enumerate();
        chart = chart.row(Row {
            name: format!("{}/0", 100 + i * 37),
            note: format!("{} ms", ends[4]),
            segments: segments
                .map(|(kind, pair)| Segment {
                    kind,
                    from: pair[0],
                    to: pair[1],
                })
                .collect(),
        });
    }
    chart.limit("SLO", 800.0).file()
}
