//! The task that owns the front door, and the handle to it.
//!
//! What must hold: whoever submits holds a [`Ticket`], and a ticket's end always reaches the door,
//! however its request ends: room for that message is set aside before the request is submitted.

mod blocks;
mod ticket;
mod view;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tandem_core::admission::AdmissionSettings;
use tandem_core::fleet::{NotJoined, Standing, WorkerFacts, WorkerLoad};
use tandem_core::front_door::{FrontDoor, Input, Output, Rejection};
use tandem_core::pairing::Pair;
use tandem_core::{Instant, RequestId, WorkerId};
use tandem_policies::Pairing;
use tandem_wire::task::{Task, spawn};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::clock::Clock;

pub(crate) use ticket::Ticket;
pub(crate) use view::View;

/// Messages to the door beside the tickets' ends.
const COMMANDS: usize = 256;

/// What the door answers to a submission or a refusal: whom to ask, or why nobody.
pub(crate) type Answer = Result<Pair, Rejected>;

/// A request that was turned away.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) why: Rejection,
    /// When another try may do; `None` where none would.
    pub(crate) retry_after: Option<Duration>,
}

#[derive(Debug)]
enum Command {
    /// Something that nobody waits for.
    Tell(Input),
    /// Something that is answered with an [`Output`] for the request.
    Place {
        request: RequestId,
        input: Input,
        answer: oneshot::Sender<Answer>,
    },
    /// A worker registers.
    Join {
        facts: Box<WorkerFacts>,
        load: WorkerLoad,
        answer: oneshot::Sender<Result<(), NotJoined>>,
    },
    /// An operator's word about a worker; answered with what it may have from now on, and `None` where
    /// no worker of that name is registered.
    Allow {
        worker: WorkerId,
        change: Change,
        answer: oneshot::Sender<Option<Allowed>>,
    },
    /// Another policy.
    Follow(Box<Pairing>),
    /// A ticket ended.
    End { request: RequestId, generated: u32 },
}

/// What operators allow a worker, here and now: this gateway's own rule, which the worker does not know and
/// its restart does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// It gets nothing new; what it has goes on.
    pub(crate) drained: bool,
    /// In per cent of what an equal worker gets, from 1 to [`Allowed::MOST`].
    pub(crate) weight: u32,
}

impl Allowed {
    /// The largest weight.
    pub(crate) const MOST: u32 = 1000;

    const fn standing(self) -> Standing {
        if self.drained {
            Standing::Draining
        } else {
            Standing::Enabled
        }
    }
}

impl Default for Allowed {
    fn default() -> Self {
        Self {
            drained: false,
            weight: 100,
        }
    }
}

/// What an operator says of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Whether it gets nothing new.
    Drained(bool),
    /// Its weight.
    Weight(u32),
    /// All that was said before is void.
    Forget,
}

impl Change {
    fn of(self, allowed: Allowed) -> Allowed {
        match self {
            Self::Drained(drained) => Allowed { drained, ..allowed },
            Self::Weight(weight) => Allowed { weight, ..allowed },
            Self::Forget => Allowed::default(),
        }
    }
}

/// Talks to the door's task.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    commands: mpsc::Sender<Command>,
    /// Tickets that are not out, of `tickets`.
    free: Arc<Semaphore>,
    tickets: usize,
    view: watch::Receiver<View>,
    clock: Clock,
    admission: Arc<AdmissionSettings>,
}

/// The door's task has ended: the gateway is stopping.
#[derive(Debug, thiserror::Error)]
#[error("the gateway is stopping")]
pub(crate) struct Closed;

impl Door {
    /// Starts the task. At most `tickets` requests are in flight.
    pub(crate) fn open(
        admission: AdmissionSettings,
        tickets: usize,
        policy: Pairing,
    ) -> (Self, Task<()>) {
        let (commands, inbox) = mpsc::channel(tickets + COMMANDS);
        let clock = Clock::start();
        let door = FrontDoor::new(admission.clone(), policy);
        let mut first = View::default();
        first.update(clock.now(), &door);
        let (publish, view) = watch::channel(first);
        let keeper = Keeper {
            door,
            clock,
            waiting: HashMap::new(),
            allowed: BTreeMap::new(),
            tickets,
            publish,
        };
        let task = spawn("door", keeper.run(inbox));
        let free = Arc::new(Semaphore::new(tickets));
        (
            Self {
                commands,
                free,
                tickets,
                view,
                clock,
                admission: Arc::new(admission),
            },
            task,
        )
    }

    /// How requests are admitted.
    pub(crate) fn admission(&self) -> &AdmissionSettings {
        &self.admission
    }

    /// Requests that have not ended: those with a ticket, and those whose end the door has yet to
    /// see.
    pub(crate) fn in_flight(&self) -> usize {
        let out = self.tickets - self.free.available_permits();
        out.max(self.view.borrow().submitted)
    }

    /// What the door sees now.
    pub(crate) fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// A worker registers, or is refused.
    pub(crate) async fn join(
        &self,
        facts: WorkerFacts,
        load: WorkerLoad,
    ) -> Result<Result<(), NotJoined>, Closed> {
        let (answer, answered) = oneshot::channel();
        let join = Command::Join {
            facts: Box::new(facts),
            load,
            answer,
        };
        self.commands.send(join).await.map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }

    /// Follows an operator's word about a worker.
    pub(crate) async fn allow(
        &self,
        worker: WorkerId,
        change: Change,
    ) -> Result<Option<Allowed>, Closed> {
        let (answer, answered) = oneshot::channel();
        let allow = Command::Allow {
            worker,
            change,
            answer,
        };
        self.commands.send(allow).await.map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }

    /// Chooses by another policy from now on.
    pub(crate) async fn follow(&self, policy: Pairing) {
        // Fails only where the gateway is stopping.
        let _ = self.commands.send(Command::Follow(Box::new(policy))).await;
    }

    /// Something happened that the door does not answer.
    pub(crate) async fn tell(&self, input: Input) {
        // Fails only where the gateway is stopping.
        let _ = self.commands.send(Command::Tell(input)).await;
    }

    /// Something happened that the door may miss: told unless it is behind.
    pub(crate) fn hint(&self, input: Input) {
        let _ = self.commands.try_send(Command::Tell(input));
    }
}

/// What the task owns.
struct Keeper {
    door: FrontDoor<Pairing>,
    clock: Clock,
    /// Who waits for an answer.
    waiting: HashMap<RequestId, oneshot::Sender<Answer>>,
    /// Where it is not as at first, also of workers that are gone for now. An operator names each of
    /// them, so there are few.
    allowed: BTreeMap<WorkerId, Allowed>,
    /// At most so many are out.
    tickets: usize,
    publish: watch::Sender<View>,
}

impl Keeper {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            let wake = self.door.deadline().map(|moment| self.clock.tokio(moment));
            let command = tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => Some(command),
                    None => return,
                },
                () = sleep_until(wake) => None,
            };
            self.handle(command);
            while let Some(output) = self.door.poll() {
                self.answer(output);
            }
            // A ticket's end is sent before another ticket takes its place.
            assert!(
                self.door.in_flight() <= self.tickets,
                "whoever submits holds a ticket"
            );
            let now = self.clock.now();
            self.publish.send_modify(|view| {
                view.update(now, &self.door);
                view.allow(&self.allowed);
            });
        }
    }

    fn handle(&mut self, command: Option<Command>) {
        let now = self.clock.now();
        match command {
            None => self.door.handle(now, Input::Tick),
            Some(Command::Tell(input)) => self.door.handle(now, input),
            Some(Command::Place {
                request,
                input,
                answer,
            }) => {
                self.waiting.insert(request, answer);
                self.door.handle(now, input);
            }
            Some(Command::Join {
                facts,
                load,
                answer,
            }) => {
                let allowed = self.allowed.get(&facts.worker).copied().unwrap_or_default();
                let (standing, weight) = (allowed.standing(), allowed.weight);
                let _ = answer.send(self.door.join_as(*facts, load, standing, weight));
            }
            Some(Command::Allow {
                worker,
                change,
                answer,
            }) => {
                let _ = answer.send(self.allow(worker, change));
            }
            Some(Command::Follow(policy)) => self.door.set_policy(*policy),
            Some(Command::End { request, generated }) => {
                self.waiting.remove(&request);
                self.door.handle(now, Input::Ended { request, generated });
            }
        }
    }

    /// `None` where it changes nothing: no such worker is registered.
    fn allow(&mut self, worker: WorkerId, change: Change) -> Option<Allowed> {
        let before = self.allowed.get(&worker).copied().unwrap_or_default();
        let allowed = change.of(before);
        let known = self.door.fleet().get(&worker).is_some();
        if allowed == Allowed::default() {
            self.allowed.remove(&worker);
        } else if known {
            self.allowed.insert(worker.clone(), allowed);
        }
        self.door.allow(&worker, allowed.standing(), allowed.weight);
        known.then_some(allowed)
    }

    fn answer(&mut self, output: Output) {
        let (request, answer) = match output {
            Output::Ask { request, pair } => (request, Ok(pair)),
            Output::Reject {
                request,
                why,
                retry_after,
            } => (request, Err(Rejected { why, retry_after })),
        };
        // Nobody waits where the client has left; its ticket's end is on its way.
        if let Some(waiting) = self.waiting.remove(&request) {
            let _ = waiting.send(answer);
        }
    }
}

async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
