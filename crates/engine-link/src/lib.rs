//! An engine in a process of its own.
//!
//! Owns the Unix socket between an agent and an engine: [`Host`] stands beside an engine and serves one
//! agent after another, [`attach`] gives an agent an [`Engine`](tandem_engine::Engine) that runs
//! elsewhere. KV arenas and the progress counter belong to the engine's process and reach the agent as
//! descriptors; the agent registers them with its NICs. Refuses peers of another user.
//!
//! What must hold: when the agent is gone, every sequence that it gave is cancelled and has ended
//! before the next agent gets the same memory; when the engine is gone, the agent hears of it.
#![forbid(unsafe_code)]

mod convert;
mod frame;
mod host;
mod remote;
mod settings;

pub use host::Host;
pub use remote::{Attached, RemoteEngine, attach};
pub use settings::{read_sampling, read_stop};

use std::path::PathBuf;

/// Why an agent and an engine cannot work together. One line each.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The socket cannot be made or reached.
    #[error("the engine's socket {path}: {source}", path = path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody else has the engine, or it hangs.
    #[error(
        "the engine at {path} says nothing: another worker is attached to it, or it hangs",
        path = .0.display()
    )]
    Busy(PathBuf),
    /// The other process belongs to somebody else.
    #[error("the process behind the engine's socket belongs to user {0}")]
    Stranger(u32),
    /// The other side broke off or sent nonsense.
    #[error("the engine's socket broke off: {0}")]
    Broken(String),
    /// Its memory cannot be shared.
    #[error(transparent)]
    Memory(#[from] tandem_memory::CreateError),
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

pub(crate) fn broken(why: impl ToString) -> LinkError {
    LinkError::Broken(why.to_string())
}
