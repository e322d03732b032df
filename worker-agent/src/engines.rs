//! Where a worker's engine comes from: embedded in this process, or from another one over a socket.

use std::sync::Arc;
use std::time::Instant;

use tandem_config::WorkerConfig;
use tandem_core::layout::WorkerLayout;
use tandem_engine::{
    Arenas, EmbeddedEngine, EmbeddedModel, Engine, EngineDescription, EngineOptions, Event,
    Grammars, ModelOptions, StepPlan, StepWatch,
};
use tandem_engine_link::{Attached, Host};
use tandem_memory::HostMemory;
use tandem_text::{TextModel, served_name};
use tokio::sync::mpsc;

use crate::start::StartError;

/// Events that wait for the worker's task; the engine waits behind them.
const ENGINE_EVENTS: usize = 4096;
/// Pages without which a worker is of no use: one full page and the next.
const LEAST_PAGES: u32 = 2;

/// An engine that is ready to start.
pub(crate) enum Prepared {
    /// It will run in this process.
    Embedded(Box<Embedded>),
    /// It runs in another one.
    Remote(Attached),
}

pub(crate) struct Embedded {
    model: EmbeddedModel,
    text: Arc<TextModel>,
    grammars: Arc<Grammars>,
    arenas: Arenas,
    memory: Vec<Arc<HostMemory>>,
}

impl Prepared {
    /// Loads the model and makes its arenas, or attaches to the engine that has done so. Blocks.
    pub(crate) fn new(config: &WorkerConfig) -> Result<Self, StartError> {
        let Some(socket) = &config.engine_socket else {
            return Ok(Self::Embedded(Box::new(Embedded::load(config)?)));
        };
        let deadline = Instant::now() + config.engine_wait;
        let attached = tandem_engine_link::attach(socket, deadline)?;
        enough(attached.layout())?;
        Ok(Self::Remote(attached))
    }

    pub(crate) fn describe(&self) -> EngineDescription {
        match self {
            Self::Embedded(embedded) => embedded.model.describe(),
            Self::Remote(attached) => attached.description().clone(),
        }
    }

    pub(crate) fn layout(&self) -> Arc<WorkerLayout> {
        match self {
            Self::Embedded(embedded) => Arc::clone(embedded.arenas.layout()),
            Self::Remote(attached) => Arc::clone(attached.layout()),
        }
    }

    /// What compiles constraints; the engine's own, where it runs here.
    pub(crate) fn grammars(&self) -> Option<Arc<Grammars>> {
        match self {
            Self::Embedded(embedded) => Some(Arc::clone(&embedded.grammars)),
            Self::Remote(_) => None,
        }
    }

    /// Each shard's memory.
    pub(crate) fn memory(&self) -> &[Arc<HostMemory>] {
        match self {
            Self::Embedded(embedded) => &embedded.memory,
            Self::Remote(attached) => attached.arenas(),
        }
    }

    pub(crate) fn start(
        self,
        config: &WorkerConfig,
        watch: Box<dyn StepWatch>,
    ) -> Result<(Arc<dyn Engine>, mpsc::Receiver<Event>), StartError> {
        let (events, received) = mpsc::channel(ENGINE_EVENTS);
        let engine: Arc<dyn Engine> = match self {
            Self::Embedded(embedded) => Arc::new(embedded.start(config, watch, events)?),
            Self::Remote(attached) => Arc::new(attached.start(watch, events)?),
        };
        Ok((engine, received))
    }
}

impl Embedded {
    fn load(config: &WorkerConfig) -> Result<Self, StartError> {
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
        let ranks = config.tensor_parallel;
        // Ranks that replicate heads take memory for each copy.
        let page_bytes = model.layout(1, ranks)?.page_bytes();
        // One at least makes a layout, which then says whether it is enough.
        let pages = config.kv.pages(page_bytes);
        let layout = model.layout(pages.max(1), ranks)?;
        if pages == 0 {
            return Err(too_few(0, &layout));
        }
        enough(&layout)?;
        refuse_more_than_there_is(page_bytes as u64 * u64::from(pages))?;
        let shards = layout.shards().len();
        let arenas = Arenas::create("tandem-kv", Arc::new(layout))?;
        let memory = (0..shards).map(|s| Arc::clone(arenas.memory(s)));
        Ok(Self {
            model,
            grammars: Arc::new(Grammars::new(Arc::clone(&text))),
            text,
            memory: memory.collect(),
            arenas,
        })
    }

    fn start(
        self,
        config: &WorkerConfig,
        watch: Box<dyn StepWatch>,
        events: mpsc::Sender<Event>,
    ) -> Result<EmbeddedEngine, StartError> {
        let pages = self.arenas.layout().pages() as usize;
        let options = EngineOptions {
            chunk_tokens: config.chunk_tokens as u32,
            max_batch: config.max_batch,
            max_sequences: 2 * (config.queue_limit + pages),
            threads: config.threads,
            speculative_tokens: config.speculative_tokens,
            grammars: self.grammars,
            ..EngineOptions::new(self.arenas, self.text)
        };
        Ok(EmbeddedEngine::start(self.model, options, watch, events)?)
    }
}

/// Runs an engine for agents in other processes, at the configured socket. Blocks until the engine
/// dies; ends with the process otherwise. `started` is called once, when agents can attach.
pub fn run_engine(
    config: &WorkerConfig,
    started: impl FnOnce(&EngineDescription, u32),
) -> Result<(), StartError> {
    let socket = config.engine_socket.as_ref();
    let socket = socket.ok_or(StartError::NoSocket)?;
    // First, since it is quick and tells of another engine.
    let host = Host::bind(socket)?;
    let embedded = Embedded::load(config)?;
    let (layout, memory) = (
        Arc::clone(embedded.arenas.layout()),
        embedded.memory.clone(),
    );
    let (events, received) = mpsc::channel(ENGINE_EVENTS);
    let engine = embedded.start(config, host.watch(), events)?;
    started(engine.describe(), layout.pages());
    Ok(host.serve(&engine, &layout, &memory, received)?)
}

/// For workers that push nothing.
pub(crate) struct NoWatch;

impl StepWatch for NoWatch {
    fn step_planned(&mut self, _: StepPlan) {}
}

fn enough(layout: &WorkerLayout) -> Result<(), StartError> {
    if layout.pages() < LEAST_PAGES {
        return Err(too_few(layout.pages(), layout));
    }
    Ok(())
}

fn too_few(pages: u32, layout: &WorkerLayout) -> StartError {
    StartError::NoPages {
        pages,
        least: LEAST_PAGES,
        geometry: layout.geometry().to_string(),
    }
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
