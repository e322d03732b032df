//! What `--live` shows: a few lines of a fixed number. Pure: lines out of figures.

use std::time::Duration;

use tandem_loadtest::{Glance, Lately};

/// A run at one moment.
pub(super) struct View<'a> {
    /// Which run it is.
    pub(super) name: &'a str,
    /// How far it is, in thousandths.
    pub(super) thousandths: u64,
    /// Since its start.
    pub(super) elapsed: Duration,
    /// Until its end, where that is known.
    pub(super) length: Option<Duration>,
    /// All of it.
    pub(super) whole: Glance,
    /// The most that were under way.
    pub(super) peak_in_flight: u64,
    /// Events with tokens in a second, lately.
    pub(super) events_per_s: f64,
    /// The last ten seconds; `None` before the start.
    pub(super) lately: Option<&'a Lately>,
}

/// Lines of the view.
pub(super) const LINES: usize = 5;
/// Narrower terminals show what fits of it.
const BAR: usize = 30;

/// The view, no line wider than `width`.
pub(super) fn lines(view: &View<'_>, width: usize) -> [String; LINES] {
    let none = Lately::default();
    let lately = view.lately.unwrap_or(&none);
    let whole = &view.whole;
    let rate = |n: u64| match lately.span_s > 0.0 {
        true => format!("{:.1}/s", n as f64 / lately.span_s),
        false => "-".to_owned(),
    };
    let length = view
        .length
        .map_or(String::new(), |length| format!(" of {}", clock(length)));
    let all = [
        format!(
            "[{}] {}{length}  {}",
            bar(view.thousandths),
            clock(view.elapsed),
            view.name
        ),
        format!(
            "sent      {:>10}   {:>8} in all   {} under way, {} at most",
            rate(lately.sent),
            whole.sent,
            whole.in_flight,
            view.peak_in_flight
        ),
        format!(
            "answered  {:>10}   {:>8} in all   {:.0} events/s",
            rate(lately.answered),
            whole.answered,
            view.events_per_s
        ),
        format!(
            "failed    {:>10}   {:>8} in all   begun {} late at p99",
            rate(lately.failed),
            whole.failed,
            ms(lately.lateness.quantile(0.99))
        ),
        format!(
            "TTFT p50 {} p99 {}   TPOT p50 {} p99 {}   (last 10 s)",
            ms(lately.ttft.quantile(0.5)),
            ms(lately.ttft.quantile(0.99)),
            ms(lately.tpot.quantile(0.5)),
            ms(lately.tpot.quantile(0.99))
        ),
    ];
    all.map(|line| line.chars().take(width).collect())
}

fn bar(thousandths: u64) -> String {
    let full = BAR * thousandths.min(1000) as usize / 1000;
    format!("{:-<BAR$}", "#".repeat(full))
}

fn clock(time: Duration) -> String {
    let s = time.as_secs();
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

fn ms(us: Option<u64>) -> String {
    us.map_or("-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(lately: Option<&Lately>) -> View<'_> {
        View {
            name: "20 requests/s",
            thousandths: 500,
            elapsed: Duration::from_secs(65),
            length: Some(Duration::from_secs(130)),
            whole: Glance {
                sent: 1300,
                in_flight: 12,
                answered: 1280,
                failed: 8,
                events: 9000,
            },
            peak_in_flight: 31,
            events_per_s: 400.4,
            lately,
        }
    }

    #[test]
    fn the_view_shows_what_is_now_beside_what_was() {
        let mut lately = Lately {
            span_s: 10.0,
            sent: 198,
            answered: 190,
            failed: 2,
            ..Lately::default()
        };
        lately.ttft.record(50_400);
        lately.tpot.record(20_000);
        lately.lateness.record(200);
        assert_eq!(
            lines(&view(Some(&lately)), 200).join("\n"),
            "[###############---------------] 00:01:05 of 00:02:10  20 requests/s\n\
             sent          19.8/s       1300 in all   12 under way, 31 at most\n\
             answered      19.0/s       1280 in all   400 events/s\n\
             failed         0.2/s          8 in all   begun 0.2 ms late at p99\n\
             TTFT p50 50.4 ms p99 50.4 ms   TPOT p50 20.0 ms p99 20.0 ms   (last 10 s)"
        );
    }

    #[test]
    fn before_the_start_there_is_nothing_to_tell_and_no_line_is_too_wide() {
        let all = lines(&view(None), 24);
        assert!(all.iter().all(|line| line.chars().count() <= 24), "{all:?}");
        let all = lines(&view(None), 100);
        assert!(all[1].contains("sent               -"), "{all:?}");
        assert!(all[4].contains("TTFT p50 - p99 -"), "{all:?}");
    }

    #[test]
    fn the_bar_is_as_wide_at_the_end_as_at_the_beginning() {
        for (thousandths, full) in [(0, 0), (1000, BAR), (5000, BAR), (34, 1)] {
            let bar = bar(thousandths);
            assert_eq!((bar.len(), bar.matches('#').count()), (BAR, full));
        }
    }
}
