//! The end of streams whose request is over before the worker's last message.
//!
//! Their requests have let go of them; each is told to cancel and kept until its worker's last
//! message, or for a short while. A worker whose stream is simply dropped cancels as well, so where
//! there are too many, the rest is dropped.

use std::time::Duration;

use tandem_wire::task::{Task, spawn};
use tandem_wire::{Receiver, Sender, proto};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::stream::{is_last, reply};

/// A worker's last message comes within this, or is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Streams that wait to be told.
const QUEUE: usize = 1024;
/// Streams that are kept at once.
const KEPT: usize = 4096;

type Farewell = (Sender, Receiver);

/// Takes streams whose request is over.
#[derive(Clone, Debug)]
pub(crate) struct Farewells(mpsc::Sender<Farewell>);

impl Farewells {
    /// Starts the task. It ends once all handles are gone and all streams have ended.
    pub(crate) fn start() -> (Self, Task<()>) {
        let (farewells, inbox) = mpsc::channel(QUEUE);
        (Self(farewells), spawn("farewells", run(inbox)))
    }

    /// Has the worker cancel the request.
    pub(crate) fn cancel(&self, sender: Sender, replies: Receiver) {
        // Where the queue is full, dropping the stream cancels too.
        let _ = self.0.try_send((sender, replies));
    }
}

async fn run(mut inbox: mpsc::Receiver<Farewell>) {
    let mut kept = JoinSet::new();
    loop {
        tokio::select! {
            farewell = inbox.recv() => match farewell {
                Some((sender, replies)) if kept.len() < KEPT => {
                    kept.spawn(timeout(PATIENCE, end(sender, replies)));
                }
                Some(dropped) => drop(dropped),
                None => break,
            },
            Some(_) = kept.join_next() => {}
        }
    }
    while kept.join_next().await.is_some() {}
}

async fn end(mut sender: Sender, mut replies: Receiver) {
    if sender.send(&proto::Cancel {}).await.is_err() {
        return;
    }
    sender.finish();
    while let Ok(last) = reply(&mut replies).await {
        if is_last(&last) {
            return;
        }
    }
}
