//! `tandem gateway` and `tandem worker`: one process of a fleet.

use std::future::Future;
use std::path::Path;

use tandem_config::{Config, GatewayConfig, WorkerConfig};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::entry;
use crate::failure::Failure;
use crate::lifetime::StopSignals;
use crate::{logging, supervisor};

/// Runs a gateway until a signal stops it; a second signal stops it at once.
pub(crate) fn gateway(path: &Path) -> Result<(), Failure> {
    let Config { gateway, log, .. } = Config::load(path)?;
    let config: GatewayConfig = gateway.ok_or_else(|| lacks(path, "gateway"))?;
    logging::start(log);
    serve(|shutdown| entry::gateway(config, shutdown))
}

/// Runs a worker until a signal stops it; a second signal stops it at once.
pub(crate) fn worker(path: &Path) -> Result<(), Failure> {
    let Config { worker, log, .. } = Config::load(path)?;
    let config: WorkerConfig = worker.ok_or_else(|| lacks(path, "worker"))?;
    logging::start(log);
    serve(|shutdown| entry::worker(config, shutdown))
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

fn serve<F>(run: impl FnOnce(Shutdown) -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("cannot start threads: {error}")))?;
    runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
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
