//! The task that owns the front door, and the handle to it.
//!
//! What must hold: whoever submits holds a [`Ticket`], and a ticket's end always reaches the door,
//! however its request ends: room for that message is set aside before the request is submitted, and its
//! place is free again only once the door has seen it.

mod blocks;
mod places;
mod ticket;
mod view;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tandem_core::admission::AdmissionSettings;
use tandem_core::fleet::{NotJoined, Standing, WorkerFacts, WorkerLoad};
use tandem_core::front_door::{FrontDoor, Input, Output, Rejection};
use tandem_core::pairing::{NoPair, Pair, RequestFacts};
use tandem_core::{Instant, RequestId, WorkerId};
use tandem_policies::Pairing;
use tandem_wire::task::{Task, spawn};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::clock::Clock;

use places::{Place, Places};
pub(crate) use ticket::Ticket;
pub(crate) use view::View;

/// Messages to the door beside the tickets' ends.
const COMMANDS: usize = 256;
/// Tickets that any configuration may ask for: `max_connections` and `queue_limit` are a million each at
/// most. A channel's room is fixed when it is made, and costs nothing until it is used.
const MOST_TICKETS: usize = 2_000_000;

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
    /// What the policy would choose now; `None` where there is no such request.
    Explain {
        question: Question,
        answer: oneshot::Sender<Option<Result<Pair, NoPair>>>,
    },
    /// Another policy.
    Follow(Box<Pairing>),
    /// Other settings of admission, and so many tickets; answered once they are in force.
    Admit {
        settings: Box<AdmissionSettings>,
        tickets: usize,
        answer: oneshot::Sender<()>,
    },
}

/// A message on its way to the door.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most are of the large kind, and each is moved twice"
)]
enum Sent {
    /// A command, which holds one of [`COMMANDS`] until it is heard.
    Command(Command, OwnedSemaphorePermit),
    /// A ticket ended; it holds the ticket's place until it is heard.
    End {
        request: RequestId,
        generated: u32,
        place: Place,
    },
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

/// For what the policy would choose.
#[derive(Debug)]
pub(crate) enum Question {
    /// A request in flight.
    Request(RequestId),
    /// One that would come now.
    Facts(Box<RequestFacts>),
}

/// Talks to the door's task.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    messages: mpsc::Sender<Sent>,
    /// Of commands that may be on their way.
    commands: Arc<Semaphore>,
    /// Of tickets.
    places: Arc<Places>,
    view: watch::Receiver<View>,
    clock: Clock,
    admission: watch::Receiver<Arc<AdmissionSettings>>,
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
        let (messages, inbox) = mpsc::channel(MOST_TICKETS + COMMANDS);
        let clock = Clock::start();
        let (admit, admission) = watch::channel(Arc::new(admission));
        let door = FrontDoor::new(AdmissionSettings::clone(&admission.borrow()), policy);
        let mut first = View::default();
        first.update(clock.now(), &door);
        let (publish, view) = watch::channel(first);
        let places = Places::new(tickets);
        let keeper = Keeper {
            door,
            clock,
            waiting: HashMap::new(),
            allowed: BTreeMap::new(),
            places: Arc::clone(&places),
            publish,
            admit,
        };
        let task = spawn("door", keeper.run(inbox));
        let door = Self {
            messages,
            commands: Arc::new(Semaphore::new(COMMANDS)),
            places,
            view,
            clock,
            admission,
        };
        (door, task)
    }

    /// How requests are admitted.
    pub(crate) fn admission(&self) -> Arc<AdmissionSettings> {
        Arc::clone(&self.admission.borrow())
    }

    /// Says something to the door, once there is room for it.
    async fn say(&self, command: Command) -> Result<(), Closed> {
        let room = Arc::clone(&self.commands).acquire_owned().await;
        let sent = Sent::Command(command, room.map_err(|_| Closed)?);
        self.messages.send(sent).await.map_err(|_| Closed)
    }

    /// Requests that have not ended: those with a ticket, and those whose end the door has yet to
    /// see.
    pub(crate) fn in_flight(&self) -> usize {
        self.places.taken()
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
        self.say(join).await?;
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
        self.say(allow).await?;
        answered.await.map_err(|_| Closed)
    }

    /// What the policy would choose now, with all that it looks at; `None` where there is no such
    /// request.
    pub(crate) async fn explain(
        &self,
        question: Question,
    ) -> Result<Option<Result<Pair, NoPair>>, Closed> {
        let (answer, answered) = oneshot::channel();
        let explain = Command::Explain { question, answer };
        self.say(explain).await?;
        answered.await.map_err(|_| Closed)
    }

    /// The door's time.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Chooses by another policy from now on.
    pub(crate) async fn follow(&self, policy: Pairing) {
        // Fails only where the gateway is stopping.
        let _ = self.say(Command::Follow(Box::new(policy))).await;
    }

    /// Admits by other settings from now on, numbered as those before, and gives out so many tickets.
    pub(crate) async fn admit(&self, settings: AdmissionSettings, tickets: usize) {
        let (answer, answered) = oneshot::channel();
        let admit = Command::Admit {
            settings: Box::new(settings),
            tickets,
            answer,
        };
        // Fails only where the gateway is stopping.
        if self.say(admit).await.is_ok() {
            let _ = answered.await;
        }
    }

    /// Something happened that the door does not answer.
    pub(crate) async fn tell(&self, input: Input) {
        // Fails only where the gateway is stopping.
        let _ = self.say(Command::Tell(input)).await;
    }

    /// Something happened that the door may miss: told unless it is behind.
    pub(crate) fn hint(&self, input: Input) {
        if let Ok(room) = Arc::clone(&self.commands).try_acquire_owned() {
            let _ = self
                .messages
                .try_send(Sent::Command(Command::Tell(input), room));
        }
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
    /// Of tickets.
    places: Arc<Places>,
    publish: watch::Sender<View>,
    admit: watch::Sender<Arc<AdmissionSettings>>,
}

impl Keeper {
    async fn run(mut self, mut inbox: mpsc::Receiver<Sent>) {
        loop {
            let wake = self.door.deadline().map(|moment| self.clock.tokio(moment));
            let sent = tokio::select! {
                sent = inbox.recv() => match sent {
                    Some(sent) => Some(sent),
                    None => return,
                },
                () = sleep_until(wake) => None,
            };
            let now = self.clock.now();
            match sent {
                None => self.door.handle(now, Input::Tick),
                Some(Sent::Command(command, _room)) => self.handle(now, command),
                Some(Sent::End {
                    request,
                    generated,
                    place,
                }) => {
                    self.waiting.remove(&request);
                    self.door.handle(now, Input::Ended { request, generated });
                    drop(place);
                }
            }
            while let Some(output) = self.door.poll() {
                self.answer(output);
            }
            assert!(
                self.door.in_flight() <= self.places.taken(),
                "whoever submits holds a ticket"
            );
            let now = self.clock.now();
            self.publish.send_modify(|view| {
                view.update(now, &self.door);
                view.allow(&self.allowed);
            });
        }
    }

    fn handle(&mut self, now: Instant, command: Command) {
        match command {
            Command::Tell(input) => self.door.handle(now, input),
            Command::Place {
                request,
                input,
                answer,
            } => {
                self.waiting.insert(request, answer);
                self.door.handle(now, input);
            }
            Command::Join {
                facts,
                load,
                answer,
            } => {
                let allowed = self.allowed.get(&facts.worker).copied().unwrap_or_default();
                let (standing, weight) = (allowed.standing(), allowed.weight);
                let _ = answer.send(self.door.join_as(*facts, load, standing, weight));
            }
            Command::Allow {
                worker,
                change,
                answer,
            } => {
                let _ = answer.send(self.allow(worker, change));
            }
            Command::Explain { question, answer } => {
                let explained = match question {
                    Question::Request(request) => self.door.explain(now, request),
                    Question::Facts(facts) => Some(self.door.would_choose(now, *facts)),
                };
                // Whoever asked may have left.
                let _ = answer.send(explained);
            }
            Command::Follow(policy) => self.door.set_policy(*policy),
            Command::Admit {
                settings,
                tickets,
                answer,
            } => {
                self.places.resize(tickets);
                self.door.set_admission(*settings.clone());
                // After the door knows the classes: a request may now be of one that is new.
                self.admit.send_replace(Arc::new(*settings));
                let _ = answer.send(());
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
