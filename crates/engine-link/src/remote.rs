//! The agent's side: an engine that runs in another process.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tandem_core::layout::WorkerLayout;
use tandem_engine::{Command, Engine, EngineDescription, Event, Progress, StepWatch};
use tandem_memory::HostMemory;
use tandem_wire::{ENGINE_PROTOCOL_VERSION, proto};
use tokio::sync::mpsc::Sender;

use crate::convert::{self, Heard};
use crate::{LinkError, broken, frame};

/// Commands that wait for the socket, at most.
const QUEUE: usize = 1024;
/// How long the engine may take to say hello.
const HELLO: Duration = Duration::from_secs(10);

/// An engine that said hello and was not started.
#[derive(Debug)]
pub struct Attached {
    stream: UnixStream,
    description: EngineDescription,
    layout: Arc<WorkerLayout>,
    arenas: Vec<Arc<HostMemory>>,
    progress: Arc<Progress>,
}

/// A running engine in another process. Dropping it ends the connection, and the engine cancels what
/// it was given.
#[derive(Debug)]
pub struct RemoteEngine {
    description: EngineDescription,
    commands: SyncSender<Command>,
    progress: Arc<Progress>,
    stream: UnixStream,
}

/// Connects to an engine's socket, waiting until `deadline` for one to be there, and maps its memory.
pub fn attach(path: &Path, deadline: Instant) -> Result<Attached, LinkError> {
    let failed = |source| LinkError::Socket {
        path: path.to_owned(),
        source,
    };
    let mut stream = loop {
        match UnixStream::connect(path) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() >= deadline => return Err(failed(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    frame::check_peer(&stream)?;
    stream.set_read_timeout(Some(HELLO)).map_err(failed)?;
    let began = Instant::now();
    let heard = frame::receive_with::<proto::FromEngine>(&mut stream);
    let (message, descriptors) = heard.map_err(|error| match error {
        // It serves one agent after another: who comes second hears nothing.
        LinkError::Broken(_) if began.elapsed() >= HELLO => LinkError::Busy(path.to_owned()),
        other => other,
    })?;
    stream.set_read_timeout(None).map_err(failed)?;
    let Some(proto::from_engine::Kind::Hello(hello)) = message.kind else {
        return Err(broken("it does not say hello"));
    };
    if hello.version != ENGINE_PROTOCOL_VERSION {
        let theirs = hello.version;
        return Err(broken(format!(
            "the engine speaks protocol version {theirs}, this agent {ENGINE_PROTOCOL_VERSION}"
        )));
    }
    let model = hello.model.ok_or_else(|| broken("no model"))?;
    let geometry = hello.geometry.ok_or_else(|| broken("no geometry"))?;
    let layout = Arc::new(WorkerLayout::try_from(geometry).map_err(broken)?);
    if descriptors.len() != 1 + layout.shards().len() {
        let (found, shards) = (descriptors.len(), layout.shards().len());
        return Err(broken(format!("{found} descriptors for {shards} shards")));
    }
    let mut descriptors = descriptors.into_iter();
    let counter = descriptors.next().ok_or_else(|| broken("no counter"))?;
    let progress = Progress::of(HostMemory::from_descriptor(counter, 8)?);
    let mut arenas = Vec::new();
    for (shard, descriptor) in (0u16..).zip(descriptors) {
        let bytes = layout.arena(shard).bytes();
        arenas.push(Arc::new(HostMemory::from_descriptor(descriptor, bytes)?));
    }
    Ok(Attached {
        stream,
        description: EngineDescription {
            model: model.name,
            fingerprint: model.fingerprint,
            context_length: model.context_length,
            vocabulary: model.vocabulary,
            geometry: *layout.geometry(),
            layers: Arc::clone(layout.layers()),
        },
        layout,
        arenas,
        progress: Arc::new(progress),
    })
}

impl Attached {
    /// What the engine is.
    #[must_use]
    pub const fn description(&self) -> &EngineDescription {
        &self.description
    }

    /// How its cache is cut.
    #[must_use]
    pub const fn layout(&self) -> &Arc<WorkerLayout> {
        &self.layout
    }

    /// Each shard's memory, in the layout's order.
    #[must_use]
    pub fn arenas(&self) -> &[Arc<HostMemory>] {
        &self.arenas
    }

    /// Takes commands and gives events from now on.
    pub fn start(
        self,
        mut watch: Box<dyn StepWatch>,
        events: Sender<Event>,
    ) -> Result<RemoteEngine, LinkError> {
        let (commands, queue) = sync_channel::<Command>(QUEUE);
        let clone = || self.stream.try_clone().map_err(broken);
        let (mut reading, mut writing) = (clone()?, clone()?);
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        thread("tandem-engine-in")
            .spawn(move || {
                let ended = listen(&mut reading, &mut *watch, &events);
                if let Err(error) = ended {
                    tracing::error!(%error, "the engine is lost");
                }
                let _ = reading.shutdown(std::net::Shutdown::Both);
            })
            .map_err(LinkError::Thread)?;
        thread("tandem-engine-out")
            .spawn(move || {
                while let Ok(command) = queue.recv() {
                    if frame::send(&mut writing, &convert::command(command)).is_err() {
                        return;
                    }
                }
            })
            .map_err(LinkError::Thread)?;
        Ok(RemoteEngine {
            description: self.description,
            commands,
            progress: self.progress,
            stream: self.stream,
        })
    }
}

/// Until the engine ends, or nobody takes its events.
fn listen(
    stream: &mut UnixStream,
    watch: &mut dyn StepWatch,
    events: &Sender<Event>,
) -> Result<(), LinkError> {
    while let Some(message) = frame::receive::<proto::FromEngine>(stream)? {
        match convert::read(message).map_err(broken)? {
            Heard::Step(plan) => watch.step_planned(plan),
            Heard::Event(event) => {
                if events.blocking_send(event).is_err() {
                    return Ok(());
                }
            }
        }
    }
    Err(broken("the engine's process has ended"))
}

impl Engine for RemoteEngine {
    fn describe(&self) -> &EngineDescription {
        &self.description
    }

    fn submit(&self, command: Command) -> Result<(), Command> {
        use std::sync::mpsc::TrySendError::{Disconnected, Full};
        self.commands
            .try_send(command)
            .map_err(|(Full(c) | Disconnected(c))| c)
    }

    fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }
}

impl Drop for RemoteEngine {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
