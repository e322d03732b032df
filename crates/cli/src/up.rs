//! `tandem up`: a whole fleet on this machine, one process for each of its members.
//!
//! Owns the state folder and the children. Runs on one thread, the main one: the kernel kills a
//! child when the thread that started it ends, and the main thread ends with the process.

mod child;
mod fleet;
mod model;
mod plan;
mod state;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tandem_config::parse_bytes;
use tandem_wire::identity::PeerRole;
use tokio::time::{Instant, sleep};

use crate::console::{say, table};
use crate::failure::Failure;
use crate::http::{self, Site};
use crate::lifetime::{StopSignals, terminal_is_gone};
use crate::planning;
use crate::status::{self, Status};
use crate::supervisor;
use fleet::{Fleet, Running};
use plan::Plan;
use state::StateFolder;

/// How long the gateway may take to find its workers.
const READY_WITHIN: Duration = Duration::from_secs(60);
const QUESTION: &str = "What is the capital of France?";
const READY_EVERY: Duration = Duration::from_millis(100);
/// For the workers beyond the first pair to be known too.
const COMPLETE_WITHIN: Duration = Duration::from_secs(5);

/// Where clients and operators find a gateway that was told nothing else.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// Command line of `tandem up`.
#[derive(Args)]
pub(crate) struct UpArgs {
    /// Prefill workers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) prefill: u8,
    /// Decode workers.
    #[arg(long, value_name = "M", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) decode: u8,
    /// One worker, or so many, that do both, with no transfer.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1", conflicts_with_all = ["prefill", "decode"], value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) aggregated: Option<u8>,
    /// What carries KV pages: tcp, shm, net, verbs, efa, or a libfabric provider's name.
    #[arg(long, value_name = "P", default_value = "tcp")]
    pub(crate) provider: String,
    /// A GGUF file, or a folder with safetensors [default: $TANDEM_MODEL, or what `make model`
    /// fetched]
    #[arg(long, value_name = "PATH")]
    pub(crate) model: Option<PathBuf>,
    /// Workers run no model, but take the time that this one would: a profile's name or file (the
    /// tokenizer is --model's).
    #[arg(long, value_name = "PROFILE", conflicts_with = "threads")]
    pub(crate) timed: Option<String>,
    /// Seconds that pass for one of the profile's; 0 does not wait [default: 1]
    #[arg(long, value_name = "X", requires = "timed")]
    pub(crate) time_scale: Option<f64>,
    /// Where the gateway serves HTTP.
    #[arg(long, value_name = "ADDR", default_value_t = LISTEN)]
    pub(crate) listen: SocketAddr,
    /// Where operators connect [default: 127.0.0.1:8081 with the default of --listen, else any free
    /// port of 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin_listen: Option<SocketAddr>,
    /// The file of API keys that clients need (see `tandem keys`).
    #[arg(long, value_name = "FILE", conflicts_with = "open")]
    pub(crate) keys: Option<PathBuf>,
    /// Clients need no key, though other machines reach --listen.
    #[arg(long)]
    pub(crate) open: bool,
    /// Certificates, configuration and logs.
    #[arg(long, value_name = "DIR", default_value = ".tandem")]
    pub(crate) state_dir: PathBuf,
    /// A TOML file whose policy table the gateway follows.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Tokens in a KV page.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) page_tokens: Option<u16>,
    /// Prompt tokens in one step.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) chunk_tokens: Option<u32>,
    /// Requests that decode in one step [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_batch: Option<u32>,
    /// KV cache of each worker [default: 512MiB; with --timed no more than the profile's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) kv_memory: Option<u64>,
    /// Threads of each worker [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

impl UpArgs {
    fn admin_listen(&self) -> SocketAddr {
        let any = SocketAddr::new(ADMIN_LISTEN.ip(), 0);
        let default = if self.listen == LISTEN {
            ADMIN_LISTEN
        } else {
            any
        };
        self.admin_listen.unwrap_or(default)
    }

    /// Other machines do not get in by an oversight.
    fn refuse_unguarded(&self) -> Result<(), Failure> {
        let admin = self.admin_listen();
        if !admin.ip().is_loopback() {
            return Err(Failure::mendable(format!(
                "--admin-listen {admin}: other machines reach it; want an address of the loopback"
            )));
        }
        if self.listen.ip().is_loopback() || self.keys.is_some() || self.open {
            return Ok(());
        }
        Err(Failure::mendable(format!(
            "--listen {}: other machines reach it; want --keys FILE (see `tandem keys new`), or --open",
            self.listen
        )))
    }
}

fn size(text: &str) -> Result<u64, String> {
    // As the configuration has it, but named as the command line does.
    parse_bytes(text)
        .filter(|bytes| (64 << 10..=16 << 40).contains(bytes))
        .ok_or_else(|| "want a size from 64KiB to 16TiB, such as 512MiB".to_owned())
}

/// Starts the fleet and keeps it until a signal stops it.
pub(crate) fn run(args: &UpArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("cannot start: {error}")))?;
    runtime.block_on(up(args))
}

async fn up(args: &UpArgs) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    args.refuse_unguarded()?;
    let model = model::find(args.model.as_deref())?;
    if let Some(profile) = &args.timed {
        // A name that means nothing leaves no folder behind.
        planning::profile(profile)?;
    }
    let state = StateFolder::open(&args.state_dir)?;
    refuse_used_port(args.listen, "--listen")?;
    refuse_used_port(args.admin_listen(), "--admin-listen")?;
    let plan = Plan::new(args, &model, &state)?;
    let mut fleet = Fleet::new(&state);
    let workers = match plan.workers().count() {
        1 => "one worker".to_owned(),
        count => format!("{count} workers"),
    };
    say(&format!(
        "starting a gateway and {workers}; logs in {}",
        state.logs().display()
    ));
    let outcome = tokio::select! {
        outcome = serve(&plan, &state, &mut fleet) => outcome,
        () = signals.next() => {
            say("stopping");
            supervisor::stopping();
            Ok(())
        }
        () = terminal_is_gone() => Ok(()),
    };
    let killed = tokio::select! {
        () = fleet.stop() => false,
        () = signals.next() => true,
    };
    if killed {
        fleet.kill().await;
    }
    outcome
}

/// Brings the fleet up, says so, and waits for ever. Ends only where it does not come up.
async fn serve(plan: &Plan, state: &StateFolder, fleet: &mut Fleet) -> Result<(), Failure> {
    for worker in plan.workers() {
        state.certify(worker.role())?;
        fleet.start(worker)?;
    }
    state.certify(&PeerRole::Gateway)?;
    let workers = fleet.all_started().await?;
    let addresses = workers
        .iter()
        .map(|worker| worker.started.address)
        .collect();
    fleet.start(plan.gateway(addresses))?;
    let gateway = fleet.all_started().await?;
    let address = gateway
        .first()
        .map_or(plan.listen(), |gateway| gateway.started.address);
    let authority = reachable(address).to_string();
    let site = Site::plain(&authority);
    ready(&site, state).await?;
    // Operators are asked for no key here, clients may be.
    let admin = gateway.first().and_then(|gateway| gateway.started.admin);
    let admin = admin.map_or_else(|| authority.clone(), |admin| admin.to_string());
    let status = complete_status(&Site::plain(&admin), workers.len()).await;
    let keys = plan.asks_for_keys();
    say(&welcome(&workers, &status, &authority, &admin, keys));
    supervisor::ready();
    std::future::pending().await
}

fn refuse_used_port(listen: SocketAddr, flag: &str) -> Result<(), Failure> {
    match TcpListener::bind(listen) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(Failure::mendable(format!(
            "{listen} is in use: stop what listens there, or choose another with {flag}"
        ))),
        Err(error) => Err(Failure::mendable(format!(
            "cannot listen on {listen}: {error}"
        ))),
    }
}

/// Where a client on this machine finds a server that listens there.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Waits until the gateway can serve a request.
async fn ready(site: &Site, state: &StateFolder) -> Result<(), Failure> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let last = match http::get(site, "/ready").await {
            Ok(answer) if answer.code == 200 => return Ok(()),
            Ok(answer) => format!("/ready answers {} {}", answer.code, answer.body.trim()),
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return Err(Failure::fault(format!(
                "the gateway is not ready after {} s: {last}; see {}",
                READY_WITHIN.as_secs(),
                state.logs().display()
            )));
        }
        sleep(READY_EVERY).await;
    }
}

/// The gateway's status, once it knows all workers: a pair is enough to be ready. The table is for
/// people: where it stays incomplete, the fleet is none the worse.
async fn complete_status(site: &Site, workers: usize) -> Status {
    let deadline = Instant::now() + COMPLETE_WITHIN;
    loop {
        let status = status::fetch(site).await.unwrap_or_default();
        let known = status.workers.iter().filter(|w| w.pages.is_some()).count();
        if known >= workers || Instant::now() >= deadline {
            return status;
        }
        sleep(READY_EVERY).await;
    }
}

fn welcome(
    workers: &[Running],
    status: &Status,
    authority: &str,
    admin: &str,
    keys: bool,
) -> String {
    let rows: Vec<_> = workers.iter().map(|worker| row(worker, status)).collect();
    let head = [
        "WORKER", "ROLE", "PID", "ADDRESS", "PROVIDER", "PAGES", "MODEL",
    ];
    let model = Value::from(status.model.as_deref().unwrap_or("default"));
    let messages = format!(r#"[{{"role": "user", "content": "{QUESTION}"}}]"#);
    let question = format!(r#"{{"model": {model}, "temperature": 0, "messages": {messages}}}"#);
    let key = match keys {
        true => r#"-H "Authorization: Bearer $KEY" "#,
        false => "",
    };
    format!(
        "{}\nready http://{authority}\nadmin http://{admin}\n\ncurl http://{authority}/v1/chat/completions \
         {key}-H 'Content-Type: application/json' -d '{question}'\n",
        table(head, &rows)
    )
}

fn row(worker: &Running, status: &Status) -> [String; 7] {
    let Running { started, pid } = worker;
    let known = status
        .workers
        .iter()
        .find(|known| known.id.as_ref() == Some(&started.id));
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    [
        started.id.clone(),
        started.role.clone(),
        pid.to_string(),
        started.address.to_string(),
        known.map_or_else(
            || or_dash(started.provider.clone()),
            status::Worker::provider,
        ),
        or_dash(
            known
                .and_then(|w| w.pages.as_ref())
                .map(|pages| pages.total.to_string()),
        ),
        or_dash(known.and_then(|w| w.model.clone())),
    ]
}
