//! A worker's whole life.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tandem_config::WorkerConfig;
use tandem_core::WorkerRole;
use tandem_telemetry::Telemetry;
use tandem_wire::{Endpoint, follow_identity, task};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::decode::DecodeTask;
use crate::fabrics::Fabrics;
use crate::load::Gauges;
use crate::peers::Peers;
use crate::prefill::PrefillTask;
use crate::serve::{self, Services};
use crate::start::{self, Parts, StartError, Started};

/// Time for what was cancelled to drain after the worker was told to stop.
const DRAIN: Duration = Duration::from_secs(3);
/// Time for the fabric and QUIC to close.
const CLOSE: Duration = Duration::from_secs(1);
/// A fabric thread that shows no life for so long never will again: libfabric's shm can hang for ever
/// in a lock that a killed peer held. The process must end, so that its peers learn of it.
const HUNG: Duration = Duration::from_secs(5);
/// Looks in that time.
const LOOKS: u32 = 10;

/// Runs a worker until `shutdown` is ready. `started` is called once, when it can be reached.
///
/// Errors are one line each: of the model, the ports, the fabric, the certificates.
pub async fn run(
    config: WorkerConfig,
    shutdown: impl Future<Output = ()> + Send,
    started: impl FnOnce(Started) + Send,
) -> Result<(), StartError> {
    // Loading blocks for seconds; quinn needs the runtime's context while it binds.
    let telemetry = Telemetry::start(&config.telemetry, config.id.as_str(), config.role.as_str())?;
    let (config, parts) = tokio::task::block_in_place(|| {
        let parts = start::start(&config, telemetry.spans());
        (config, parts)
    });
    let Parts {
        facts,
        engine,
        engine_events,
        fabric_events,
        watcher,
        endpoint,
    } = parts?;
    let gauges = Arc::new(Gauges::new());
    let (stop, stopped) = oneshot::channel();
    let fabrics = facts.fabrics.clone();
    let mut services = Services {
        endpoint: endpoint.clone(),
        facts: Arc::clone(&facts),
        gauges: Arc::clone(&gauges),
        cache: Arc::default(),
        decode: None,
        prefill: None,
    };
    let work = match (facts.role, fabrics.clone(), fabric_events, watcher) {
        (WorkerRole::Prefill, Some(fabrics), Some(events), Some(watcher)) => {
            let orders = watcher.orders.clone();
            let task = PrefillTask::new(&config, &facts, fabrics, engine, orders, gauges);
            services.prefill = Some(task.handle());
            services.cache = task.cache();
            task::spawn("prefill", task.run(engine_events, events, watcher, stopped))
        }
        (_, _, fabric_events, _) => {
            let peers = Peers::new(endpoint.clone());
            let task = DecodeTask::new(&config, Arc::clone(&facts), engine, peers, gauges);
            services.decode = Some(task.handle());
            services.cache = task.cache();
            task::spawn("decode", task.run(engine_events, fabric_events, stopped))
        }
    };
    let identity = &config.identity;
    let _renewals = follow_identity(&endpoint, &identity.directory, &identity.name);
    let serving = task::spawn("serve", serve::run(services));
    let told = facts.started(endpoint.address());
    tracing::info!(id = %told.id, role = %told.role, address = %told.address,
        provider = told.provider, model = told.model, pages = told.pages, "worker started");
    started(told);
    let work = work.join();
    tokio::pin!(work);
    let ended = tokio::select! {
        ended = &mut work => ended,
        () = hung(fabrics.as_ref()) => return Err(StartError::FabricHung),
        () = shutdown => {
            let _ = stop.send(());
            match timeout(DRAIN, &mut work).await {
                Ok(ended) => ended,
                Err(_) => {
                    tracing::warn!("requests did not drain in time");
                    Some(Ok(()))
                }
            }
        }
    };
    close(fabrics.as_ref(), &endpoint).await;
    drop(serving);
    telemetry.stop(CLOSE).await;
    ended.unwrap_or(Err(StartError::EngineDied))
}

async fn close(fabrics: Option<&Fabrics>, endpoint: &Endpoint) {
    for fabric in fabrics.iter().flat_map(|f| f.all()) {
        let _ = timeout(CLOSE, fabric.clone().shutdown()).await;
    }
    endpoint.close();
    let _ = timeout(CLOSE, endpoint.closed()).await;
}

/// Waits until the thread of some fabric hangs.
async fn hung(fabrics: Option<&Fabrics>) {
    let Some(fabrics) = fabrics else {
        return std::future::pending().await;
    };
    // Counted in looks, not by the clock: a process that was stopped and goes on has not hung.
    let mut looks = 0;
    while looks < LOOKS {
        tokio::time::sleep(HUNG / LOOKS).await;
        let silent = fabrics.silent_for() > HUNG / 2;
        looks = if silent { looks + 1 } else { 0 };
    }
}
