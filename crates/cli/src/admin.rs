//! `tandem admin`: a thin client of a gateway's listener for operators.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::console::say;
use crate::failure::Failure;
use crate::http::{self, Ask, Site, Trust, escaped};

/// Command line of `tandem admin`.
#[derive(Args)]
pub(crate) struct AdminArgs {
    /// The gateway's listener for operators.
    #[arg(long, global = true, default_value = "http://127.0.0.1:8081")]
    url: String,
    /// The admin key, where the listener asks for one [default: $TANDEM_ADMIN_KEY]
    #[arg(long, global = true, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    trust: Trust,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Show all workers with all figures.
    Workers,
    /// Show the requests in flight.
    Requests,
    /// Show the leases of the requests in flight.
    Leases,
    /// Show the configuration in force.
    Config,
    /// Show the policy in force.
    Policy,
    /// Say why a request went where it went.
    Explain {
        /// Its x-request-id, or the gateway's own id for it.
        request: String,
    },
    /// Say where a new request would go now, and why.
    Choose {
        /// Tokens of its prompt, none of which anybody holds.
        prompt_tokens: u32,
        /// Tokens of its answer [default: the gateway's default_max_tokens]
        #[arg(long, value_name = "N")]
        new_tokens: Option<u32>,
        /// Its class [default: the gateway's default_class]
        #[arg(long, value_name = "NAME")]
        class: Option<String>,
        /// What its session goes by.
        #[arg(long, value_name = "NAME")]
        session: Option<String>,
    },
    /// Give a worker nothing new; what it has goes on.
    Drain {
        /// Its id.
        worker: String,
    },
    /// Give a drained worker requests again.
    Enable {
        /// Its id.
        worker: String,
    },
    /// Give a worker more or less than others.
    Weight {
        /// Its id.
        worker: String,
        /// In percent; 100 at first.
        #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
        percent: u16,
    },
    /// Read the configuration file again.
    Reload,
    /// End the gateway: not ready first, then no new connections, then the end after its streams.
    Stop,
}

impl What {
    /// Method, path and body.
    fn asks(&self) -> (&'static str, String, String) {
        let get = |path: &str| ("GET", format!("/admin/{path}"), String::new());
        let post = |path: String| ("POST", format!("/admin/{path}"), String::new());
        match self {
            Self::Workers => get("workers"),
            Self::Requests => get("requests"),
            Self::Leases => get("leases"),
            Self::Config => get("config"),
            Self::Policy => get("policy"),
            Self::Explain { request } => get(&format!("explain/{}", escaped(request))),
            Self::Choose {
                prompt_tokens,
                new_tokens,
                class,
                session,
            } => {
                let mut path = format!("choose?prompt_tokens={prompt_tokens}");
                let mut add = |key: &str, value: Option<String>| {
                    if let Some(value) = value {
                        path += &format!("&{key}={}", escaped(&value));
                    }
                };
                add("new_tokens", new_tokens.map(|n| n.to_string()));
                add("class", class.clone());
                add("session", session.clone());
                get(&path)
            }
            Self::Drain { worker } => post(format!("workers/{}/drain", escaped(worker))),
            Self::Enable { worker } => post(format!("workers/{}/enable", escaped(worker))),
            Self::Weight { worker, percent } => {
                let path = format!("/admin/workers/{}/weight", escaped(worker));
                ("PUT", path, json!({"weight": percent}).to_string())
            }
            Self::Reload => post("reload".to_owned()),
            Self::Stop => post("drain".to_owned()),
        }
    }
}

/// Asks, and prints the answer.
pub(crate) fn run(args: &AdminArgs) -> Result<(), Failure> {
    let site = Site::of(&args.url, &args.trust).map_err(Failure::mendable)?;
    let key = http::key(args.key.as_deref(), "TANDEM_ADMIN_KEY").map_err(Failure::mendable)?;
    let (method, path, body) = args.what.asks();
    let ask = Ask {
        method,
        path: &path,
        key: key.as_deref(),
        body: &body,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("cannot start: {error}")))?;
    let nobody = |reason| Failure::fault(format!("no gateway at {}: {reason}", args.url));
    let answer = runtime.block_on(http::ask(&site, ask)).map_err(nobody)?;
    let value: Value = serde_json::from_str(&answer.body)
        .map_err(|error| nobody(format!("{path} answers no JSON: {error}")))?;
    match answer.code {
        200 => {
            say(&format!("{value:#}"));
            Ok(())
        }
        code => {
            let message = value["error"]["message"]
                .as_str()
                .unwrap_or("no reason given");
            let message = match code {
                401 => format!("{message} Give --key, or TANDEM_ADMIN_KEY in the environment."),
                404 if value["error"]["code"] == "unknown_url" => format!(
                    "{message} Is {} the address of [admin] listen, and not the clients'?",
                    args.url
                ),
                _ => message.to_owned(),
            };
            // What the one who typed it can mend, as everywhere else.
            let exit = if (400..500).contains(&code) { 2 } else { 1 };
            Err(Failure::with_code(exit, message))
        }
    }
}
