//! The command line of `tandem loadtest`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tandem_loadtest::body::Api;
use tandem_loadtest::server_metrics::SHOWN;

use super::record::RecordArgs;
use crate::failure::Failure;

/// Measure any OpenAI-compatible endpoint: docs/LOADTEST.md says how.
#[derive(Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LoadtestArgs {
    #[command(subcommand)]
    #[serde(skip)]
    pub(super) action: Option<Action>,

    /// Flags from a TOML file, by their names without --: rate = 8, slo = ["ttft=500ms"]. Those given here go before.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The server.
    #[arg(long, default_value = "http://127.0.0.1:8080", help_heading = "Server")]
    pub(super) url: String,
    /// The model to ask for [default: the server's only one]
    #[arg(long, help_heading = "Server")]
    pub(super) model: Option<String>,
    /// API key [default: $OPENAI_API_KEY]
    #[arg(long, help_heading = "Server")]
    #[serde(skip)]
    pub(super) key: Option<String>,
    /// A header of every request, as "name: value"; may be given several times.
    #[arg(long, value_name = "HEADER", help_heading = "Server")]
    #[serde(skip)]
    pub(super) header: Vec<String>,
    /// Speak HTTP/2.
    #[arg(long, help_heading = "Server")]
    pub(super) http2: bool,
    /// Certificates, in PEM, of the authorities that an https server's certificate may be of, or that certificate
    /// itself [default: the system's authorities]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(super) ca: Option<PathBuf>,
    /// Which endpoint is asked.
    #[arg(long, value_enum, default_value = "chat", help_heading = "Server")]
    pub(super) api: ApiName,

    /// Open loop: requests per second, such as 8, steps such as 4@30s,8@30s, or ramps such as 1..10@60s.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "CURVE",
        conflicts_with = "concurrency",
        help_heading = "Load"
    )]
    pub(super) rate: Option<String>,
    /// How arrivals scatter around the rate: constant, poisson or gamma:SHAPE [default: poisson; with --trace, the
    /// trace's own times]
    #[arg(
        long,
        value_name = "PROCESS",
        conflicts_with = "concurrency",
        help_heading = "Load"
    )]
    pub(super) arrivals: Option<String>,
    /// Closed loop: so many requests (or sessions) at a time.
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        help_heading = "Load"
    )]
    pub(super) concurrency: Option<u32>,
    /// Have them begin one after the other within this time.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TIME",
        requires = "concurrency",
        help_heading = "Load"
    )]
    pub(super) ramp_up: Option<String>,
    /// Replay a trace: JSON lines as Mooncake's and Qwen's, or CSV as Azure's and BurstGPT's. With --rate, its times are
    /// stretched to that mean rate; with --concurrency, only its lengths and blocks are used.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "class", "prompts", "prefix", "turns"], help_heading = "Load")]
    pub(super) trace: Option<PathBuf>,
    /// Only this stretch of the trace, such as 60s..120s.
    #[arg(
        long,
        value_name = "FROM..TO",
        requires = "trace",
        help_heading = "Load"
    )]
    pub(super) trace_slice: Option<String>,
    /// Replay so many times as fast.
    #[arg(long, allow_negative_numbers = true, value_name = "FACTOR", requires = "trace", conflicts_with_all = ["rate", "concurrency"], help_heading = "Load")]
    pub(super) speed: Option<f64>,

    /// Tokens of prompts: 512, uniform:100..500, normal:512,64, lognormal:512,0.8 (median, sigma) or file:PATH
    /// [default: 256]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "LENGTHS",
        help_heading = "Requests"
    )]
    pub(super) input: Option<String>,
    /// Tokens of answers, the same [default: 64]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "LENGTHS",
        conflicts_with = "trace",
        help_heading = "Requests"
    )]
    pub(super) output: Option<String>,
    /// A class of requests as "NAME SHARE INPUT OUTPUT", such as "chat 3 lognormal:300,0.8 128"; several times.
    #[arg(long, value_name = "CLASS", conflicts_with_all = ["input", "output"], help_heading = "Requests")]
    pub(super) class: Vec<String>,
    /// A header that carries the name of a request's class, such as x-tandem-class.
    #[arg(long, value_name = "NAME", help_heading = "Requests")]
    pub(super) class_header: Option<String>,
    /// A header that names a request's session, such as x-session-id: requests with one beginning have one name.
    #[arg(long, value_name = "NAME", help_heading = "Requests")]
    pub(super) session_header: Option<String>,
    /// Shared beginnings: GROUPSxTOKENS such as 8x1024, before the prompts' own tokens; 8x1024:1.2 asks the first groups
    /// more often.
    #[arg(long, value_name = "GROUPS", help_heading = "Requests")]
    pub(super) prefix: Option<String>,
    /// Requests of a session, each with the conversation so far (a number, or as --input).
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "LENGTHS",
        help_heading = "Requests"
    )]
    pub(super) turns: Option<String>,
    /// Time between an answer and the session's next request: 2s, or exp:2s.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TIME",
        requires = "turns",
        help_heading = "Requests"
    )]
    pub(super) think: Option<String>,
    /// Prompts of a file: a text a line, or *.jsonl with "prompt" or "messages" and "output_tokens", "class".
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "class", "prefix", "turns"], help_heading = "Requests")]
    pub(super) prompts: Option<PathBuf>,
    /// The model's tokenizer (a directory with tokenizer.json, or a GGUF file), so that prompts have exactly as many
    /// tokens as was asked for [default: words of about a token each]
    #[arg(long, value_name = "PATH", help_heading = "Requests")]
    pub(super) tokenizer: Option<PathBuf>,
    /// Make prompts of token ids from 256 up to this vocabulary's size: exact without a tokenizer; completions only.
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        conflicts_with = "tokenizer",
        help_heading = "Requests"
    )]
    pub(super) token_ids: Option<u32>,
    /// Shorten prompts and answers that do not fit so many tokens together [default: what the server says, if anything]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        help_heading = "Requests"
    )]
    pub(super) max_context: Option<u32>,
    /// Have answers as long as asked for (vLLM, SGLang, Tandem).
    #[arg(long, help_heading = "Requests")]
    pub(super) ignore_eos: bool,
    /// Further fields of every request, as a JSON object.
    #[arg(long, value_name = "JSON", help_heading = "Requests")]
    pub(super) body: Option<String>,

    /// End after so many requests (or sessions).
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        help_heading = "Run"
    )]
    pub(super) requests: Option<u64>,
    /// Schedule nothing after this time.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TIME",
        help_heading = "Run"
    )]
    pub(super) duration: Option<String>,
    /// Keep the beginning out of the figures: a time, a number of requests or a share of them.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "MARGIN",
        help_heading = "Run"
    )]
    pub(super) warmup: Option<String>,
    /// The same of the end.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "MARGIN",
        help_heading = "Run"
    )]
    pub(super) cooldown: Option<String>,
    /// A request has failed after this time, from its scheduled send.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TIME",
        default_value = "10m",
        help_heading = "Run"
    )]
    pub(super) timeout: String,
    /// Most requests under way at a time in an open loop; what would be more is not sent, and the run is invalid.
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        default_value_t = 10_000,
        help_heading = "Run"
    )]
    pub(super) max_in_flight: u32,
    /// Equal seeds give equal requests at equal times.
    #[arg(
        long,
        allow_negative_numbers = true,
        default_value_t = 1,
        help_heading = "Run"
    )]
    pub(super) seed: u64,
    /// Each load so many times, for confidence intervals.
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Run")]
    pub(super) repeats: u32,
    /// Send a share of the test, such as 1/3: the other processes send the rest. `tandem loadtest merge` adds up.
    #[arg(
        long,
        value_name = "I/N",
        conflicts_with = "search",
        help_heading = "Run"
    )]
    pub(super) part: Option<String>,
    /// Start at this time, seconds since 1970: all parts together.
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "SECONDS",
        help_heading = "Run"
    )]
    pub(super) start_at: Option<f64>,
    /// The run is invalid where requests are begun later than this at p99.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TIME",
        default_value = "10ms",
        help_heading = "Run"
    )]
    pub(super) max_lateness: String,
    /// The run is invalid where this client uses more of its cores.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SHARE",
        default_value = "80%",
        help_heading = "Run"
    )]
    pub(super) max_cpu: String,

    /// When an answer counts: ttft=500ms,tpot=50ms (of ttft, tpot, itl, e2e); chat:ttft=500ms for one class. Several times.
    #[arg(long, value_name = "LIMITS", help_heading = "Goodput")]
    pub(super) slo: Vec<String>,
    /// Run at several loads: rate=1,2,4 or concurrency=1,2,4.
    #[arg(long, value_name = "AXIS=VALUES", conflicts_with_all = ["rate", "concurrency", "speed"], help_heading = "Goodput")]
    pub(super) sweep: Option<String>,
    /// Run all of that on several servers, or on one that is changed: policy=random,kv_cost or pd=1:3,2:2.
    #[arg(
        long,
        value_name = "NAME=VALUES",
        requires = "prepare",
        conflicts_with = "search",
        help_heading = "Goodput"
    )]
    pub(super) vary: Option<String>,
    /// What makes the server so, before each value of --vary: a command for sh, with the value in $VALUE. It returns
    /// when the server is ready.
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "vary",
        help_heading = "Goodput"
    )]
    pub(super) prepare: Option<String>,
    /// Find the highest rate or concurrency that meets the SLO.
    #[arg(long, value_enum, value_name = "AXIS", requires = "slo", conflicts_with_all = ["rate", "concurrency", "speed", "sweep", "repeats"], help_heading = "Goodput")]
    pub(super) search: Option<AxisName>,
    /// The share of requests that has to meet the SLO.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SHARE",
        default_value = "90%",
        requires = "search",
        help_heading = "Goodput"
    )]
    pub(super) attainment: String,
    /// The load to begin with.
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "LOAD",
        default_value_t = 1.0,
        requires = "search",
        help_heading = "Goodput"
    )]
    pub(super) search_start: f64,
    /// The highest load to try.
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "LOAD",
        default_value_t = 1024.0,
        requires = "search",
        help_heading = "Goodput"
    )]
    pub(super) search_max: f64,
    /// End where the bounds are this close.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SHARE",
        default_value = "5%",
        requires = "search",
        help_heading = "Goodput"
    )]
    pub(super) search_tolerance: String,
    /// End after so many runs in any case.
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "search", help_heading = "Goodput")]
    pub(super) search_runs: u32,

    /// What must hold: p99_ttft<500ms, error_rate<1%, goodput>5... Several times; the exit code says whether.
    #[arg(long = "assert", value_name = "ASSERTION", help_heading = "Output")]
    pub(super) asserts: Vec<String>,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) json: Option<PathBuf>,
    /// Write a row for each run.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) csv: Option<PathBuf>,
    /// Write a line of JSON for each request.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) requests_file: Option<PathBuf>,
    /// Write a page of plots and tables, one file that any browser shows.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,
    /// Read the server's Prometheus metrics here before, during and after each run; several times. Without a path:
    /// /metrics.
    #[arg(long, value_name = "URL", help_heading = "Output")]
    pub(super) metrics: Vec<String>,
    /// Which metrics the summary shows: how their names begin, or a regular expression; --json has all [default: tokens,
    /// times, queues and caches of vLLM, SGLang and Tandem]
    #[arg(
        long,
        value_name = "NAMES",
        default_value = SHOWN,
        hide_default_value = true,
        help_heading = "Output"
    )]
    pub(super) metrics_match: String,
    /// Show rates, times and errors of the last ten seconds while the test goes on, where there is a terminal.
    #[arg(long, conflicts_with = "quiet", help_heading = "Output")]
    pub(super) live: bool,
    /// Show no progress.
    #[arg(long, help_heading = "Output")]
    pub(super) quiet: bool,
}

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Add up the results of processes that each sent a part of one test.
    Merge(MergeArgs),
    /// Make a page of plots and tables of saved results.
    Report(ReportArgs),
    /// Say what changed from one test to another, and whether it is more than noise.
    Compare(CompareArgs),
    /// Make a trace for --trace of a gateway's log: times, lengths and shared beginnings, no text.
    Record(RecordArgs),
}

#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Results that --json wrote; several stand in plots together.
    #[arg(required = true, value_name = "FILE")]
    pub(super) results: Vec<PathBuf>,
    /// Show the slowest of these requests, which --requests-file wrote [default: those that the results hold]
    #[arg(long, value_name = "FILE")]
    pub(super) requests: Option<PathBuf>,
    /// The page.
    #[arg(long, value_name = "FILE")]
    pub(super) html: PathBuf,
}

#[derive(Args)]
pub(crate) struct CompareArgs {
    /// Results that --json wrote: before.
    #[arg(value_name = "A")]
    pub(super) a: PathBuf,
    /// Results that --json wrote: after.
    #[arg(value_name = "B")]
    pub(super) b: PathBuf,
    /// With which all intervals hold together.
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    pub(super) confidence: String,
    /// Smaller changes of times and rates count as none.
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    pub(super) least: String,
    /// Write the comparison as JSON.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// End with exit code 1 where any figure is worse.
    #[arg(long)]
    pub(super) fail_on_worse: bool,
}

#[derive(Args)]
pub(crate) struct MergeArgs {
    /// Results that --json wrote.
    #[arg(required = true, value_name = "FILE")]
    pub(super) parts: Vec<PathBuf>,
    /// Write the sum as JSON.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a row for each run.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write a page of plots and tables.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// What must hold, as for a test.
    #[arg(long = "assert", value_name = "ASSERTION")]
    pub(super) asserts: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ApiName {
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
}

impl From<ApiName> for Api {
    fn from(name: ApiName) -> Self {
        match name {
            ApiName::Chat => Self::Chat,
            ApiName::Completions => Self::Completions,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AxisName {
    /// Requests per second.
    Rate,
    /// Requests at a time.
    Concurrency,
}

impl LoadtestArgs {
    /// What was set, by the names of the command line; keys and headers may be secrets and are left out.
    pub(super) fn settings(&self) -> Result<BTreeMap<String, String>, Failure> {
        let all = serde_json::to_value(self).map_err(Failure::fault)?;
        let mut settings = BTreeMap::new();
        for (name, value) in all.as_object().into_iter().flatten() {
            let shown = match value {
                serde_json::Value::Null => continue,
                serde_json::Value::Array(list) if list.is_empty() => continue,
                serde_json::Value::Bool(false) => continue,
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            settings.insert(name.clone(), shown);
        }
        Ok(settings)
    }
}
