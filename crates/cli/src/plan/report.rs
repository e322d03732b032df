//! What was found, for people and for machines.

use std::fmt::Write;

use serde_json::{Value, json};
use tandem_plan::search::{Neighbour, Saturates, Tried, rate};
use tandem_plan::{Quantiles, Usage};

use super::Found;
use super::progress::SoFar;
use crate::console::table;
use crate::planning::{millis, rounded};

/// Fleets that the table shows.
const SHOWN: usize = 12;

/// `1P 3D`, or `4 mixed`.
fn name(prefill: u32, decode: u32) -> String {
    match prefill {
        0 => format!("{decode} mixed"),
        prefill => format!("{prefill}P {decode}D"),
    }
}

/// For someone who waits.
pub(super) fn progress(number: usize, all: usize, tried: &Tried) -> String {
    let fleet = name(tried.prefill, tried.decode);
    let rate = rounded(tried.best.rate);
    format!("{number} of {all} fleets tried; {fleet}: {rate} requests/s")
}

/// What a search had found when it was interrupted.
pub(super) fn interrupted(found: &SoFar, policies: &[String], json: bool) -> String {
    let SoFar { all, tried, best } = found;
    if json {
        let best = best.as_ref().map(|best| fleet(best, policies));
        let found =
            json!({"interrupted": true, "fleets_tried": tried, "fleets_in_all": all, "best": best});
        return format!("{found:#}");
    }
    match best {
        Some(best) => format!(
            "the best of {tried} fleets of {all}: {} under {}: {} requests/s, {} a GPU",
            name(best.prefill, best.decode),
            policies[best.policy],
            rounded(best.best.rate),
            rounded(best.rate_per_gpu())
        ),
        None => format!("none of {tried} fleets of {all} keeps the SLO"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn quantiles(of: &Quantiles) -> Value {
    json!({
        "p50": rounded(millis(of.p50)),
        "p90": rounded(millis(of.p90)),
        "p99": rounded(millis(of.p99)),
    })
}

fn usage(of: &Usage) -> Value {
    json!({
        "workers": of.workers,
        "busy_share": rounded(of.busy_share()),
        "mean_batch": rounded(of.mean_batch()),
        "mean_pages_share": rounded(of.mean_pages()),
        "most_pages_share": rounded(of.most_pages),
    })
}

fn fleet(tried: &Tried, policies: &[String]) -> Value {
    let mut fleet = json!({
        "prefill": tried.prefill,
        "decode": tried.decode,
        "mixed": tried.prefill == 0,
        "policy": policies[tried.policy],
        "gpus": tried.gpus,
        "rate": rounded(tried.best.rate),
        "rate_per_gpu": rounded(tried.rate_per_gpu()),
        "speed": rounded(tried.best.speed),
    });
    if let (Some(kept), Some(fleet)) = (&tried.best.kept, fleet.as_object_mut()) {
        let all = &kept.summary;
        let more = json!({
            "goodput": rounded(tried.goodput()),
            "attained": all.attained,
            "late": all.late,
            "rejected": all.rejected,
            "ttft_ms": quantiles(&all.ttft),
            "tpot_ms": quantiles(&all.tpot),
            "longest_stall_ms": quantiles(&all.longest_gap),
            "cached_share": rounded(all.cached_share),
            "prefill_usage": kept.prefill.as_ref().map(usage),
            "decode_usage": usage(&kept.decode),
        });
        fleet.extend(more.as_object().cloned().unwrap_or_default());
    }
    fleet
}

impl Found<'_> {
    fn best(&self) -> &Tried {
        &self.tried[0]
    }

    fn fleet(&self, tried: &Tried) -> Value {
        fleet(tried, self.policies)
    }

    /// GPUs that no worker of the best fleet has.
    fn idle_gpus(&self) -> u32 {
        let gpus = self.args.gpus;
        gpus.map_or(0, |gpus| gpus.saturating_sub(self.best().gpus))
    }

    pub(super) fn json(&self) -> Value {
        let neighbour = |n: &Neighbour| {
            json!({
                "prefill": n.prefill,
                "decode": n.decode,
                "rate": rounded(n.rate),
                "rate_per_gpu": rounded(n.rate_per_gpu),
            })
        };
        let why = self.why;
        let best = self.best();
        json!({
            "trace": self.args.trace,
            "requests": self.asked.requests.len(),
            "requests_in_trace": self.asked.all,
            "clipped": self.asked.clipped,
            "trace_rate": rounded(rate(&self.asked.requests)),
            "slo": self.args.slo,
            "attainment": self.goal.attainment,
            "profile": self.args.profile,
            "best": self.fleet(best),
            "idle_gpus": self.idle_gpus(),
            "ratio": (best.prefill > 0).then(|| {
                rounded(f64::from(best.prefill) / f64::from(best.decode))
            }),
            "why": {
                "saturates": saturates(why.saturates).0,
                "at_rate": rounded(why.rate),
                "late_ttft": rounded(why.late_ttft),
                "late_tpot": rounded(why.late_tpot),
                "waited_for_room": rounded(why.waited),
                "neighbours": why.neighbours.iter().map(neighbour).collect::<Vec<_>>(),
            },
            "fleets": self.tried.iter().map(|tried| self.fleet(tried)).collect::<Vec<_>>(),
        })
    }

    pub(super) fn text(&self) -> String {
        let asked = self.asked;
        let mut text = format!(
            "{} of {} requests of {}, {:.2} a second",
            asked.requests.len(),
            asked.all,
            self.args.trace.display(),
            rate(&asked.requests)
        );
        if asked.clipped > 0 {
            let _ = write!(text, ", {} shortened to the model's context", asked.clipped);
        }
        let head = [
            "FLEET",
            "POLICY",
            "GPUS",
            "REQUESTS/S",
            "PER GPU",
            "TTFT P50",
            "P90",
            "TPOT P50",
            "P90",
            "PREFILL BUSY",
            "DECODE BUSY",
        ];
        let rows: Vec<_> = self.tried.iter().take(SHOWN).map(|t| self.row(t)).collect();
        let _ = write!(text, "\n\n{}\n", table(head, &rows));
        if self.tried.len() > SHOWN {
            let _ = writeln!(
                text,
                "and {} fleets that serve less",
                self.tried.len() - SHOWN
            );
        }
        let _ = write!(text, "\n{}", self.conclusion());
        text
    }

    fn row(&self, tried: &Tried) -> [String; 11] {
        let fleet = name(tried.prefill, tried.decode);
        let policy = self.policies[tried.policy].clone();
        let gpus = tried.gpus.to_string();
        let rates = [tried.best.rate, tried.rate_per_gpu()].map(|rate| rounded(rate).to_string());
        let [rate, per_gpu] = rates;
        let Some(kept) = &tried.best.kept else {
            let none = || "-".to_owned();
            return [
                fleet,
                policy,
                gpus,
                rate,
                per_gpu,
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
            ];
        };
        let all = &kept.summary;
        let times = [all.ttft.p50, all.ttft.p90, all.tpot.p50, all.tpot.p90];
        let [a, b, c, d] = times.map(|time| format!("{} ms", rounded(millis(time))));
        let busy = |usage: &Usage| percent(usage.busy_share());
        let prefill = kept.prefill.as_ref().map_or_else(|| "-".to_owned(), busy);
        [
            fleet,
            policy,
            gpus,
            rate,
            per_gpu,
            a,
            b,
            c,
            d,
            prefill,
            busy(&kept.decode),
        ]
    }

    fn conclusion(&self) -> String {
        let (best, why) = (self.best(), self.why);
        let fleet = name(best.prefill, best.decode);
        let mut text = format!(
            "best: {fleet} under {}: {} requests/s with {} of them within {} (goodput {}), {} a GPU\n",
            self.policies[best.policy],
            rounded(best.best.rate),
            percent(self.goal.attainment),
            self.args.slo,
            rounded(best.goodput()),
            rounded(best.rate_per_gpu()),
        );
        if let (idle @ 1.., Some(gpus)) = (self.idle_gpus(), self.args.gpus) {
            let each = best.gpus / (best.prefill + best.decode).max(1);
            let _ = writeln!(
                text,
                "{idle} of the {gpus} GPUs stay idle: a worker of {} has {each}",
                self.args.profile
            );
        }
        let other = self
            .tried
            .iter()
            .find(|t| (t.prefill == 0) != (best.prefill == 0));
        if let Some(other) = other {
            let _ = writeln!(
                text,
                "instead of {} for {}",
                rounded(other.best.rate),
                name(other.prefill, other.decode)
            );
        }
        let _ = writeln!(
            text,
            "why no more: at {} requests/s {} ({} of the first tokens and {} of the answers' tokens are late)",
            rounded(why.rate),
            match (why.saturates, best.prefill) {
                (Saturates::Prefill, 0) => "prompts wait to be computed",
                (what, _) => saturates(what).1,
            },
            percent(why.late_ttft),
            percent(why.late_tpot),
        );
        for n in &why.neighbours {
            let change = n.rate / best.best.rate - 1.0;
            let _ = writeln!(
                text,
                "{}: {} requests/s ({:+.0} %), {} a GPU",
                name(n.prefill, n.decode),
                rounded(n.rate),
                change * 100.0,
                rounded(n.rate_per_gpu)
            );
        }
        text.trim_end().to_owned()
    }
}

/// For machines, and for people.
const fn saturates(what: Saturates) -> (&'static str, &'static str) {
    match what {
        Saturates::Prefill => (
            "prefill",
            "prompts wait to be computed: the prefill side is full first",
        ),
        Saturates::DecodeSteps => (
            "decode_steps",
            "steps are too slow: the decode side is full first",
        ),
        Saturates::DecodeRoom => (
            "decode_room",
            "requests wait for KV pages: the decode side is full first",
        ),
        Saturates::Nothing => (
            "nothing",
            "the SLO is still kept: the trace is too short to fill this fleet",
        ),
    }
}
