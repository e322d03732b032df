//! From the command line to how hard the server is pressed, and what counts.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tandem_loadtest::Harness;
use tandem_loadtest::arrivals::{Process, RateCurve};
use tandem_loadtest::body::{Asking, OWN_FIELDS, UsageAsked};
use tandem_loadtest::campaign::{Axis, Runs};
use tandem_loadtest::plan::{Bounds, Load, Margin, RunPlan};
use tandem_loadtest::results::{LoadPoint, Part};
use tandem_loadtest::search::SearchPlan;
use tandem_loadtest::slo::Slos;
use tandem_loadtest::units::{duration, share};
use tandem_loadtest::workload::{Source, Workload};

use super::args::{AxisName, LoadtestArgs};
use super::requests::{flag, wrong};
use crate::failure::Failure;

/// Limits of all classes.
pub(super) fn slos(args: &LoadtestArgs) -> Result<Slos, Failure> {
    let mut slos = Slos::default();
    for text in &args.slo {
        slos.add(text).map_err(|error| wrong("--slo", error))?;
    }
    Ok(slos)
}

/// Which runs make the test.
pub(super) fn runs(args: &LoadtestArgs, workload: &Workload) -> Result<Runs, Failure> {
    let once = |load, point| Runs::Each {
        loads: vec![(load, point)],
        repeats: args.repeats,
    };
    if let Some(name) = args.search {
        let plan = search(args, name)?;
        let axis = axis(args, name, workload)?;
        return Ok(Runs::Search { axis, plan });
    }
    if let Some(text) = &args.sweep {
        return sweep(args, text, workload);
    }
    if let Some(curve) = &args.rate {
        let curve: RateCurve = flag("--rate", curve)?;
        return match (trace_rate(args, workload)?, curve.steady()) {
            (None, _) => {
                let process = process(args)?;
                let mean = curve.mean();
                Ok(once(Load::Open { curve, process }, LoadPoint::Rate(mean)))
            }
            (Some(own), Some(rate)) => {
                let at = Axis::TraceRate { own }.at(rate);
                let (load, point) = at.map_err(|error| wrong("--rate", error))?;
                Ok(once(load, point))
            }
            (Some(_), None) => {
                let why = "changes with time, a trace's own times are stretched by one factor: add --arrivals";
                Err(wrong("--rate", why))
            }
        };
    }
    if let Some(concurrency) = args.concurrency {
        let axis = axis(args, AxisName::Concurrency, workload)?;
        let at = axis.at(concurrency.into());
        let (load, point) = at.map_err(|error| wrong("--concurrency", error))?;
        return Ok(once(load, point));
    }
    if args.trace.is_none() {
        let want = "--rate, --concurrency, --trace, --sweep or --search";
        return Err(Failure::mendable(format!(
            "how hard to press? Give one of {want}"
        )));
    }
    if args.arrivals.is_some() {
        return Err(wrong("--arrivals", "needs --rate"));
    }
    let speed = args.speed.unwrap_or(1.0);
    if !(speed > 0.0 && speed.is_finite()) {
        return Err(wrong("--speed", format!("{speed}: want a factor above 0")));
    }
    Ok(once(Load::Trace { speed }, LoadPoint::TraceSpeed(speed)))
}

fn process(args: &LoadtestArgs) -> Result<Process, Failure> {
    flag("--arrivals", args.arrivals.as_deref().unwrap_or("poisson"))
}

/// The rate of a trace whose own times are kept.
fn trace_rate(args: &LoadtestArgs, workload: &Workload) -> Result<Option<f64>, Failure> {
    match &*workload.source {
        Source::Trace(trace) if args.arrivals.is_none() => match trace.mean_rate(args.requests) {
            Some(own) => Ok(Some(own)),
            None => Err(wrong(
                "--trace",
                "all its requests come at once: add --arrivals",
            )),
        },
        _ => Ok(None),
    }
}

fn axis(args: &LoadtestArgs, name: AxisName, workload: &Workload) -> Result<Axis, Failure> {
    Ok(match name {
        AxisName::Rate => match trace_rate(args, workload)? {
            Some(own) => Axis::TraceRate { own },
            None => Axis::Rate(process(args)?),
        },
        AxisName::Concurrency => Axis::Concurrency {
            ramp: time("--ramp-up", args.ramp_up.as_deref())?.unwrap_or_default(),
        },
    })
}

fn sweep(args: &LoadtestArgs, text: &str, workload: &Workload) -> Result<Runs, Failure> {
    let want = || {
        wrong(
            "--sweep",
            format!(
                "{text:?}: want rate=1,2,4 or concurrency=1,2,4 (or --vary, for what the server is)"
            ),
        )
    };
    let (name, values) = text.split_once('=').ok_or_else(want)?;
    let name = match name {
        "rate" => AxisName::Rate,
        "concurrency" => AxisName::Concurrency,
        _ => return Err(want()),
    };
    let axis = axis(args, name, workload)?;
    let mut loads = Vec::new();
    for value in values.split(',') {
        let value: f64 = value.trim().parse().map_err(|_| want())?;
        loads.push(axis.at(value).map_err(|error| wrong("--sweep", error))?);
    }
    Ok(Runs::Each {
        loads,
        repeats: args.repeats,
    })
}

fn search(args: &LoadtestArgs, name: AxisName) -> Result<SearchPlan, Failure> {
    let whole = name == AxisName::Concurrency;
    let (start, highest) = (args.search_start, args.search_max);
    let fine = |load: f64| load > 0.0 && load.is_finite() && !(whole && load.fract() != 0.0);
    if !fine(start) || !fine(highest) || start > highest {
        let kind = if whole { "whole numbers" } else { "loads" };
        let found =
            format!("{start} and --search-max {highest}: want {kind} above 0, the first no higher");
        return Err(wrong("--search-start", found));
    }
    Ok(SearchPlan {
        start,
        lowest: if whole { 1.0 } else { start / LOWEST },
        highest,
        attainment: read("--attainment", &args.attainment, share)?,
        tolerance: read("--search-tolerance", &args.search_tolerance, share)?,
        most_runs: args.search_runs,
        whole,
    })
}

/// A search for a rate ends where not even this part of its start meets the SLO.
const LOWEST: f64 = 64.0;

fn read<T, E: std::fmt::Display>(
    name: &'static str,
    text: &str,
    by: fn(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    by(text).map_err(|error| wrong(name, error))
}

fn time(name: &'static str, text: Option<&str>) -> Result<Option<Duration>, Failure> {
    text.map(|text| read(name, text, duration)).transpose()
}

fn margin(name: &'static str, text: Option<&str>) -> Result<Margin, Failure> {
    text.map_or(Ok(Margin::None), |text| flag(name, text))
}

/// What all runs have in common; [`of_server`] fills in what the server decides.
pub(super) fn base(
    args: &LoadtestArgs,
    workload: Workload,
    slos: Slos,
) -> Result<RunPlan, Failure> {
    let whole = Part { number: 1, of: 1 };
    let part = args.part.as_deref().map(|text| flag("--part", text));
    let header = |flag_name: &'static str, name: Option<&String>| {
        name.map(|name| flag(flag_name, name)).transpose()
    };
    Ok(RunPlan {
        // Each run has its own.
        load: Load::Trace { speed: 1.0 },
        point: LoadPoint::TraceSpeed(1.0),
        setting: None,
        repeat: 1,
        workload: Arc::new(workload),
        asking: Asking {
            api: args.api.into(),
            model: String::new(),
            usage: UsageAsked::Never,
            ignore_eos: args.ignore_eos,
            extra: extra(args)?,
        },
        class_header: header("--class-header", args.class_header.as_ref())?,
        session_header: header("--session-header", args.session_header.as_ref())?,
        slos,
        requests: args.requests,
        duration: time("--duration", args.duration.as_deref())?,
        warm_up: margin("--warmup", args.warmup.as_deref())?,
        cool_down: margin("--cooldown", args.cooldown.as_deref())?,
        timeout: read("--timeout", &args.timeout, duration)?,
        max_in_flight: args.max_in_flight,
        part: part.transpose()?.unwrap_or(whole),
        start_at: args.start_at.map(start_at).transpose()?,
        bounds: Bounds {
            lateness: read("--max-lateness", &args.max_lateness, duration)?,
            cpu_share: read("--max-cpu", &args.max_cpu, share)?,
        },
    })
}

/// The model, the token counts that it can be asked for, its context where the command line has none.
pub(super) fn of_server(mut base: RunPlan, harness: &Harness) -> RunPlan {
    harness.model().clone_into(&mut base.asking.model);
    base.asking.usage = harness.usage();
    let workload = Arc::make_mut(&mut base.workload);
    workload.max_context = workload.max_context.or(harness.max_context());
    base
}

fn start_at(seconds: f64) -> Result<SystemTime, Failure> {
    let since = Duration::try_from_secs_f64(seconds);
    let at = since.ok().and_then(|since| UNIX_EPOCH.checked_add(since));
    let want = |what: &str| {
        wrong(
            "--start-at",
            format!("{seconds}: want seconds since 1970{what}"),
        )
    };
    let at = at.ok_or_else(|| want(""))?;
    let now = SystemTime::now();
    // Parts that begin at different times would not be one test.
    if at + LATE < now {
        return Err(want(", and this time is over"));
    }
    if at > now + FARTHEST {
        return Err(want(", within a day from now"));
    }
    Ok(at)
}

/// By so much a start may be over.
const LATE: Duration = Duration::from_secs(1);
/// A start is not waited for longer.
const FARTHEST: Duration = Duration::from_hours(24);

fn extra(args: &LoadtestArgs) -> Result<Map<String, Value>, Failure> {
    let Some(text) = &args.body else {
        return Ok(Map::new());
    };
    let extra: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| wrong("--body", format!("{text}: {error}")))?;
    match OWN_FIELDS.iter().find(|own| extra.contains_key(**own)) {
        Some(own) => Err(wrong(
            "--body",
            format!("{own:?} is set by the test itself"),
        )),
        None => Ok(extra),
    }
}
