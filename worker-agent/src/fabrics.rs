//! The fabrics of a worker's shards: one for each, over that shard's arena and NICs.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tandem_config::FabricConfig;
use tandem_fabric::{
    Counter, Fabric, FabricEvent, FabricEvents, FabricInfo, FabricOptions, FabricStats, IdlePolicy,
    OpenError, is_software,
};
use tandem_memory::HostMemory;

use crate::placement::{Core, Place};

/// All of them; a cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Fabrics(Arc<[Fabric]>);

/// What they report, with the shard.
#[derive(Debug)]
pub(crate) struct ShardEvents {
    shards: Vec<FabricEvents>,
    /// Who is asked first, in turn.
    first: usize,
}

impl Fabrics {
    /// Opens one for each arena. Blocks.
    pub(crate) fn open(
        config: &FabricConfig,
        places: &[Place],
        arenas: &[Arc<HostMemory>],
    ) -> Result<(Self, ShardEvents), OpenError> {
        let (mut fabrics, mut shards) = (Vec::new(), Vec::new());
        for (shard, (memory, place)) in arenas.iter().zip(places).enumerate() {
            let options = options(config, shard, place);
            let (fabric, events) = Fabric::open(options, Arc::clone(memory))?;
            fabrics.push(fabric);
            shards.push(events);
        }
        Ok((Self(fabrics.into()), ShardEvents { shards, first: 0 }))
    }

    pub(crate) fn shard(&self, shard: u16) -> &Fabric {
        &self.0[usize::from(shard)]
    }

    pub(crate) fn all(&self) -> &[Fabric] {
        &self.0
    }

    /// What was opened; all shards have the same provider.
    pub(crate) fn info(&self) -> &FabricInfo {
        self.0[0].info()
    }

    /// A counter, over all shards.
    pub(crate) fn sum(&self, counter: fn(&FabricStats) -> &Counter) -> u64 {
        self.0.iter().map(|f| counter(f.stats()).get()).sum()
    }

    /// The longest that any of their threads has not been seen outside libfabric.
    pub(crate) fn silent_for(&self) -> Duration {
        let silent = self.0.iter().map(Fabric::silent_for);
        silent.max().unwrap_or_default()
    }
}

impl ShardEvents {
    /// The next event; `None` when one of the fabrics has ended. Can be cancelled.
    pub(crate) async fn recv(&mut self) -> Option<(u16, FabricEvent)> {
        std::future::poll_fn(|cx| {
            let shards = self.shards.len();
            for i in 0..shards {
                let shard = (self.first + i) % shards;
                if let Poll::Ready(event) = self.shards[shard].poll_recv(cx) {
                    self.first = (shard + 1) % shards;
                    return Poll::Ready(event.map(|event| (shard as u16, event)));
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn options(config: &FabricConfig, shard: usize, place: &Place) -> FabricOptions {
    // A device's NICs are RDMA devices, of which software providers know nothing.
    let named = config.nics.iter().any(Option::is_some) || is_software(&config.provider);
    let nics = match place.nics.as_slice() {
        own if !named && !own.is_empty() => own.iter().cloned().map(Some).collect(),
        _ => config.nics.clone(),
    };
    FabricOptions {
        library: config.library.clone(),
        provider: config.provider.clone(),
        require_rdma: config.require_rdma,
        nics,
        bind: Some(config.bind),
        cpu: place.fabric.map(|core| core.cpu),
        idle: match place.fabric {
            Some(Core { own: true, .. }) => IdlePolicy::dedicated(),
            _ => IdlePolicy::default(),
        },
        in_flight_writes: config.in_flight_writes as u32,
        completion_entries: config.completion_entries,
        disorder: config.disorder.map(|seed| seed.wrapping_add(shard as u64)),
        ..FabricOptions::default()
    }
}
