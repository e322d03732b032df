//! Starting a gateway, and its orderly end.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tandem_config::GatewayConfig;
use tandem_policies::Pairing;
use tandem_telemetry::{Telemetry, TelemetryError};
use tandem_text::TextError;
use tandem_wire::task::{Task, spawn};
use tandem_wire::{ConnectError, ControlOptions, Endpoint, Identity, IdentityError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{interval, timeout};

use crate::app::{App, unix_seconds};
use crate::door::Door;
use crate::http::{Limits, serve};
use crate::metrics::Metrics;
use crate::reading::Reading;
use crate::relay::Farewells;
use crate::roster::Roster;
use crate::workers;

/// Cancels that are still on their way when the gateway ends have so long.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Telemetry that is left at the end has so long.
const LAST_TELEMETRY: Duration = Duration::from_secs(1);
/// Between two times that recorded figures are sorted.
const SETTLE: Duration = Duration::from_secs(5);

/// Why a gateway did not start. One line each; all are for the operator to mend.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address for clients cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The model's tokenizer or chat template cannot be loaded.
    #[error(transparent)]
    Model(#[from] TextError),
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

/// Runs a gateway until `shutdown` resolves and its requests have ended, or run out of time.
/// `started` is told the address for clients once it is listened on.
///
/// # Errors
/// [`StartError`], before anything was served.
pub async fn run(
    config: GatewayConfig,
    shutdown: impl Future<Output = ()> + Send,
    started: impl FnOnce(SocketAddr) + Send,
) -> Result<(), StartError> {
    let reading = load(&config).await?;
    let identity = Identity::load(&config.identity.directory, &config.identity.name)?;
    let options = ControlOptions {
        keep_alive: config.control.keep_alive,
        idle_timeout: config.control.idle_timeout,
        ..ControlOptions::default()
    };
    let local = workers::local_address(&config.workers);
    let endpoint = Endpoint::bind(local, &identity, options)?;
    let address = config.listen;
    let unheard = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(unheard)?;
    let address = listener.local_addr().map_err(unheard)?;

    let mut admission = config.admission.clone().within(config.queue_limit);
    // Gateways with the same file must not try a worker in step.
    admission.breaker.seed = rand::random();
    let telemetry = Telemetry::start(&config.telemetry, &config.identity.name, "gateway")?;
    let metrics = Metrics::new(&admission, config.telemetry.vllm_names, telemetry.spans())
        .map_err(|e| StartError::Internal(e.to_string()))?;
    let metrics = Arc::new(metrics);
    let policy = Pairing::new(&config.policy, rand::random());
    // One request for each connection, and as many as may wait besides.
    let tickets = config.max_connections + config.queue_limit;
    let (door, door_task) = Door::open(admission, tickets, policy);
    let roster = Arc::new(Roster::new(&config.workers));
    let name = &config.identity.name;
    let worker_tasks = workers::start(&config.workers, &endpoint, name, &door, &roster);
    let (farewells, farewell_task) = Farewells::start();
    let settle_task = settle(Arc::clone(&metrics));
    let app = Arc::new(App {
        door,
        roster,
        farewells,
        metrics,
        reading,
        request_timeout: config.request_timeout,
        max_body_bytes: config.max_body_bytes,
        log_prefix_hashes: config.telemetry.log_prefix_hashes,
        started: unix_seconds(),
        stopping: AtomicBool::new(false),
        halt: watch::Sender::new(false),
    });
    started(address);
    serve(listener, app, limits(&config), shutdown).await;
    // All requests are gone by now, and with them all handles: the farewells end by themselves.
    let _ = timeout(LAST_WORDS, farewell_task.join()).await;
    drop((worker_tasks, settle_task, door_task));
    telemetry.stop(LAST_TELEMETRY).await;
    endpoint.close();
    let _ = timeout(LAST_WORDS, endpoint.closed()).await;
    Ok(())
}

async fn load(config: &GatewayConfig) -> Result<Reading, StartError> {
    let path = config.tokenizer.clone();
    let (threads, default_max_tokens) = (config.tokenizer_threads, config.default_max_tokens);
    let loading = move || Reading::load(Path::new(&path), threads, default_max_tokens);
    let loaded = tokio::task::spawn_blocking(loading).await;
    Ok(loaded.map_err(|e| StartError::Internal(e.to_string()))??)
}

const fn limits(config: &GatewayConfig) -> Limits {
    Limits {
        connections: config.max_connections,
        header_timeout: config.header_timeout,
        write_timeout: config.request_timeout,
        drain_timeout: config.drain_timeout,
    }
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
