//! Where the processes' own crates are entered; nothing else here calls them.

use tandem_config::{GatewayConfig, WorkerConfig};
use tandem_gateway::{Gateway, Origin};
use tandem_worker_agent::StartError;

use crate::failure::Failure;
use crate::serve::Shutdown;
use crate::started::Started;
use crate::supervisor;

/// A gateway that follows the file it came from, until `shutdown` resolves.
pub(crate) async fn gateway(
    config: GatewayConfig,
    origin: Origin,
    shutdown: Shutdown,
) -> Result<(), Failure> {
    let started = |started: tandem_gateway::Started| {
        let name = || "gateway".to_owned();
        let started = Started {
            id: name(),
            role: name(),
            address: started.address,
            admin: started.admin,
            provider: None,
            pages: None,
            model: None,
        };
        started.announce();
    };
    let gateway = Gateway::new(config).following(origin);
    let run = gateway.run(resolved(shutdown), started);
    run.await.map_err(|error| match error {
        tandem_gateway::StartError::Internal(_) => Failure::fault(error),
        _ => Failure::mendable(error),
    })
}

/// A worker, until `shutdown` resolves.
pub(crate) async fn worker(config: WorkerConfig, shutdown: Shutdown) -> Result<(), Failure> {
    let started = |started: tandem_worker_agent::Started| {
        let started = Started {
            id: started.id.to_string(),
            role: started.role.to_string(),
            address: started.address,
            admin: None,
            provider: started.provider,
            pages: Some(started.pages),
            model: Some(started.model),
        };
        started.announce();
    };
    let run = tandem_worker_agent::run(config, resolved(shutdown), started);
    run.await.map_err(failed)
}

/// An engine for a worker in another process, until it dies.
pub(crate) fn engine(config: &WorkerConfig) -> Result<(), Failure> {
    let socket = config.engine_socket.clone().unwrap_or_default();
    let run = tandem_worker_agent::run_engine(config, |engine, pages| {
        tracing::info!(
            model = engine.model,
            pages,
            socket = %socket.display(),
            "engine started"
        );
        supervisor::ready();
    });
    run.map_err(failed)
}

fn failed(error: StartError) -> Failure {
    match error {
        StartError::Thread(_)
        | StartError::EngineDied
        | StartError::FabricDied
        | StartError::FabricHung
        | StartError::WatcherDied => Failure::fault(error),
        _ => Failure::mendable(error),
    }
}

/// A sender that is gone asks for an end too: nobody else could any more.
async fn resolved(shutdown: Shutdown) {
    let _ = shutdown.await;
}
