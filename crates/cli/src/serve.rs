//! `tandem gateway` and `tandem worker`: one process of a fleet.

use std::future::Future;
use std::path::Path;

use tandem_config::{Config, GatewayConfig, WorkerConfig};
use tandem_gateway::Origin;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

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

/// Runs a worker until a signal stops it; a second signal stops it at once.
pub(crate) fn worker(path: &Path) -> Result<(), Failure> {
    let Config { worker, log, .. } = Config::load(path)?;
    let config: WorkerConfig = worker.ok_or_else(|| lacks(path, "worker"))?;
    logging::start(log);
    serve(StopSignals::listen, |shutdown| {
        entry::worker(config, shutdown)
    })
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
