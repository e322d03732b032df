//! The figures that are compared, and one load's side of a test.

use super::interval::{Estimate, difference, quantile, share, sum, welch};
use super::{Row, Unit, Verdict};
use crate::distribution::SHOWN;
use crate::results::{Place, Results, Run};
use crate::summary::{Metric, Summary};

/// The runs of one test at one load.
pub(super) struct Side<'a> {
    runs: Vec<&'a Run>,
    /// All of them, added up.
    sum: Summary,
    /// Seconds by which goodput counts, all runs together.
    window_s: f64,
}

impl<'a> Side<'a> {
    pub(super) fn of(results: &'a Results, place: &Place) -> Self {
        let here = |run: &&Run| place.holds(run);
        let runs: Vec<&Run> = results.runs.iter().filter(here).collect();
        let mut sum = Summary::default();
        let mut window_s = 0.0;
        for run in &runs {
            sum.add(&run.phases.measured);
            window_s += run.window_s.unwrap_or(run.figures.span_s);
        }
        Self {
            runs,
            sum,
            window_s,
        }
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    fn span_s(&self) -> f64 {
        self.runs.iter().map(|run| run.figures.span_s).sum()
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Figure {
    Quantile(Metric, &'static str, f64),
    Attainment,
    Failed,
    Rejected,
    Goodput,
    Answered,
    OutputTokens,
    Cached,
}

impl Figure {
    /// Those of a test; attainment and goodput only where there are limits, and the same ones.
    pub(super) fn all(limited: bool) -> Vec<Self> {
        let times = [Metric::Ttft, Metric::Tpot, Metric::Itl, Metric::E2e];
        let of = |metric| SHOWN.map(|(name, q)| Self::Quantile(metric, name, q));
        let mut all: Vec<Self> = times.into_iter().flat_map(of).collect();
        if limited {
            all.extend([Self::Attainment, Self::Goodput]);
        }
        all.extend([
            Self::Failed,
            Self::Rejected,
            Self::Answered,
            Self::OutputTokens,
            Self::Cached,
        ]);
        all
    }

    fn name(self) -> String {
        match self {
            Self::Quantile(metric, quantile, _) => format!("{} {quantile}", metric.name()),
            Self::Attainment => "attainment".to_owned(),
            Self::Failed => "error_rate".to_owned(),
            Self::Rejected => "rejected_rate".to_owned(),
            Self::Goodput => "goodput".to_owned(),
            Self::Answered => "answered_per_s".to_owned(),
            Self::OutputTokens => "output_tokens_per_s".to_owned(),
            Self::Cached => "cached_share".to_owned(),
        }
    }

    const fn unit(self) -> Unit {
        match self {
            Self::Quantile(..) => Unit::Us,
            Self::Attainment | Self::Failed | Self::Rejected | Self::Cached => Unit::Share,
            Self::Goodput | Self::Answered | Self::OutputTokens => Unit::PerSecond,
        }
    }

    const fn more_is_better(self) -> bool {
        !matches!(self, Self::Quantile(..) | Self::Failed | Self::Rejected)
    }

    /// What one run came to.
    fn of_run(self, run: &Run) -> Option<f64> {
        let figures = &run.figures;
        match self {
            Self::Quantile(metric, _, q) => {
                let found = run.phases.measured.all.metrics.get(&metric)?;
                found.quantile(q).map(|us| us as f64)
            }
            _ if figures.requests == 0 => None,
            Self::Attainment => Some(figures.attainment),
            Self::Failed => Some(figures.error_rate),
            Self::Rejected => Some(figures.rejected_rate),
            Self::Goodput => Some(figures.goodput_per_s),
            Self::Answered => Some(figures.answered_per_s),
            Self::OutputTokens => Some(figures.output_tokens_per_s),
            Self::Cached => Some(figures.cached_share),
        }
    }

    /// What all runs came to, by their answers.
    fn within(self, side: &Side<'_>, alpha: f64) -> Option<Estimate> {
        let counts = &side.sum.all.counts;
        let per = |n: u64, seconds: f64| {
            if seconds > 0.0 {
                n as f64 / seconds
            } else {
                0.0
            }
        };
        let scaled = |estimate: Estimate, by: f64| Estimate {
            value: estimate.value * by,
            low: estimate.low.map(|low| low * by),
            high: estimate.high.map(|high| high * by),
        };
        match self {
            Self::Quantile(metric, _, q) => {
                let found = side.sum.all.metrics.get(&metric)?;
                quantile(found, q, counts.answered(), alpha)
            }
            _ if counts.all() == 0 => None,
            Self::Attainment => share(counts.attained, counts.all(), alpha),
            Self::Failed => share(counts.failed + counts.unsent, counts.all(), alpha),
            Self::Rejected => share(counts.rejected, counts.all(), alpha),
            // How many were asked is no chance: only how many of them attained it.
            Self::Goodput => share(counts.attained, counts.all(), alpha)
                .map(|share| scaled(share, per(counts.all(), side.window_s))),
            Self::Answered => sum(
                per(counts.answered(), side.span_s()),
                counts.answered(),
                0.0,
                alpha,
            ),
            Self::OutputTokens => {
                let lengths = side.sum.all.metrics.get(&Metric::OutputTokens)?;
                let spread = lengths.deviation()? / lengths.mean()?.max(1.0);
                let rate = per(side.sum.output_tokens, side.span_s());
                sum(rate, counts.answered(), spread, alpha)
            }
            Self::Cached if side.sum.input_tokens == 0 => None,
            Self::Cached => {
                // A prompt's tokens are cached together: they count as one.
                let cached = side.sum.cached_tokens as f64 / side.sum.input_tokens as f64;
                let answers = counts.answered();
                let limits = share((cached * answers as f64).round() as u64, answers, alpha)?;
                Some(Estimate {
                    value: cached,
                    ..limits
                })
            }
        }
    }

    /// Whether both sides have it. Where nothing failed, or was cached, on either, there is nothing to compare.
    pub(super) fn is_in(self, a: &Side<'_>, b: &Side<'_>) -> bool {
        let none = |found: &Estimate| found.value == 0.0;
        match (self.within(a, 0.5), self.within(b, 0.5)) {
            (Some(a), Some(b)) if matches!(self, Self::Failed | Self::Rejected | Self::Cached) => {
                !(none(&a) && none(&b))
            }
            (a, b) => a.is_some() && b.is_some(),
        }
    }

    /// Both sides of it, with the interval that leaves `alpha` outside.
    pub(super) fn row(self, a: &Side<'_>, b: &Side<'_>, alpha: f64, least: f64) -> Option<Row> {
        let within = (self.within(a, alpha)?, self.within(b, alpha)?);
        let (mut low, mut high) = difference(&within.0, &within.1);
        let mut values = (within.0.value, within.1.value);
        let of = |side: &Side<'_>| -> Vec<f64> {
            side.runs
                .iter()
                .filter_map(|run| self.of_run(run))
                .collect()
        };
        let (runs_a, runs_b) = (of(a), of(b));
        if let Some(between) = welch(&runs_a, &runs_b, alpha) {
            // The wider of both; what is unbounded stays so.
            low = low.map(|low| low.min(between.0));
            high = high.map(|high| high.max(between.1));
            let mean = |runs: &[f64]| runs.iter().sum::<f64>() / runs.len() as f64;
            values = (mean(&runs_a), mean(&runs_b));
        }
        Some(Row {
            figure: self.name(),
            unit: self.unit(),
            a: values.0,
            b: values.1,
            low,
            high,
            verdict: self.verdict(values, (low, high), least),
        })
    }

    fn verdict(
        self,
        (a, b): (f64, f64),
        limits: (Option<f64>, Option<f64>),
        least: f64,
    ) -> Verdict {
        let relative = self.unit() != Unit::Share;
        if relative && (b - a).abs() < least * a.abs() {
            return Verdict::WithinNoise;
        }
        let more = match limits {
            (Some(low), _) if low > 0.0 => true,
            (_, Some(high)) if high < 0.0 => false,
            _ => return Verdict::WithinNoise,
        };
        match more == self.more_is_better() {
            true => Verdict::Better,
            false => Verdict::Worse,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::compare::interval::z;
    use crate::results::LoadPoint;
    use crate::testing::made::{Made, results, run};

    const LOAD: Place = Place {
        setting: None,
        load: LoadPoint::Rate(10.0),
    };
    const NEAR: f64 = 1e-9;

    /// Some runs of a hundred seconds each.
    fn test(repeats: u32) -> Results {
        let rng = &mut SmallRng::seed_from_u64(1);
        let made = Made {
            requests: 1000,
            slower: 1.0,
            failing: 0.1,
        };
        let runs = (1..=repeats).map(|repeat| run(rng, LOAD.load, repeat, made));
        results(runs.collect())
    }

    #[test]
    fn goodput_is_that_of_all_runs_over_all_their_time() {
        let results = test(3);
        let side = Side::of(&results, &LOAD);
        let found = Figure::Goodput.within(&side, 0.05).unwrap();
        let attained = side.sum.all.counts.attained as f64;
        assert!((found.value - attained / 300.0).abs() < NEAR, "{found:?}");
        let shares = share(side.sum.all.counts.attained, 3000, 0.05).unwrap();
        assert!((found.low.unwrap() - shares.low.unwrap() * 10.0).abs() < NEAR);
        assert!((found.high.unwrap() - shares.high.unwrap() * 10.0).abs() < NEAR);
    }

    #[test]
    fn a_rate_of_tokens_is_less_certain_than_one_of_answers_by_their_lengths_scatter() {
        let results = test(1);
        let side = Side::of(&results, &LOAD);
        let half = |figure: Figure| {
            let found = figure.within(&side, 0.05).unwrap();
            (found.high.unwrap() - found.value) / found.value
        };
        let answers = half(Figure::Answered);
        let n = side.sum.all.counts.answered() as f64;
        assert!((answers - z(0.05) / n.sqrt()).abs() < NEAR, "{answers}");
        let lengths = &side.sum.all.metrics[&Metric::OutputTokens];
        let spread = lengths.deviation().unwrap() / lengths.mean().unwrap();
        assert!(
            (0.2..0.4).contains(&spread),
            "from 10 to 29 tokens: {spread}"
        );
        let tokens = half(Figure::OutputTokens);
        let want = answers * (1.0 + spread * spread).sqrt();
        assert!((tokens - want).abs() < NEAR, "{tokens} {want}");
    }

    #[test]
    fn what_was_not_sent_failed_and_what_was_rejected_is_worse_the_more_it_is() {
        let (first, mut second) = (test(1), test(1));
        let measured = &mut second.runs[0].phases.measured;
        measured.all.counts.unsent = 500;
        measured.all.counts.rejected = 200;
        let (a, b) = (Side::of(&first, &LOAD), Side::of(&second, &LOAD));
        let failed = Figure::Failed.within(&b, 0.05).unwrap().value;
        let counts = second.runs[0].phases.measured.all.counts;
        assert_eq!(failed, (counts.failed + 500) as f64 / 1700.0);
        for (figure, there, back) in [
            (Figure::Failed, Verdict::Worse, Verdict::Better),
            (Figure::Rejected, Verdict::Worse, Verdict::Better),
            (Figure::Attainment, Verdict::Worse, Verdict::Better),
        ] {
            // A share is a share of all requests: no change of it is small beside another share.
            let row = |a, b| figure.row(a, b, 0.05, 5.0).unwrap().verdict;
            assert_eq!((row(&a, &b), row(&b, &a)), (there, back), "{figure:?}");
        }
        let row = Figure::Goodput.row(&a, &b, 0.05, 5.0).unwrap();
        assert_eq!(row.verdict, Verdict::WithinNoise, "a rate's change is");
    }
}
