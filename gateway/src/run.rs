//! Starting a gateway, and its orderly end.
//!
//! Order of the start: read the model's text side, the keys and the certificates; bind the control
//! plane's port, the clients' and the operators'; start the door, the sessions with workers and what
//! follows the configuration; say that it has started; serve.
//!
//! Order of the end: say on `/ready` that it is not, and serve on for `drain_pause`; take no new
//! connections; let open requests finish for `drain_timeout`; end what is left with an error that says
//! so; close the operators' listener; tell the workers; send what telemetry is left; close the control
//! plane.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tandem_config::{AdminConfig, AdmissionSettings, AuthConfig, GatewayConfig};
use tandem_core::Incarnation;
use tandem_dialect::UnknownDialect;
use tandem_policies::Pairing;
use tandem_telemetry::{Telemetry, TelemetryError};
use tandem_text::TextError;
use tandem_wire::task::{Task, spawn};
use tandem_wire::{
    ConnectError, ControlOptions, Endpoint, Identity, IdentityError, follow_identity,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::{interval, sleep, timeout};

use crate::admin;
use crate::app::{App, unix_seconds};
use crate::auth::{AuthError, Gate, Rules};
use crate::door::Door;
use crate::http::{self, OpenError, Stages, Tls, TlsError, Whom};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::parts::{self, Followers};
use crate::reading::{self, Reading};
use crate::relay::Farewells;
use crate::reload::{self, Origin};
use crate::requests::Requests;
use crate::roster::Roster;
use crate::workers::{self, Party, Workers};

/// Cancels that are still on their way when the gateway ends have so long.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Telemetry that is left at the end has so long.
const LAST_TELEMETRY: Duration = Duration::from_secs(1);
/// Between two times that recorded figures are sorted.
const SETTLE: Duration = Duration::from_secs(5);

/// Why a gateway did not start. One line each; all are for the operator to mend.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address for clients or operators cannot be used.
    #[error("cannot listen on {address} ({protocol}): {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// TCP, or UDP for HTTP/3.
        protocol: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificate for clients cannot be used.
    #[error("[tls] {0}")]
    Tls(#[from] TlsError),
    /// The certificate for operators cannot be used.
    #[error("[admin.tls] {0}")]
    AdminTls(TlsError),
    /// The model's tokenizer or chat template cannot be loaded.
    #[error(transparent)]
    Model(#[from] TextError),
    /// The model is said to be of a dialect that there is not.
    #[error("[gateway] {0}")]
    Dialect(#[from] UnknownDialect),
    /// The keys of clients cannot be used.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// There is no port for the control plane.
    #[error(transparent)]
    Control(#[from] ConnectError),
    /// Traces and figures cannot be sent as configured.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Something of the gateway itself.
    #[error("cannot start: {0}")]
    Internal(String),
}

/// Where a gateway listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// For clients.
    pub address: SocketAddr,
    /// For operators; `None` where there is no such listener.
    pub admin: Option<SocketAddr>,
}

/// A gateway that is to be.
#[derive(Debug)]
pub struct Gateway {
    config: GatewayConfig,
    origin: Option<Origin>,
}

/// Runs a gateway whose configuration stays as it is; see [`Gateway::run`].
///
/// # Errors
/// [`StartError`], before anything was served.
pub async fn run(
    config: GatewayConfig,
    shutdown: impl Future<Output = ()> + Send,
    started: impl FnOnce(SocketAddr) + Send,
) -> Result<(), StartError> {
    let gateway = Gateway::new(config);
    gateway.run(shutdown, |all| started(all.address)).await
}

impl Gateway {
    /// One whose configuration stays as it is.
    #[must_use]
    pub const fn new(config: GatewayConfig) -> Self {
        Self {
            config,
            origin: None,
        }
    }

    /// It follows the file that its configuration came from.
    #[must_use]
    pub fn following(self, origin: Origin) -> Self {
        Self {
            origin: Some(origin),
            ..self
        }
    }

    /// Runs until `shutdown` resolves (or the admin listener asks for the end) and its requests have
    /// ended, or run out of time. `started` is told where it listens once it does.
    ///
    /// # Errors
    /// [`StartError`], before anything was served.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send,
        started: impl FnOnce(Started) + Send,
    ) -> Result<(), StartError> {
        let Self { config, origin } = self;
        let (reading, rules) = load(&config).await?;
        let local = workers::local_address(&config.workers);
        let (endpoint, renewals) = control(&config, local)?;
        let admission = admission(&config);
        let (telemetry, metrics) = telling(&config, &admission)?;
        let admin = Operators::open(config.admin.as_ref(), &metrics).await?;
        let admin_tls = admin.as_ref().and_then(|admin| admin.tls.clone());
        let opened = http::open(&config, &metrics)?;
        let address = opened.address;
        let policy = Pairing::new(&config.policy, rand::random());
        let (door, door_task) = Door::open(admission, parts::tickets(&config), policy);
        let roster = Arc::new(Roster::default());
        let requests = Arc::new(Requests::default());
        let party = party(&config, &endpoint, &door, (&roster, &requests));
        let workers = Arc::new(Workers::new(party, local));
        workers.follow(&config.workers).await;
        let gate = Arc::new(Gate::new(rules));
        let live = Live::new(config.clone());
        let follow = |origin| {
            let followers = Followers {
                live: live.clone(),
                gate: Arc::clone(&gate),
                door: door.clone(),
                workers: Arc::clone(&workers),
                reading: reading.clone(),
                metrics: Arc::clone(&metrics),
                limits: opened.limits.clone(),
            };
            let tls = opened.front.tls.iter().chain(&admin_tls).cloned().collect();
            reload::follow(origin, &config, followers.parts(), tls)
        };
        let (reloads, reload_task) = origin.map(follow).unzip();
        let (farewells, farewell_task) = Farewells::start();
        let settle_task = settle(Arc::clone(&metrics));
        let app = Arc::new(App {
            door,
            roster,
            farewells,
            metrics,
            reading,
            log_prefix_hashes: config.telemetry.log_prefix_hashes,
            endpoint: endpoint.clone(),
            admin_tls,
            gate,
            requests,
            live,
            reloads,
            started: unix_seconds(),
            stopping: AtomicBool::new(false),
            stop: Notify::new(),
            halt: watch::Sender::new(false),
        });
        warn_if_open(&config, address);
        started(Started {
            address,
            admin: admin.as_ref().map(|admin| admin.address),
        });
        let admin_task = admin.map(|admin| admin.serve(&app));
        clients(&app, &config, opened, shutdown).await;
        drop((admin_task, reload_task, app));
        tracing::info!("the operators' listener is closed");
        tell_workers(farewell_task).await;
        drop((workers, settle_task, door_task, renewals));
        telemetry.stop(LAST_TELEMETRY).await;
        close(&endpoint).await;
        Ok(())
    }
}

/// All requests are gone by now, and with them all handles: the farewells end by themselves.
async fn tell_workers(farewells: Task<()>) {
    let told = timeout(LAST_WORDS, farewells.join()).await.is_ok();
    tracing::info!(all = told, "workers were told of what was cancelled");
}

async fn close(endpoint: &Endpoint) {
    endpoint.close();
    let clean = timeout(LAST_WORDS, endpoint.closed()).await.is_ok();
    tracing::info!(clean, "the control plane is closed; the gateway has ended");
}

/// Where operators come in.
struct Operators {
    listener: TcpListener,
    address: SocketAddr,
    /// `None` where they are served in the clear.
    tls: Option<Tls>,
    /// Their certificate, while it is looked at.
    watch: Option<Task<()>>,
}

impl Operators {
    /// `None` where there are none.
    async fn open(
        config: Option<&AdminConfig>,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Self>, StartError> {
        let Some(config) = config else {
            return Ok(None);
        };
        let open = |tls| Tls::open(Whom::Operators, tls, metrics).map_err(StartError::AdminTls);
        let tls = config.tls.as_ref().map(open).transpose()?;
        let (listener, address) = listen(config.listen).await?;
        Ok(Some(Self {
            listener,
            address,
            watch: tls.as_ref().map(Tls::watch),
            tls,
        }))
    }

    /// Until what is given back is dropped.
    fn serve(self, app: &Arc<App>) -> (Task<()>, Option<Task<()>>) {
        let task = admin::start(self.listener, self.tls, Arc::clone(app));
        (task, self.watch)
    }
}

/// Serves clients until the end was asked for and their requests have ended, or run out of time.
async fn clients(
    app: &Arc<App>,
    config: &GatewayConfig,
    opened: http::Opened,
    shutdown: impl Future<Output = ()>,
) {
    let draining = drain(Arc::clone(app), shutdown);
    let loopback = opened.address.ip().is_loopback();
    let answers = http::answers(Arc::clone(app), &config.http, opened.http3_port(), loopback);
    let stages = Stages {
        stopping: || {
            app.stopping.store(true, Ordering::Relaxed);
            let patience = app.live.get().drain_timeout;
            tracing::info!(
                in_flight = app.door.in_flight(),
                drain_timeout_ms = patience.as_millis() as u64,
                "no new connections; open requests go on"
            );
            patience
        },
        halt: || {
            app.halt.send_replace(true);
        },
    };
    http::serve(opened.front, answers, draining, stages).await;
    tracing::info!("clients' connections are closed");
    drop(opened.watch);
}

fn admission(config: &GatewayConfig) -> AdmissionSettings {
    let mut admission = config.admission.clone().within(config.queue_limit);
    // Gateways with the same file must not try a worker in step.
    admission.breaker.seed = rand::random();
    admission
}

/// As whom the gateway meets its workers.
fn party(
    config: &GatewayConfig,
    endpoint: &Endpoint,
    door: &Door,
    (roster, requests): (&Arc<Roster>, &Arc<Requests>),
) -> Party {
    Party {
        endpoint: endpoint.clone(),
        name: config.identity.name.clone(),
        incarnation: Incarnation(rand::random()),
        door: door.clone(),
        roster: Arc::clone(roster),
        requests: Arc::clone(requests),
    }
}

/// What the gateway tells of its requests: to a collector, and to who asks.
fn telling(
    config: &GatewayConfig,
    admission: &AdmissionSettings,
) -> Result<(Telemetry, Arc<Metrics>), StartError> {
    let telemetry = Telemetry::start(&config.telemetry, &config.identity.name, "gateway")?;
    let metrics = Metrics::new(admission, config.telemetry.vllm_names, telemetry.spans())
        .map_err(|e| StartError::Internal(e.to_string()))?;
    Ok((telemetry, Arc::new(metrics)))
}

/// The control plane's port, and what keeps its certificate new.
fn control(config: &GatewayConfig, local: SocketAddr) -> Result<(Endpoint, Task<()>), StartError> {
    let (directory, name) = (&config.identity.directory, &config.identity.name);
    let identity = Identity::load(directory, name)?;
    let options = ControlOptions {
        keep_alive: config.control.keep_alive,
        idle_timeout: config.control.idle_timeout,
        ..ControlOptions::default()
    };
    let endpoint = Endpoint::bind(local, &identity, options)?;
    let renewals = follow_identity(&endpoint, directory, name);
    Ok((endpoint, renewals))
}

/// Resolves when no more connections are to be taken: some time after the end was asked for.
async fn drain(app: Arc<App>, shutdown: impl Future<Output = ()>) {
    tokio::select! {
        () = shutdown => {}
        () = app.stop.notified() => tracing::info!("asked to stop by an operator"),
    }
    app.stopping.store(true, Ordering::Relaxed);
    let pause = app.live.get().drain_pause;
    tracing::info!(
        in_flight = app.door.in_flight(),
        drain_pause_ms = pause.as_millis() as u64,
        "stopping: not ready any more"
    );
    sleep(pause).await;
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Listen {
                address,
                protocol,
                source,
            } => Self::Listen {
                address,
                protocol,
                source,
            },
            OpenError::Tls(error) => Self::Tls(error),
        }
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let unheard = |source| StartError::Listen {
        address,
        protocol: "TCP",
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(unheard)?;
    let address = listener.local_addr().map_err(unheard)?;
    Ok((listener, address))
}

fn warn_if_open(config: &GatewayConfig, address: SocketAddr) {
    if config.workers.is_empty() {
        tracing::warn!(
            "[gateway] workers is empty: every request gets 503 until the file names some"
        );
    }
    let open = !matches!(config.auth, AuthConfig::Keys(_));
    if open && !address.ip().is_loopback() {
        tracing::warn!(%address, "whoever reaches this address may use the gateway: [auth] asks for no key");
    }
}

async fn load(config: &GatewayConfig) -> Result<(Reading, Rules), StartError> {
    let (path, auth) = (config.tokenizer.clone(), config.auth.clone());
    let limits = reading::Limits::of(config);
    let (tools, reasoning) = (config.tool_dialect, config.reasoning_dialect);
    let loading = move || {
        let rules = Rules::load(&auth)?;
        let reading = Reading::load(Path::new(&path), limits)?.with_dialect(tools, reasoning)?;
        Ok::<_, StartError>((reading, rules))
    };
    let loaded = tokio::task::spawn_blocking(loading).await;
    loaded.map_err(|e| StartError::Internal(e.to_string()))?
}

fn settle(metrics: Arc<Metrics>) -> Task<()> {
    spawn("metrics", async move {
        let mut ticks = interval(SETTLE);
        loop {
            ticks.tick().await;
            metrics.settle();
        }
    })
}
