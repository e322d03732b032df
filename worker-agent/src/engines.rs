//! Where a worker's engine comes from: this process, where it computes or only takes the time, or another
//! one over a socket.

use std::sync::Arc;
use std::time::Instant;

use tandem_config::{
    EngineConfig, PROFILES, ProfileSource, TimedConfig, WorkerConfig, load_profile, parse_profile,
};
use tandem_core::WorkerRole;
use tandem_core::layout::{LayoutError, WorkerLayout};
use tandem_engine::{
    Arenas, Clock, EmbeddedEngine, EmbeddedModel, Engine, EngineDescription, EngineOptions, Event,
    Grammars, JumpClock, ModelOptions, StepPlan, StepWatch, TimedEngine, TimedModel,
    TimedModelOptions, TimedOptions, WallClock,
};
use tandem_engine_link::{Attached, Host};
use tandem_memory::HostMemory;
use tandem_text::{TextModel, served_name};
use tandem_timing::Profile;
use tokio::sync::mpsc;

use crate::start::StartError;

/// Events that wait for the worker's task; the engine waits behind them.
const ENGINE_EVENTS: usize = 4096;
/// Pages without which a worker is of no use: one full page and the next.
const LEAST_PAGES: u32 = 2;

/// An engine that is ready to start.
pub(crate) enum Prepared {
    /// It will run in this process.
    Local(Box<Local>),
    /// It runs in another one.
    Remote(Attached),
}

pub(crate) struct Local {
    model: Model,
    text: Arc<TextModel>,
    grammars: Arc<Grammars>,
    arenas: Arenas,
    memory: Vec<Arc<HostMemory>>,
}

enum Model {
    /// It computes.
    Embedded(EmbeddedModel),
    /// It takes the time, at this scale.
    Timed(TimedModel, f64),
}

impl Prepared {
    /// Loads the model and makes its arenas, or attaches to the engine that has done so. Blocks.
    pub(crate) fn new(config: &WorkerConfig) -> Result<Self, StartError> {
        let Some(socket) = &config.engine_socket else {
            return Ok(Self::Local(Box::new(Local::load(config)?)));
        };
        let deadline = Instant::now() + config.engine_wait;
        let attached = tandem_engine_link::attach(socket, deadline)?;
        enough(attached.layout())?;
        Ok(Self::Remote(attached))
    }

    pub(crate) fn describe(&self) -> EngineDescription {
        match self {
            Self::Local(local) => local.model.describe(),
            Self::Remote(attached) => attached.description().clone(),
        }
    }

    pub(crate) fn layout(&self) -> Arc<WorkerLayout> {
        match self {
            Self::Local(local) => Arc::clone(local.arenas.layout()),
            Self::Remote(attached) => Arc::clone(attached.layout()),
        }
    }

    /// What compiles constraints; the engine's own, where it runs here.
    pub(crate) fn grammars(&self) -> Option<Arc<Grammars>> {
        match self {
            Self::Local(local) => Some(Arc::clone(&local.grammars)),
            Self::Remote(_) => None,
        }
    }

    /// Each shard's memory.
    pub(crate) fn memory(&self) -> &[Arc<HostMemory>] {
        match self {
            Self::Local(local) => &local.memory,
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
            Self::Local(local) => local.start(config, watch, events)?,
            Self::Remote(attached) => Arc::new(attached.start(watch, events)?),
        };
        Ok((engine, received))
    }
}

impl Model {
    fn load(config: &WorkerConfig, text: &TextModel) -> Result<Self, StartError> {
        match &config.engine {
            EngineConfig::Embedded => Self::embedded(config).map(Self::Embedded),
            EngineConfig::Timed(timed) => {
                let options = TimedModelOptions {
                    page_tokens: config.page_tokens,
                    kv_order: config.kv_order,
                    entry_bytes: timed.entry_bytes,
                    name: config.model_name.clone(),
                };
                let model = TimedModel::new(profile(timed)?, text, options)?;
                Ok(Self::Timed(model, timed.time_scale))
            }
        }
    }

    fn embedded(config: &WorkerConfig) -> Result<EmbeddedModel, StartError> {
        let name = config.model_name.clone();
        let options = ModelOptions {
            page_tokens: config.page_tokens,
            kv_dtype: config.kv_dtype,
            kv_order: config.kv_order,
            name: Some(name.unwrap_or_else(|| served_name(&config.model))),
            sha256: config.model_sha256.as_ref().map(ToString::to_string),
        };
        Ok(EmbeddedModel::load(&config.model, options)?)
    }

    fn describe(&self) -> EngineDescription {
        match self {
            Self::Embedded(model) => model.describe(),
            Self::Timed(model, _) => model.describe(),
        }
    }

    /// Pages that the GPUs whose time it takes have room for.
    fn room(&self) -> Option<u32> {
        match self {
            Self::Embedded(_) => None,
            Self::Timed(model, _) => Some(model.room()),
        }
    }

    fn layout(&self, pages: u32, ranks: u16) -> Result<WorkerLayout, LayoutError> {
        match self {
            Self::Embedded(model) => model.layout(pages, ranks),
            Self::Timed(model, _) => model.layout(pages, ranks),
        }
    }
}

fn profile(timed: &TimedConfig) -> Result<Profile, StartError> {
    match &timed.profile {
        ProfileSource::File(path) => Ok(load_profile(path)?),
        ProfileSource::Shipped(name) => {
            let found = PROFILES.iter().find(|(known, _)| known == name);
            let (name, text) = found.expect("configuration knows those that there are");
            let read = parse_profile(text, name.as_ref());
            Ok(read.expect("a test reads every profile that comes with Tandem"))
        }
    }
}

impl Local {
    fn load(config: &WorkerConfig) -> Result<Self, StartError> {
        let text = Arc::new(TextModel::load(&config.model)?);
        let model = Model::load(config, &text)?;
        let ranks = config.tensor_parallel;
        // Ranks that replicate heads take memory for each copy.
        let page_bytes = model.layout(1, ranks)?.page_bytes();
        // One at least makes a layout, which then says whether it is enough.
        let pages = config.kv.pages(page_bytes, model.room());
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
    ) -> Result<Arc<dyn Engine>, StartError> {
        let pages = self.arenas.layout().pages() as usize;
        let chunk_tokens = config.chunk_tokens as u32;
        let max_sequences = 2 * (config.queue_limit + pages);
        match self.model {
            Model::Embedded(model) => {
                let options = EngineOptions {
                    chunk_tokens,
                    max_batch: config.max_batch,
                    max_sequences,
                    threads: config.threads,
                    speculative_tokens: config.speculative_tokens,
                    grammars: self.grammars,
                    ..EngineOptions::new(self.arenas, self.text)
                };
                let engine = EmbeddedEngine::start(model, options, watch, events)?;
                Ok(Arc::new(engine))
            }
            Model::Timed(model, scale) => {
                let clock: Box<dyn Clock> = match scale {
                    0.0 => Box::new(JumpClock::default()),
                    scale => Box::new(WallClock::scaled(scale)),
                };
                let options = TimedOptions {
                    arenas: self.arenas,
                    chunk_tokens,
                    max_batch: config.max_batch,
                    max_sequences,
                    pushes: config.role == WorkerRole::Prefill,
                    clock,
                    text: self.text,
                    grammars: self.grammars,
                };
                Ok(Arc::new(TimedEngine::start(model, options, watch, events)?))
            }
        }
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
    let local = Local::load(config)?;
    let (layout, memory) = (Arc::clone(local.arenas.layout()), local.memory.clone());
    let (events, received) = mpsc::channel(ENGINE_EVENTS);
    let engine = local.start(config, host.watch(), events)?;
    started(engine.describe(), layout.pages());
    Ok(host.serve(&*engine, &layout, &memory, received)?)
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
