//! Readings of a server's metrics, one after the other, and what they come to. Pure.
//!
//! What must hold: a counter that begins anew is a server that was started again, and counts from nothing; memory is
//! bounded by [`MOST_SERIES`], whatever a server shows.

use std::collections::BTreeMap;
use std::time::Duration;

use super::exposition::{Kind, Labels, Part, Sample};
use super::figures::{Family, Series, SeriesFigures, ServerMetrics};

/// Series that are kept.
const MOST_SERIES: usize = 4096;
/// Series of one name that are kept.
const MOST_OF_FAMILY: usize = 256;
/// No figure is beyond this; what is would not be a number any more in a sum.
const BEYOND: f64 = 1e100;

/// All that was read so far.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    families: BTreeMap<String, (Kind, BTreeMap<Labels, State>)>,
    series: usize,
    first: Option<Duration>,
    last: Duration,
    scrapes: u64,
    failed: u64,
    problem: Option<String>,
    resets: u64,
    left_out: u64,
}

/// A series, as it was read last, and what it came to until then.
#[derive(Debug)]
enum State {
    Gauge {
        min: f64,
        sum: f64,
        max: f64,
        last: f64,
        readings: u32,
    },
    /// Of a counter there is the one figure `Value`.
    Growing { last: Growing, grown: Growing },
}

/// Figures that only grow, all of one series.
#[derive(Clone, Debug, Default)]
struct Growing {
    count: f64,
    sum: f64,
    /// By their bounds, least first.
    buckets: BTreeMap<Bound, f64>,
}

/// A bucket's bound; never NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound(f64);

impl Eq for Bound {}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Gathered {
    /// Takes in one reading, `at` a time of which only differences matter.
    pub(super) fn observe(&mut self, at: Duration, samples: Vec<Sample>) {
        let is_first = self.first.is_none();
        self.first.get_or_insert(at);
        self.last = at;
        self.scrapes += 1;
        let mut left_out = 0;
        let mut growing: BTreeMap<(String, Labels), (Kind, Growing)> = BTreeMap::new();
        for sample in samples {
            // What is no number says nothing, and JSON has no word for it.
            if sample.value.is_nan() || sample.value.abs() >= BEYOND {
                continue;
            }
            if sample.kind == Kind::Gauge {
                left_out += u64::from(!self.gauge(sample));
                continue;
            }
            let key = (sample.family, sample.labels);
            let (_, now) = growing
                .entry(key)
                .or_insert((sample.kind, Growing::default()));
            match sample.part {
                Part::Value | Part::Count => now.count = sample.value,
                Part::Sum => now.sum = sample.value,
                Part::Bucket(bound) => drop(now.buckets.insert(Bound(bound), sample.value)),
            }
        }
        for ((family, labels), (kind, now)) in growing {
            left_out += u64::from(!self.grow((family, kind, labels), now, is_first));
        }
        self.left_out = self.left_out.max(left_out);
    }

    /// Takes note of a reading that failed.
    pub(super) fn failed(&mut self, problem: String) {
        self.scrapes += 1;
        self.failed += 1;
        self.problem.get_or_insert(problem);
    }

    /// The series; `None` where there is no room for it.
    fn state(
        &mut self,
        (family, kind, labels): (String, Kind, Labels),
        new: impl FnOnce() -> State,
    ) -> Option<&mut State> {
        let full = self.series >= MOST_SERIES;
        if full && !self.families.contains_key(&family) {
            return None;
        }
        let (known, all) = self
            .families
            .entry(family)
            .or_insert_with(|| (kind, BTreeMap::new()));
        if *known != kind {
            return None;
        }
        if !all.contains_key(&labels) {
            if full || all.len() >= MOST_OF_FAMILY {
                return None;
            }
            self.series += 1;
        }
        Some(all.entry(labels).or_insert_with(new))
    }

    fn gauge(&mut self, sample: Sample) -> bool {
        let value = sample.value;
        let new = || State::Gauge {
            min: value,
            sum: 0.0,
            max: value,
            last: value,
            readings: 0,
        };
        let state = self.state((sample.family, Kind::Gauge, sample.labels), new);
        let Some(State::Gauge {
            min,
            sum,
            max,
            last,
            readings,
        }) = state
        else {
            return false;
        };
        *min = min.min(value);
        *max = max.max(value);
        *sum += value;
        *last = value;
        *readings += 1;
        true
    }

    fn grow(&mut self, of: (String, Kind, Labels), now: Growing, is_first: bool) -> bool {
        // A series that is new in a later reading has grown from nothing.
        let start = if is_first {
            now.clone()
        } else {
            Growing::default()
        };
        let new = || State::Growing {
            last: start,
            grown: Growing::default(),
        };
        let Some(State::Growing { last, grown }) = self.state(of, new) else {
            return false;
        };
        let reset = now.count < last.count;
        if reset {
            *last = Growing::default();
        }
        grown.count += now.count - last.count;
        grown.sum += now.sum - last.sum;
        for (bound, value) in &now.buckets {
            let before = last.buckets.get(bound).copied().unwrap_or(0.0);
            *grown.buckets.entry(*bound).or_default() += (value - before).max(0.0);
        }
        *last = now;
        self.resets += u64::from(reset);
        true
    }

    /// What it came to; `shown` tells which names a summary shows.
    pub(super) fn finish(self, url: String, shown: impl Fn(&str) -> bool) -> ServerMetrics {
        let first = self.first.unwrap_or(self.last);
        let span_s = self.last.saturating_sub(first).as_secs_f64();
        let family = |(name, (kind, all)): (String, (Kind, BTreeMap<Labels, State>))| {
            let series = all.into_iter().map(|(labels, state)| Series {
                labels,
                figures: state.figures(kind, span_s),
            });
            let family = Family {
                kind,
                shown: shown(&name),
                series: series.collect(),
            };
            (name, family)
        };
        ServerMetrics {
            url,
            span_s,
            scrapes: self.scrapes,
            failed: self.failed,
            problem: self.problem,
            resets: self.resets,
            left_out: self.left_out,
            families: self.families.into_iter().map(family).collect(),
        }
    }
}

impl State {
    fn figures(&self, kind: Kind, span_s: f64) -> SeriesFigures {
        let per_s = |n: f64| if span_s > 0.0 { n / span_s } else { 0.0 };
        match self {
            Self::Gauge {
                min,
                sum,
                max,
                last,
                readings,
            } => SeriesFigures::Gauge {
                min: *min,
                mean: sum / f64::from(*readings),
                max: *max,
                last: *last,
            },
            Self::Growing { grown, .. } if kind == Kind::Counter => SeriesFigures::Counter {
                difference: grown.count,
                per_s: per_s(grown.count),
            },
            Self::Growing { grown, .. } => SeriesFigures::Histogram {
                count: grown.count,
                per_s: per_s(grown.count),
                mean: (grown.count > 0.0).then(|| grown.sum / grown.count),
                p50: grown.quantile(0.5),
                p90: grown.quantile(0.9),
                p95: grown.quantile(0.95),
                p99: grown.quantile(0.99),
            },
        }
    }
}

impl Growing {
    /// As Prometheus' `histogram_quantile` has it: spread evenly within a bucket; of the last one, which has no bound,
    /// its beginning.
    fn quantile(&self, q: f64) -> Option<f64> {
        let all = *self.buckets.values().next_back()?;
        if all <= 0.0 {
            return None;
        }
        let rank = q * all;
        let mut below = (0.0, 0.0);
        for (Bound(bound), count) in &self.buckets {
            if *count >= rank {
                let (from, before) = below;
                if bound.abs() >= BEYOND || *count <= before {
                    return Some(from);
                }
                // What lies below the first bound begins at 0, unless that is negative.
                let from = if *bound <= 0.0 && before == 0.0 {
                    *bound
                } else {
                    from
                };
                return Some(from + (bound - from) * (rank - before) / (count - before));
            }
            below = (*bound, *count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::exposition::parse;
    use super::*;

    fn gathered(readings: &[&str]) -> ServerMetrics {
        let mut gathered = Gathered::default();
        for (second, text) in readings.iter().enumerate() {
            gathered.observe(Duration::from_secs(second as u64), parse(text).unwrap());
        }
        gathered.finish("http://s/metrics".to_owned(), |name| {
            name.starts_with("vllm:")
        })
    }

    fn only(metrics: &ServerMetrics, name: &str) -> SeriesFigures {
        let [series] = &metrics.families[name].series[..] else {
            panic!("{metrics:?}");
        };
        series.figures
    }

    #[test]
    fn a_counter_counts_from_the_first_reading_and_through_a_restart() {
        let text = |n: u32| format!("# TYPE c counter\nc {n}\n");
        let readings = [100, 130, 10, 15].map(text);
        let metrics = gathered(&readings.each_ref().map(String::as_str));
        let grown = SeriesFigures::Counter {
            difference: 45.0,
            per_s: 15.0,
        };
        assert_eq!(only(&metrics, "c"), grown);
        assert_eq!((metrics.resets, metrics.scrapes), (1, 4));
    }

    #[test]
    fn a_series_that_comes_up_during_the_run_has_grown_from_nothing() {
        let metrics = gathered(&["x 1\n", "# TYPE c counter\nc{code=\"500\"} 3\n"]);
        let grown = SeriesFigures::Counter {
            difference: 3.0,
            per_s: 3.0,
        };
        assert_eq!(only(&metrics, "c"), grown);
    }

    #[test]
    fn a_gauge_has_its_least_mean_greatest_and_last_reading_and_no_other_numbers() {
        let metrics = gathered(&["vllm:g 4\n", "vllm:g 1\n", "vllm:g NaN\n", "vllm:g 1\n"]);
        let seen = SeriesFigures::Gauge {
            min: 1.0,
            mean: 2.0,
            max: 4.0,
            last: 1.0,
        };
        assert_eq!(only(&metrics, "vllm:g"), seen);
        assert!(metrics.families["vllm:g"].shown);
    }

    #[test]
    fn a_histogram_s_percentiles_are_of_the_run_alone() {
        let text = |counts: [u32; 3], sum: f64| {
            let [a, b, c] = counts;
            format!(
                "# TYPE h histogram\nh_bucket{{le=\"1\"}} {a}\nh_bucket{{le=\"2\"}} {b}\nh_bucket{{le=\"+Inf\"}} {c}\n\
                 h_sum {sum}\nh_count {c}\n"
            )
        };
        // Before the run all were slow; in it 50 take up to 1 and 40 up to 2.
        let metrics = gathered(&[&text([0, 0, 500], 5e3), &text([50, 90, 600], 5100.0)]);
        let SeriesFigures::Histogram {
            count,
            mean,
            p50,
            p90,
            p99,
            ..
        } = only(&metrics, "h")
        else {
            panic!("{metrics:?}");
        };
        assert_eq!((count, mean), (100.0, Some(1.0)));
        assert_eq!((p50, p90), (Some(1.0), Some(2.0)));
        assert_eq!(
            p99,
            Some(2.0),
            "of the last bucket only the beginning is known"
        );
    }

    #[test]
    fn each_percentile_is_its_own_and_values_below_a_negative_bound_are_taken_for_that() {
        let text = |counts: [u32; 3]| {
            let [a, b, c] = counts;
            format!(
                "# TYPE h histogram\nh_bucket{{le=\"-5\"}} {a}\nh_bucket{{le=\"100\"}} {b}\nh_bucket{{le=\"200\"}} {c}\n\
                 h_bucket{{le=\"+Inf\"}} {c}\nh_sum 1\nh_count {c}\n"
            )
        };
        let metrics = gathered(&[&text([0, 0, 0]), &text([0, 0, 1000])]);
        let SeriesFigures::Histogram {
            p50, p90, p95, p99, ..
        } = only(&metrics, "h")
        else {
            panic!("{metrics:?}");
        };
        let all = [p50, p90, p95, p99].map(|found| found.unwrap().round() as u32);
        assert_eq!(all, [150, 190, 195, 199]);
        let metrics = gathered(&[&text([0, 0, 0]), &text([80, 100, 100])]);
        let SeriesFigures::Histogram { p50, p90, .. } = only(&metrics, "h") else {
            panic!("{metrics:?}");
        };
        assert_eq!((p50, p90), (Some(-5.0), Some(47.5)));
    }

    #[test]
    fn what_no_figure_can_be_is_left_out_and_the_first_problem_is_kept() {
        let metrics = gathered(&["g 1\ni +Inf\n", "g +Inf\n", "g -1e300\n"]);
        let one = SeriesFigures::Gauge {
            min: 1.0,
            mean: 1.0,
            max: 1.0,
            last: 1.0,
        };
        assert_eq!(only(&metrics, "g"), one);
        assert_eq!(metrics.families.len(), 1);
        let mut gathered = Gathered::default();
        gathered.failed("first".to_owned());
        gathered.failed("second".to_owned());
        let metrics = gathered.finish(String::new(), |_| true);
        assert_eq!(
            (metrics.failed, metrics.problem.as_deref()),
            (2, Some("first"))
        );
    }

    #[test]
    fn of_a_summary_count_and_sum_are_taken_and_the_servers_own_percentiles_are_not() {
        let text = |count: u32| {
            format!(
                "# TYPE s summary\ns{{quantile=\"0.5\"}} 7\ns_sum {}\ns_count {count}\n",
                3 * count
            )
        };
        let metrics = gathered(&[&text(10), &text(30)]);
        let SeriesFigures::Histogram {
            count, mean, p50, ..
        } = only(&metrics, "s")
        else {
            panic!("{metrics:?}");
        };
        assert_eq!((count, mean, p50), (20.0, Some(3.0), None));
        assert_eq!(metrics.left_out, 0);
    }

    #[test]
    fn a_restarted_histogram_counts_all_of_its_buckets_anew() {
        let text = |n: u32| {
            format!(
                "# TYPE h histogram\nh_bucket{{le=\"4\"}} {n}\nh_bucket{{le=\"+Inf\"}} {n}\nh_count {n}\nh_sum {n}\n"
            )
        };
        let metrics = gathered(&[&text(100), &text(8)]);
        let SeriesFigures::Histogram { count, p50, .. } = only(&metrics, "h") else {
            panic!("{metrics:?}");
        };
        assert_eq!((count, p50, metrics.resets), (8.0, Some(2.0), 1));
    }

    #[test]
    fn what_a_server_shows_beyond_the_bounds_is_counted_not_kept() {
        let many: String = (0..MOST_OF_FAMILY + 7)
            .map(|i| format!("g{{i=\"{i}\"}} 1\n"))
            .collect();
        let metrics = gathered(&[&many, &many]);
        assert_eq!(metrics.families["g"].series.len(), MOST_OF_FAMILY);
        assert_eq!(metrics.left_out, 7);
        let families: String = (0..MOST_SERIES + 3).map(|i| format!("g{i} 1\n")).collect();
        let metrics = gathered(&[&families]);
        assert_eq!(metrics.families.len(), MOST_SERIES);
        assert_eq!(metrics.left_out, 3);
    }

    #[test]
    fn what_was_written_is_read_back() {
        let text = "# TYPE c counter\nc{a=\"b\"} 1\ng 2\n# TYPE s summary\ns_sum 4\ns_count 2\n\
                    s{quantile=\"0.5\"} 1\n";
        let metrics = gathered(&["", text]);
        assert_eq!(metrics.families.len(), 3);
        let json = serde_json::to_string(&metrics).unwrap();
        let read: ServerMetrics = serde_json::from_str(&json).unwrap();
        assert_eq!(read, metrics);
    }
}
