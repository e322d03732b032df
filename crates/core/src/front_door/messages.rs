//! What the front door is told, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use crate::admission::{Exceeded, Full, Limits};
use crate::fleet::WorkerLoad;
use crate::pairing::{self, Pair, RequestFacts};
use crate::pool::CacheChange;
use crate::{Incarnation, Instant, RequestId, WorkerId};

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A checked and tokenised request wants a pair.
    Submit {
        /// Its facts. Its class's targets are filled in by the door.
        facts: RequestFacts,
        /// When it must have ended.
        deadline: Instant,
        /// The API key that it came with, where the key has limits of its own.
        key: Option<KeyLimits>,
    },
    /// Its decode worker granted the lease.
    Reserved {
        /// Which request.
        request: RequestId,
    },
    /// Its decode worker did not take it on.
    Refused {
        /// Which request.
        request: RequestId,
        /// Whether another try may do: elsewhere, or later.
        again: Again,
        /// What the worker said.
        message: String,
    },
    /// Its first token has come: the prompt was computed.
    Started {
        /// Which request.
        request: RequestId,
    },
    /// It failed after its lease was granted, and another pair may do better.
    Failed {
        /// Which request.
        request: RequestId,
        /// Who failed it.
        blame: Blame,
        /// Tokens of its answer that have come, from all pairs together.
        generated: u32,
    },
    /// Its answer is complete. [`Input::Ended`] follows.
    Served {
        /// Which request.
        request: RequestId,
    },
    /// It is over: answered, failed, or its client left. Harmless for unknown ones.
    Ended {
        /// Which request.
        request: RequestId,
        /// Tokens of its answer that have come.
        generated: u32,
    },
    /// A worker reports.
    Report {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
        /// What.
        load: WorkerLoad,
    },
    /// What a worker holds has changed.
    Cached {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
        /// These blocks are all that it holds.
        anew: bool,
        /// What was stored and evicted, in this order.
        changes: Vec<CacheChange>,
    },
    /// A worker is lost.
    Left {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
    },
    /// Time has passed.
    Tick,
}

/// An API key's own limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyLimits {
    /// A name of the key, never the key itself.
    pub key: Arc<str>,
    /// What its requests together may use.
    pub limits: Limits,
}

/// What a refusal means for the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The worker has no room now: wait for its next report.
    WhenRoom,
    /// Something else of the pair was in the way (a full queue, a stale peer): try again, a limited
    /// number of times.
    Elsewhere,
    /// It would be refused everywhere.
    Never,
}

/// Who failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The worker that computed the prompt.
    Prefill,
    /// The worker that generated.
    Decode,
    /// What is between them.
    Fabric,
}

impl Blame {
    /// In metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Fabric => "fabric",
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Output {
    /// Ask this pair.
    Ask {
        /// Which request.
        request: RequestId,
        /// Whom.
        pair: Pair,
    },
    /// Turn it away.
    Reject {
        /// Which request.
        request: RequestId,
        /// Why.
        why: Rejection,
        /// When another try may do; `None` where none would.
        retry_after: Option<Duration>,
    },
}

/// Why a request is turned away before anything was started, or not tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Rejection {
    /// No worker can do a part of it.
    #[error("no {0} worker is ready")]
    NoWorker(&'static str),
    /// A queue is full.
    #[error("{}", full(.0))]
    QueueFull(Full),
    /// The queue is full, and a request of a class that is served sooner took its place.
    #[error("the queue is full, and requests of classes before this one's need its place")]
    Displaced,
    /// It could not start before its deadline even at the rate at which the queue drains.
    #[error(
        "the request would wait about {:.1} s for a decode worker, longer than the {:.1} s it may",
        .wait.as_secs_f64(), .allowed.as_secs_f64()
    )]
    TooLate {
        /// Before its turn would come.
        wait: Duration,
        /// That it may wait.
        allowed: Duration,
    },
    /// Its class's promise would be broken, and the policy rejects early.
    #[error(transparent)]
    Promise(pairing::TooLate),
    /// Its caller uses more than it may.
    #[error("{}", over(.scope, .exceeded))]
    Limited {
        /// `tenant` or `key`.
        scope: &'static str,
        /// Which limit.
        exceeded: Exceeded,
    },
    /// It needs more pages than any decode worker has.
    #[error("the request needs {needed} KV pages, more than the {most} that any decode worker has")]
    NeverFits {
        /// Pages it needs.
        needed: u32,
        /// Pages of the largest decode worker.
        most: u32,
    },
    /// Its deadline passed while it waited.
    #[error("the deadline passed while the request waited for a decode worker with room")]
    Waited,
    /// Workers refused it too often, or for good.
    #[error("the workers refused the request: {0}")]
    Refused(String),
    /// It failed, and is not tried again: it was tried as often as it may be, or no other pair is
    /// there.
    #[error("no other pair of workers takes the request over")]
    NotAgain,
}

impl Rejection {
    /// A short name, for metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NoWorker(_) => "no_worker",
            Self::QueueFull(_) => "queue_full",
            Self::Displaced => "displaced",
            Self::TooLate { .. } => "too_late",
            Self::Promise(_) => "promise",
            Self::Limited { .. } => "limited",
            Self::NeverFits { .. } => "never_fits",
            Self::Waited => "waited",
            Self::Refused(_) => "refused",
            Self::NotAgain => "not_again",
        }
    }

    /// All names that [`Rejection::as_str`] gives.
    pub const NAMES: [&'static str; 10] = [
        "no_worker",
        "queue_full",
        "displaced",
        "too_late",
        "promise",
        "limited",
        "never_fits",
        "waited",
        "refused",
        "not_again",
    ];
}

fn full(full: &Full) -> String {
    match full {
        Full::Queue(n) => format!("{n} requests are waiting for a decode worker already"),
        Full::Class(n) => format!("{n} requests of this class are waiting already"),
        Full::Tenant(n) => format!("{n} requests of this tenant are waiting already"),
    }
}

fn over(scope: &str, exceeded: &Exceeded) -> String {
    let (what, allowed) = (exceeded.what.as_str().replace('_', " "), exceeded.allowed);
    if exceeded.never {
        return format!("the request alone is over this {scope}'s limit of {allowed} {what}");
    }
    format!("this {scope}'s limit of {allowed} {what} is reached")
}
