//! Loading and opening everything that a worker stands on.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tandem_config::WorkerConfig;
use tandem_core::blocks::{BlockHash, BlockSeed};
use tandem_core::layout::{LayoutError, WorkerLayout};
use tandem_core::{Incarnation, WorkerId, WorkerRole};
use tandem_engine::{
    Arenas, EmbeddedEngine, EmbeddedModel, Engine, EngineDescription, EngineOptions, Event,
    ModelOptions, StepPlan, StepWatch,
};
use tandem_text::TextModel;
use tandem_wire::{ControlOptions, Endpoint, Identity, proto};
use tokio::sync::mpsc;

use crate::fabrics::{Fabrics, ShardEvents};
use crate::watcher::{self, Watcher};

/// Why a worker cannot start. One line each.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The model cannot be used.
    #[error(transparent)]
    Model(#[from] tandem_engine::LoadError),
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    Text(#[from] tandem_text::TextError),
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
}

impl Facts {
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

/// Events that wait for the worker's task; the engine waits behind them.
const ENGINE_EVENTS: usize = 4096;
/// Pages without which a worker is of no use: one full page and the next.
const LEAST_PAGES: u32 = 2;

/// Loads the model, makes the arena, opens the fabric, starts the engine and listens. Blocks.
#[allow(
    clippy::too_many_lines,
    reason = "one step after another, in the order that matters"
)]
pub(crate) fn start(config: &WorkerConfig) -> Result<Parts, StartError> {
    let identity = Identity::load(&config.identity.directory, &config.identity.name)?;
    let control = ControlOptions {
        keep_alive: config.control.keep_alive,
        idle_timeout: config.control.idle_timeout,
        ..ControlOptions::default()
    };
    // First, since it is quick and tells of a port in use.
    let endpoint = Endpoint::bind(config.listen, &identity, control)?;
    let model = EmbeddedModel::load(
        &config.model,
        ModelOptions {
            page_tokens: config.page_tokens,
            kv_dtype: config.kv_dtype,
            kv_order: config.kv_order,
            name: Some(
                config
                    .model_name
                    .clone()
                    .unwrap_or_else(|| served_name(&config.model)),
            ),
            sha256: config.model_sha256.as_ref().map(ToString::to_string),
        },
    )?;
    let text = Arc::new(TextModel::load(&config.model)?);
    let description = model.describe();
    let geometry = description.geometry;
    let ranks = config.tensor_parallel;
    // Ranks that replicate heads take memory for each copy.
    let page_bytes = WorkerLayout::tensor_parallel(geometry, 1, ranks)?.page_bytes();
    let pages = config.kv.pages(page_bytes);
    if pages < LEAST_PAGES {
        let geometry = geometry.to_string();
        return Err(StartError::NoPages {
            pages,
            least: LEAST_PAGES,
            geometry,
        });
    }
    let layout = Arc::new(WorkerLayout::tensor_parallel(geometry, pages, ranks)?);
    refuse_more_than_there_is(page_bytes as u64 * u64::from(pages))?;
    let arenas = Arenas::create("tandem-kv", Arc::clone(&layout))?;
    let (fabrics, fabric_events) = match config.role {
        WorkerRole::Both => (None, None),
        WorkerRole::Prefill | WorkerRole::Decode => {
            let (fabrics, events) = Fabrics::open(&config.fabric, &arenas)?;
            (Some(fabrics), Some(events))
        }
    };
    let (events, engine_events) = mpsc::channel(ENGINE_EVENTS);
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
    let engine = EmbeddedEngine::start(
        model,
        EngineOptions {
            chunk_tokens: config.chunk_tokens as u32,
            max_batch: config.max_batch,
            max_sequences: 2 * (config.queue_limit + pages as usize),
            threads: config.threads,
            ..EngineOptions::new(arenas, text)
        },
        watch,
        events,
    )?;
    let watcher = watching
        .map(|(fabrics, orders, queue)| {
            let most = config.fabric.max_write_bytes as u32;
            let layout = WorkerLayout::clone(&layout);
            Watcher::start(layout, most, engine.progress(), &fabrics, orders, queue)
        })
        .transpose()
        .map_err(StartError::Thread)?;
    let seed = || {
        BlockSeed::new(
            &description.fingerprint,
            &geometry,
            config.cache_salt.as_bytes(),
        )
    };
    let facts = Facts {
        blocks: config.prefix_cache.then(seed),
        id: config.id.clone(),
        role: config.role,
        incarnation: Incarnation(rand::random()),
        engine: description,
        layout,
        fabrics,
    };
    let engine = Arc::new(engine);
    Ok(Parts {
        facts: Arc::new(facts),
        engine,
        engine_events,
        fabric_events,
        watcher,
        endpoint,
    })
}

/// The name that clients ask for where none is configured: the file's, without its ending and its
/// quantisation (`SmolLM2-135M-Instruct.Q4_1.gguf` is `SmolLM2-135M-Instruct`). The name inside a
/// GGUF file is often that of a training run.
fn served_name(model: &Path) -> String {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".gguf").unwrap_or(&name);
    let quantised = |tail: &str| {
        let tail = tail.to_ascii_uppercase();
        let float = matches!(tail.as_str(), "F16" | "BF16" | "F32");
        float
            || tail
                .strip_prefix(['Q', 'I'])
                .is_some_and(|t| t.contains('_'))
    };
    match stem.rsplit_once(['.', '-']) {
        Some((head, tail)) if quantised(tail) && !head.is_empty() => head.to_owned(),
        _ => stem.to_owned(),
    }
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

/// For workers that push nothing.
struct NoWatch;

impl StepWatch for NoWatch {
    fn step_planned(&mut self, _: StepPlan) {}
}

fn refuse_more_than_there_is(arena: u64) -> Result<(), StartError> {
    let system = rustix::system::sysinfo();
    let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
    if arena <= machine {
        return Ok(());
    }
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    Err(StartError::TooLarge {
        arena: gib(arena),
        machine: gib(machine),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_after_its_file_without_the_quantisation() {
        for (file, name) in [
            ("m/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
            ("Llama-3.2-1B-Instruct-Q8_0.gguf", "Llama-3.2-1B-Instruct"),
            ("qwen-bf16.gguf", "qwen"),
            ("models/SmolLM2-135M", "SmolLM2-135M"),
            ("Q4_1.gguf", "Q4_1"),
        ] {
            assert_eq!(served_name(Path::new(file)), name);
        }
    }
}
