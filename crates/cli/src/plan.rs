//! `tandem plan`: which fleet serves a trace within an SLO, found in simulated time.

mod progress;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tandem_loadtest::slo::Slo as Limits;
use tandem_loadtest::trace::Slice;
use tandem_loadtest::units::share;
use tandem_plan::search::{Goal, Space, Tried, Why, alone, rate, search, why};
use tandem_plan::{Pool, Slo};
use tandem_policies::PolicySettings;

use crate::console::say;
use crate::failure::Failure;
use crate::planning::{self, Asked, millis};
use progress::Progress;

/// Command line of `tandem plan`.
#[derive(Args)]
pub(crate) struct PlanArgs {
    /// What is asked of the fleet: JSON lines as Mooncake's and Qwen's, or CSV as Azure's and BurstGPT's.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Only this stretch of the trace, such as 60s..120s.
    #[arg(long, value_name = "FROM..TO")]
    trace_slice: Option<String>,
    /// Only so many requests of it, from the first on.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..))]
    requests: u32,
    /// When an answer counts, such as ttft=500ms,tpot=50ms.
    #[arg(long, value_name = "LIMITS")]
    slo: String,
    /// The share of requests that has to meet it.
    #[arg(long, value_name = "SHARE", default_value = "90%")]
    attainment: String,
    /// What a worker is: a profile's name or file.
    #[arg(long, value_name = "PROFILE")]
    profile: String,
    /// What a prefill worker is, where that is another [default: --profile]
    #[arg(long, value_name = "PROFILE")]
    prefill_profile: Option<String>,
    /// Workers of the fleet [default: 4]
    #[arg(long, value_name = "N", conflicts_with = "gpus", value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: Option<u32>,
    /// GPUs of the fleet, instead.
    #[arg(long, value_name = "N", conflicts_with = "prefill_profile", value_parser = clap::value_parser!(u32).range(1..))]
    gpus: Option<u32>,
    /// How the gateway chooses: a rule, a preset or a file with a table of policy; several times to compare them
    /// [default: least_loaded]
    #[arg(long, value_name = "POLICY")]
    policy: Vec<String>,
    /// Prompt tokens in one step.
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    chunk_tokens: u32,
    /// Requests that decode in one step.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_batch: u32,
    /// Tokens in a KV page.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    page_tokens: u16,
    /// Answer in JSON.
    #[arg(long)]
    json: bool,
}

/// All that was found.
struct Found<'a> {
    args: &'a PlanArgs,
    asked: &'a Asked,
    goal: Goal,
    policies: &'a [String],
    tried: &'a [Tried],
    why: &'a Why,
}

/// Searches, and says what was found.
pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let goal = goal(args)?;
    let (names, policies) = policies(args)?;
    let decode = pool(args, &args.profile)?;
    let prefill = match &args.prefill_profile {
        Some(name) => pool(args, name)?,
        None => decode.clone(),
    };
    let slice = args.trace_slice.as_deref().unwrap_or("..").parse::<Slice>();
    let slice = slice.map_err(|error| Failure::mendable(format!("--trace-slice {error}")))?;
    let context = decode.profile.context_length;
    let asked = planning::requests(&args.trace, slice, args.requests as usize, context)?;
    if rate(&asked.requests) == 0.0 {
        return Err(Failure::mendable(format!(
            "--trace {}: all its requests come at once, so it has no rate to raise",
            args.trace.display()
        )));
    }
    let space = Space {
        prefill: &prefill,
        decode: &decode,
        workers: workers(args, &decode)?,
        policies: &policies,
        mixed: true,
    };
    let progress = Progress::start(space.fleets(), &names, args.json)?;
    let heard = |tried: &Tried| progress.hear(tried);
    let tried = search(&space, &asked.requests, &goal, heard).map_err(Failure::mendable)?;
    let Some(best) = tried.first().filter(|best| best.best.kept.is_some()) else {
        return Err(impossible(args, &space, (&asked, &goal))?);
    };
    let why = why(&space, best, &asked.requests, &goal).map_err(Failure::mendable)?;
    progress.end();
    let found = Found {
        args,
        asked: &asked,
        goal,
        policies: &names,
        tried: &tried,
        why: &why,
    };
    match args.json {
        true => say(&format!("{:#}", found.json())),
        false => say(&found.text()),
    }
    Ok(())
}

fn goal(args: &PlanArgs) -> Result<Goal, Failure> {
    let wrong = |why: String| Failure::mendable(format!("--slo {}: {why}", args.slo));
    let limits: Limits = args
        .slo
        .parse()
        .map_err(|e| Failure::mendable(format!("--slo {e}")))?;
    if limits.itl_us.is_some() || limits.e2e_us.is_some() || limits == Limits::default() {
        return Err(wrong("want ttft, tpot or both".to_owned()));
    }
    let time = |limit: Option<u64>| limit.map_or(Duration::MAX, Duration::from_micros);
    let attainment = share(&args.attainment);
    Ok(Goal {
        slo: Slo {
            ttft: time(limits.ttft_us),
            tpot: time(limits.tpot_us),
        },
        attainment: attainment.map_err(|e| Failure::mendable(format!("--attainment {e}")))?,
    })
}

fn policies(args: &PlanArgs) -> Result<(Vec<String>, Vec<PolicySettings>), Failure> {
    let names = match args.policy.is_empty() {
        true => vec!["least_loaded".to_owned()],
        false => args.policy.clone(),
    };
    let policies = names.iter().map(|name| planning::policy(name));
    let policies = policies.collect::<Result<_, _>>()?;
    Ok((names, policies))
}

fn pool(args: &PlanArgs, profile: &str) -> Result<Pool, Failure> {
    Ok(Pool {
        chunk_tokens: args.chunk_tokens,
        max_batch: args.max_batch,
        page_tokens: args.page_tokens,
        ..Pool::new(planning::profile(profile)?, 1)
    })
}

fn workers(args: &PlanArgs, one: &Pool) -> Result<u32, Failure> {
    let Some(gpus) = args.gpus else {
        return Ok(args.workers.unwrap_or(4));
    };
    match gpus / one.gpus().max(1) {
        0 => Err(Failure::mendable(format!(
            "--gpus {gpus}: one worker of {} has {}",
            args.profile,
            one.gpus()
        ))),
        workers if workers > 256 => Err(Failure::mendable(format!(
            "--gpus {gpus}: that is {workers} workers, more than the 256 that are searched"
        ))),
        workers => Ok(workers),
    }
}

/// Says how far the SLO is from what can be.
fn impossible(
    args: &PlanArgs,
    space: &Space<'_>,
    (asked, goal): (&Asked, &Goal),
) -> Result<Failure, Failure> {
    // With nothing else running, one that does both is the fastest: nothing is pushed.
    let one = space.fleet(0, 1, 0);
    let found = alone(&one, &asked.requests, &goal.slo).map_err(Failure::mendable)?;
    let (ttft, tpot, missed) = found.map_or((0.0, 0.0, 0), |a| {
        (millis(a.ttft), millis(a.tpot), a.missed)
    });
    let all = asked.requests.len();
    let why = match 1.0 - missed as f64 / all.max(1) as f64 >= goal.attainment {
        true => {
            "the trace's bursts, which come at one moment at any rate, are too large for this fleet"
        }
        false => "no number of workers helps",
    };
    Ok(Failure::mendable(format!(
        "--slo {}: no fleet of {} workers keeps it for {} of the requests, at any rate. With nothing else running the \
         fastest single request takes {ttft:.1} ms to its first token and {tpot:.1} ms for each further one, and \
         {missed} of {all} requests miss the SLO: {why}",
        args.slo, space.workers, args.attainment,
    )))
}
