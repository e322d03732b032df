//! The engine's side: a socket beside a running engine.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tandem_core::SequenceId;
use tandem_core::layout::WorkerLayout;
use tandem_engine::{Command, Engine, Event, StepPlan, StepWatch};
use tandem_memory::{HostMemory, Memory};
use tandem_wire::{ENGINE_PROTOCOL_VERSION, proto};
use tokio::sync::mpsc::Receiver;

use crate::{LinkError, broken, convert, frame};

/// Between tries to give a command to an engine whose queue is full.
const AGAIN: Duration = Duration::from_millis(1);

/// A socket that one agent after another may attach to.
#[derive(Debug)]
pub struct Host {
    listener: UnixListener,
    path: PathBuf,
    shared: Arc<Shared>,
}

/// Where the engine's steps and events go, and what the agent has given.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when a sequence ends.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    agent: Option<UnixStream>,
    live: BTreeSet<SequenceId>,
    engine_died: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// To the agent, if there is one. An agent that does not read holds up the engine, which has
    /// nobody else to work for.
    fn say(&self, message: &proto::FromEngine) {
        let mut state = self.lock();
        if let Some(stream) = state.agent.as_mut()
            && frame::send(stream, message).is_err()
        {
            state.agent = None;
        }
    }
}

/// Announces an engine's steps to whoever is attached.
struct Steps(Arc<Shared>);

impl StepWatch for Steps {
    fn step_planned(&mut self, plan: StepPlan) {
        self.0.say(&convert::step(&plan));
    }
}

impl Host {
    /// Makes the socket, for this user only, in place of one that nobody listens at.
    pub fn bind(path: &Path) -> Result<Self, LinkError> {
        let failed = |source| LinkError::Socket {
            path: path.to_owned(),
            source,
        };
        if UnixStream::connect(path).is_ok() {
            let why = "another engine listens there";
            return Err(failed(std::io::Error::other(why)));
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, private).map_err(failed)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            shared: Arc::default(),
        })
    }

    /// What the engine is to be started with.
    #[must_use]
    pub fn watch(&self) -> Box<dyn StepWatch> {
        Box::new(Steps(Arc::clone(&self.shared)))
    }

    /// Serves agents, one after another, until the engine dies. `events` are the engine's.
    pub fn serve(
        &self,
        engine: &dyn Engine,
        layout: &WorkerLayout,
        arenas: &[Arc<HostMemory>],
        events: Receiver<Event>,
    ) -> Result<(), LinkError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("tandem-events".into());
        thread
            .spawn(move || forward(&shared, events))
            .map_err(LinkError::Thread)?;
        loop {
            let (stream, _) = self.listener.accept().map_err(broken)?;
            if let Err(error) = frame::check_peer(&stream) {
                tracing::warn!(%error, "an agent was turned away");
                continue;
            }
            tracing::info!("an agent has attached");
            let ended = self.serve_one(stream, engine, layout, arenas);
            match ended {
                Ok(()) => tracing::info!("the agent has left"),
                Err(error) => tracing::warn!(%error, "the agent is lost"),
            }
            self.let_go(engine);
            if self.shared.lock().engine_died {
                return Err(broken("the engine died"));
            }
        }
    }

    fn serve_one(
        &self,
        mut stream: UnixStream,
        engine: &dyn Engine,
        layout: &WorkerLayout,
        arenas: &[Arc<HostMemory>],
    ) -> Result<(), LinkError> {
        let progress = engine.progress();
        let memory = [progress.memory()].into_iter();
        let memory = memory.chain(arenas.iter().map(|a| &**a));
        let descriptors: Vec<BorrowedFd<'_>> = memory.filter_map(Memory::descriptor).collect();
        let hello = hello(engine, layout);
        frame::send_with(&mut stream, &hello, &descriptors)?;
        self.shared.lock().agent = Some(stream.try_clone().map_err(broken)?);
        while let Some(message) = frame::receive::<proto::FromAgent>(&mut stream)? {
            let command = convert::read_command(message).map_err(broken)?;
            self.obey(engine, command)?;
        }
        Ok(())
    }

    fn obey(&self, engine: &dyn Engine, mut command: Command) -> Result<(), LinkError> {
        if let Command::Prefill { sequence, .. } | Command::Admit { sequence, .. } = &command
            && !self.shared.lock().live.insert(*sequence)
        {
            return Err(broken(format!("sequence {} is here already", sequence.0)));
        }
        while let Err(back) = engine.submit(command) {
            if self.shared.lock().engine_died {
                return Err(broken("the engine died"));
            }
            command = back;
            std::thread::sleep(AGAIN);
        }
        Ok(())
    }

    /// Ends all that the agent that is gone has given; its memory is the next one's after that.
    fn let_go(&self, engine: &dyn Engine) {
        let mut state = self.shared.lock();
        state.agent = None;
        let live: Vec<SequenceId> = state.live.iter().copied().collect();
        drop(state);
        for sequence in live {
            let _ = self.obey(engine, Command::Cancel { sequence });
        }
        let mut state = self.shared.lock();
        while !state.live.is_empty() && !state.engine_died {
            state = match self.shared.ended.wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Sends the engine's events to the agent.
fn forward(shared: &Shared, mut events: Receiver<Event>) {
    while let Some(event) = events.blocking_recv() {
        let ends = convert::ends(&event);
        shared.say(&convert::event(event));
        if let Some(sequence) = ends {
            shared.lock().live.remove(&sequence);
            shared.ended.notify_all();
        }
    }
    let mut state = shared.lock();
    state.engine_died = true;
    // Wakes the reader of commands, who then ends the process.
    if let Some(agent) = state.agent.take() {
        let _ = agent.shutdown(std::net::Shutdown::Both);
    }
    shared.ended.notify_all();
}

fn hello(engine: &dyn Engine, layout: &WorkerLayout) -> proto::FromEngine {
    let description = engine.describe();
    let hello = proto::EngineHello {
        version: ENGINE_PROTOCOL_VERSION,
        model: Some(proto::Model {
            name: description.model.clone(),
            fingerprint: description.fingerprint.clone(),
            context_length: description.context_length,
            vocabulary: description.vocabulary,
        }),
        geometry: Some(proto::Geometry::from(layout)),
    };
    proto::FromEngine {
        kind: Some(proto::from_engine::Kind::Hello(hello)),
    }
}
