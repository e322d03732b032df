//! Loading and opening everything that a worker stands on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tandem_config::WorkerConfig;
use tandem_core::blocks::{BlockHash, BlockSeed};
use tandem_core::fleet::LABELS as MAX_LABELS;
use tandem_core::layout::{LayoutError, WorkerLayout};
use tandem_core::{Incarnation, RequestId, WorkerId, WorkerRole};
use tandem_engine::{Engine, EngineDescription, Event, StepWatch};
use tandem_fabric::Fabric;
use tandem_telemetry::Spans;
use tandem_wire::{ControlOptions, Endpoint, Identity, proto};
use tokio::sync::mpsc;

use crate::decode::constraint::Constraints;
use crate::engines::{NoWatch, Prepared};
use crate::fabrics::{Fabrics, ShardEvents};
use crate::placement::{self, Core};
use crate::watcher::{self, Pace, Watcher};

/// Why a worker cannot start. One line each.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The model cannot be used.
    #[error(transparent)]
    Model(#[from] tandem_engine::LoadError),
    /// The timed engine's model makes no sense as configured.
    #[error("[engine] {0}")]
    Timed(#[from] tandem_engine::TimedModelError),
    /// The timed engine's profile cannot be used.
    #[error(transparent)]
    Profile(#[from] tandem_config::ConfigError),
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    Text(#[from] tandem_text::TextError),
    /// The engine in another process cannot be used.
    #[error(transparent)]
    Link(#[from] tandem_engine_link::LinkError),
    /// An engine process has nowhere to listen.
    #[error("[worker] has no engine_socket: an engine of its own needs one to listen at")]
    NoSocket,
    /// Not a device for each shard.
    #[error("[worker] devices names {devices} devices for {shards} shards")]
    Devices {
        /// Named.
        devices: usize,
        /// Shards that there are.
        shards: usize,
    },
    /// A device that is not on this machine.
    #[error("device {device} is not on this machine; there is {}", there.join(", "))]
    NoDevice {
        /// Named.
        device: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// The machine's topology cannot be read.
    #[error(transparent)]
    Sysfs(#[from] tandem_topology::ReadError),
    /// The configured topology is not this machine's.
    #[error(transparent)]
    Topology(#[from] tandem_topology::MapError),
    /// The model's KV cache cannot be cut as configured.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// There is no room for a page.
    #[error("the KV cache holds {pages} pages; at least {least} are needed ({geometry})")]
    NoPages {
        /// Pages of the configured memory.
        pages: u32,
        /// Pages a worker needs.
        least: u32,
        /// What a page is.
        geometry: String,
    },
    /// The arena is larger than the machine's memory: it would be reserved, and the process killed when
    /// it fills.
    #[error(
        "the KV cache of {arena} is more than this machine's memory of {machine}: lower kv_memory or \
         kv_pages"
    )]
    TooLarge {
        /// The arena's size.
        arena: String,
        /// The machine's.
        machine: String,
    },
    /// There is no memory for the arena.
    #[error(transparent)]
    Memory(#[from] tandem_memory::CreateError),
    /// The fabric cannot be opened.
    #[error(transparent)]
    Fabric(#[from] tandem_fabric::OpenError),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] tandem_engine::StartError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Identity(#[from] tandem_wire::IdentityError),
    /// The control address cannot be used.
    #[error(transparent)]
    Control(#[from] tandem_wire::ConnectError),
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// Traces cannot be sent as configured.
    #[error(transparent)]
    Telemetry(#[from] tandem_telemetry::TelemetryError),
    /// The engine died while it ran.
    #[error("the engine died")]
    EngineDied,
    /// The watcher died while it ran.
    #[error("the watcher died")]
    WatcherDied,
    /// The fabric's thread hangs.
    #[error("the fabric's thread hangs in libfabric")]
    FabricHung,
    /// The fabric died while it ran.
    #[error("the fabric died")]
    FabricDied,
}

/// What a worker says when it can be reached.
#[derive(Clone, Debug)]
pub struct Started {
    /// Its name.
    pub id: WorkerId,
    /// What it does.
    pub role: WorkerRole,
    /// Its control address.
    pub address: SocketAddr,
    /// libfabric's provider; `None` where it needs none.
    pub provider: Option<String>,
    /// Model's name.
    pub model: String,
    /// Pages it has.
    pub pages: u32,
}

/// What everybody in a worker may know of it.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) id: WorkerId,
    pub(crate) role: WorkerRole,
    pub(crate) incarnation: Incarnation,
    pub(crate) engine: EngineDescription,
    pub(crate) layout: Arc<WorkerLayout>,
    pub(crate) fabrics: Option<Fabrics>,
    /// Where pages of finished requests are kept for others.
    pub(crate) blocks: Option<BlockSeed>,
    /// Where it stands and what it is.
    pub(crate) labels: BTreeMap<String, String>,
    /// Leases that were asked for.
    pub(crate) leases: AtomicU64,
    /// What constraints of answers can be used.
    pub(crate) constraints: Constraints,
    /// Where traces are told.
    pub(crate) spans: Spans,
}

impl Facts {
    /// A name for a lease that nobody had before. A gateway that lost its stream asks again under the
    /// same request id, and what is heard late of the first lease must not be taken for the second's.
    pub(crate) fn new_lease(&self) -> RequestId {
        RequestId(u128::from(self.leases.fetch_add(1, Ordering::Relaxed)))
    }

    /// Names of the whole blocks of these tokens; none where nothing is kept.
    pub(crate) fn blocks(&self, salt: &[u8], tokens: &[u32]) -> Arc<[BlockHash]> {
        let chain = |seed: &BlockSeed| seed.chain(salt, tokens).into();
        self.blocks.as_ref().map_or_else(|| [].into(), chain)
    }
}

/// A worker whose parts all stand.
pub(crate) struct Parts {
    pub(crate) facts: Arc<Facts>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) engine_events: mpsc::Receiver<Event>,
    pub(crate) fabric_events: Option<ShardEvents>,
    pub(crate) watcher: Option<Watcher>,
    pub(crate) endpoint: Endpoint,
}

/// Loads the model, makes the arena, opens the fabric, starts the engine and listens. Blocks.
#[allow(
    clippy::too_many_lines,
    reason = "one step after another, in the order that matters"
)]
pub(crate) fn start(config: &WorkerConfig, spans: Spans) -> Result<Parts, StartError> {
    let identity = Identity::load(&config.identity.directory, &config.identity.name)?;
    let control = ControlOptions {
        keep_alive: config.control.keep_alive,
        idle_timeout: config.control.idle_timeout,
        ..ControlOptions::default()
    };
    // First, since it is quick and tells of a port in use.
    let endpoint = Endpoint::bind(config.listen, &identity, control)?;
    let prepared = Prepared::new(config)?;
    let (description, layout) = (prepared.describe(), prepared.layout());
    let places = placement::places(config, layout.shards().len())?;
    let (fabrics, fabric_events) = match config.role {
        WorkerRole::Both => (None, None),
        WorkerRole::Prefill | WorkerRole::Decode => {
            let (fabrics, events) = Fabrics::open(&config.fabric, &places, prepared.memory())?;
            (Some(fabrics), Some(events))
        }
    };
    let (watch, watching): (Box<dyn StepWatch>, _) = match (&fabrics, config.role) {
        (Some(fabrics), WorkerRole::Prefill) => {
            let (orders, queue) = watcher::orders();
            (
                Box::new(orders.clone()),
                Some((fabrics.clone(), orders, queue)),
            )
        }
        _ => (Box::new(NoWatch), None),
    };
    let constraints = Constraints::new(prepared.grammars());
    let (engine, engine_events) = prepared.start(config, watch)?;
    let watcher = watching
        .map(|(fabrics, orders, queue)| {
            let most = config.fabric.max_write_bytes as u32;
            let layout = WorkerLayout::clone(&layout);
            let core = places.first().and_then(|p| p.watcher);
            let pace = match core {
                Some(Core { own: true, .. }) => Pace::Own,
                _ => Pace::Shared,
            };
            let on = (pace, core.map(|core| core.cpu));
            let pushers = fabrics.all().iter().map(Fabric::pusher).collect();
            let progress = engine.progress();
            Watcher::start(layout, most, progress, pushers, (orders, queue), on)
        })
        .transpose()
        .map_err(StartError::Thread)?;
    let seed = || {
        BlockSeed::new(
            &description.fingerprint,
            layout.geometry(),
            config.cache_salt.as_bytes(),
        )
    };
    let facts = Facts {
        blocks: config.prefix_cache.then(seed),
        labels: labels(config),
        id: config.id.clone(),
        role: config.role,
        incarnation: Incarnation(rand::random()),
        engine: description,
        layout,
        fabrics,
        leases: AtomicU64::new(1),
        constraints,
        spans,
    };
    Ok(Parts {
        facts: Arc::new(facts),
        engine,
        engine_events,
        fabric_events,
        watcher,
        endpoint,
    })
}

/// What its file says, and the machine that it runs on where the file does not.
fn labels(config: &WorkerConfig) -> BTreeMap<String, String> {
    let mut labels = config.labels.clone();
    if labels.len() < MAX_LABELS {
        let host = || {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned()
        };
        labels.entry("host".to_owned()).or_insert_with(host);
    }
    labels
}

impl Facts {
    /// What it says when a gateway registers it.
    pub(crate) fn welcome(&self, load: proto::Load) -> proto::Welcome {
        let provider = self
            .fabrics
            .as_ref()
            .map_or_else(proto::Provider::default, |fabrics| {
                let info = fabrics.info();
                proto::Provider {
                    name: info.provider.clone(),
                    library: info.version.to_string(),
                    software: info.software,
                    wire: info.wire(),
                }
            });
        proto::Welcome {
            version: tandem_wire::PROTOCOL_VERSION,
            worker: self.id.to_string(),
            incarnation: self.incarnation.0,
            role: proto::Role::from(self.role).into(),
            model: Some(proto::Model {
                name: self.engine.model.clone(),
                fingerprint: self.engine.fingerprint.clone(),
                context_length: self.engine.context_length,
                vocabulary: self.engine.vocabulary,
            }),
            geometry: Some(proto::Geometry::from(&*self.layout)),
            provider: Some(provider),
            load: Some(load),
            block_seed: self
                .blocks
                .map_or_else(Default::default, |seed| seed.start().0.to_vec().into()),
            labels: self.labels.clone().into_iter().collect(),
        }
    }

    pub(crate) fn started(&self, address: SocketAddr) -> Started {
        Started {
            id: self.id.clone(),
            role: self.role,
            address,
            provider: self.fabrics.as_ref().map(|f| f.info().provider.clone()),
            model: self.engine.model.clone(),
            pages: self.layout.pages(),
        }
    }
}

#[cfg(test)]
pub(crate) mod made;
