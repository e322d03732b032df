//! A server of known behaviour: it answers in OpenAI's words at stated times, fails in stated ways, and notes
//! when it wrote what. The harness is held against it, and so can any other load tool be.
//!
//! HTTP/1.1 with keep-alive, streamed answers only. No model: tokens are words.

mod answer;
mod request;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tandem_wire::task::{self, Task};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::clock::Clock;
use request::Reader;

/// What the server knows of a request when it decides on an answer.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How many answers came before it.
    pub number: u64,
    /// Since the server's start.
    pub at: Duration,
    /// The request's `max_tokens`.
    pub max_tokens: u32,
    /// Bytes of its body.
    pub bytes: usize,
}

/// An answer, decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// From the request's last byte to the first event with tokens. The head and the role come at once.
    pub first: Duration,
    /// From one event with tokens to the next.
    pub gap: Duration,
    /// Tokens of the whole answer.
    pub tokens: u32,
    /// Tokens of an event; the last one may have fewer.
    pub tokens_per_event: u32,
    /// How it goes wrong, where it does.
    pub fault: Option<Fault>,
}

/// How an answer goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An HTTP status, with an error that says so.
    Status(u16),
    /// A page, not a stream.
    Page,
    /// The connection is closed without an answer.
    Drop,
    /// The connection is closed after so many events.
    DropAfter(u32),
    /// The body ends well after so many events, but the answer does not.
    EndAfter(u32),
    /// Bytes that are no answer's, after so many events.
    GarbageAfter(u32),
    /// An error in the stream after so many events.
    ErrorAfter(u32),
    /// Nothing more comes after so many events.
    SilenceAfter(u32),
}

/// What the server is like.
pub struct Behaviour {
    /// The models that it lists and takes.
    pub models: Vec<String>,
    /// The key that it wants.
    pub key: Option<String>,
    /// Whether it takes `stream_options.continuous_usage_stats`.
    pub chunk_usage: bool,
    /// Whether it notes what it wrote.
    pub notes: bool,
    /// What it answers.
    pub answer: Box<dyn Fn(&Asked) -> Script + Send + Sync>,
}

/// What was written of one answer, and when.
#[derive(Clone, Debug)]
pub struct Note {
    /// The request's x-request-id.
    pub request_id: String,
    /// Its x-session-id.
    pub session: Option<String>,
    /// When its last byte had been read.
    pub asked: Instant,
    /// When each event with tokens had been written, and its tokens.
    pub events: Vec<(Instant, u32)>,
    /// When the end had been written.
    pub ended: Option<Instant>,
}

/// A running server; ends when it is dropped.
pub struct KnownServer {
    address: SocketAddr,
    state: Arc<State>,
    _task: Task<()>,
}

struct State {
    behaviour: Behaviour,
    clock: Clock,
    start: Instant,
    answers: std::sync::atomic::AtomicU64,
    notes: Mutex<Vec<Note>>,
}

impl KnownServer {
    /// Listens; needs a runtime.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on, or a thread not be started.
    pub async fn start(address: &str, behaviour: Behaviour) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            behaviour,
            clock: Clock::start()?,
            start: Instant::now(),
            answers: std::sync::atomic::AtomicU64::new(0),
            notes: Mutex::default(),
        });
        let task = task::spawn("known server", listen(listener, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            _task: task,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was written until now.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        self.state.notes().clone()
    }
}

impl State {
    fn notes(&self) -> std::sync::MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // One that cannot be accepted is the client's loss.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream, Arc::clone(&state)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers one request after the other. What breaks the connection ends it.
async fn serve(mut stream: TcpStream, state: Arc<State>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut reader = Reader::default();
    while let Ok(Some(request)) = reader.next(&mut stream).await {
        let goes_on = answer::answer(&state, &request, &mut stream).await;
        if !matches!(goes_on, Ok(true)) {
            let _ = stream.shutdown().await;
            return;
        }
    }
}
