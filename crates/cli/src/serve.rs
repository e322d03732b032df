//! `tandem gateway` and `tandem worker`: one process of a fleet.

use std::future::Future;
use std::path::{Path, PathBuf};

use tandem_config::{Config, GatewayConfig, WorkerConfig};
use tandem_gateway::Origin;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};

use crate::failure::Failure;
use crate::lifetime::{StopSignals, hand_on_hangups};
use crate::{check, entry, logging, supervisor};

/// Runs a gateway until a signal stops it; a second signal stops it at once. SIGHUP has it read its
/// configuration again.
pub(crate) fn gateway(path: &Path) -> Result<(), Failure> {
    let (hangups, heard) = mpsc::channel(1);
    let (config, origin) = Origin::load(path, heard, logging::change, check::describe)?;
    let gateway: GatewayConfig = config.gateway.ok_or_else(|| lacks(path, "gateway"))?;
    logging::start(config.log);
    serve(StopSignals::listen_but_for_hangups, |shutdown| async move {
        // Dropped, and so aborted, when the gateway has ended.
        let mut hand_on = JoinSet::new();
        hand_on.spawn(hand_on_hangups(hangups)?);
        entry::gateway(gateway, origin, shutdown).await
    })
}

/// Runs workers until a signal stops them, or one of them ends; a second signal stops them at once.
pub(crate) fn worker(paths: &[PathBuf]) -> Result<(), Failure> {
    let mut workers = Vec::new();
    let mut logs = Vec::new();
    for path in paths {
        let Config { worker, log, .. } = Config::load(path)?;
        let config: WorkerConfig = worker.ok_or_else(|| lacks(path, "worker"))?;
        workers.push(config);
        logs.push(log);
    }
    let log = logs.pop().unwrap_or_default();
    if logs.iter().any(|other| *other != log) {
        return Err(Failure::mendable(
            "workers of one process have one log: their files differ in [log]",
        ));
    }
    logging::start(log);
    serve(StopSignals::listen, |shutdown| all(workers, shutdown))
}

/// All of these until `shutdown` resolves or one of them ends.
async fn all(configs: Vec<WorkerConfig>, shutdown: Shutdown) -> Result<(), Failure> {
    let mut stops = Vec::new();
    let mut workers = JoinSet::new();
    for config in configs {
        let (stop, stopped) = oneshot::channel();
        stops.push(stop);
        workers.spawn(entry::worker(config, stopped));
    }
    let first = tokio::select! {
        ended = workers.join_next() => ended,
        _ = shutdown => None,
    };
    // Whoever waits for a sender that is gone is to end.
    drop(stops);
    let mut outcome = first.map_or(Ok(()), ended);
    while let Some(next) = workers.join_next().await {
        outcome = outcome.and(ended(next));
    }
    outcome
}

fn ended(worker: Result<Result<(), Failure>, JoinError>) -> Result<(), Failure> {
    worker.unwrap_or_else(|error| Err(Failure::fault(format!("a worker: {error}"))))
}

/// Runs an engine until a signal ends the process.
pub(crate) fn engine(path: &Path) -> Result<(), Failure> {
    let Config { worker, log, .. } = Config::load(path)?;
    let config: WorkerConfig = worker.ok_or_else(|| lacks(path, "worker"))?;
    logging::start(log);
    entry::engine(&config)
}

fn lacks(path: &Path, table: &str) -> Failure {
    Failure::mendable(format!("{}: has no [{table}]", path.display()))
}

/// Resolves when the process was asked to end.
pub(crate) type Shutdown = oneshot::Receiver<()>;

fn serve<F>(
    listen: impl FnOnce() -> Result<StopSignals, Failure>,
    run: impl FnOnce(Shutdown) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("cannot start threads: {error}")))?;
    runtime.block_on(async {
        let mut signals = listen()?;
        let (stop, shutdown) = oneshot::channel();
        // Dropped, and so aborted, when the process has ended by itself.
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            signals.next().await;
            tracing::info!("asked to stop");
            supervisor::stopping();
            let _ = stop.send(());
            signals.exit_at_next().await;
        });
        run(shutdown).await
    })
}
