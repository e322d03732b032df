//! The children together: each is restarted when it dies, and all end in a set order.
//!
//! Each child has a task of its own, which alone starts, restarts and reaps it, and which ends when
//! the fleet's phase says so.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::child::{Child, Ended, Happened};
use super::plan::Member;
use super::state::StateFolder;
use crate::console::complain;
use crate::failure::Failure;
use crate::started::Started;

/// Before a first restart; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The gateway's time to end, and then everyone's, from the same moment on. The rest of the five
/// seconds is for those that must be killed.
const GATEWAY_ENDS_WITHIN: Duration = Duration::from_millis(2_000);
const ALL_END_WITHIN: Duration = Duration::from_millis(4_000);

/// What the children are to do; each phase includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Run,
    EndGateway,
    EndWorkers,
    Kill,
}

/// A process that has started.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) started: Started,
    pub(super) pid: u32,
}

/// All children.
pub(super) struct Fleet {
    logs: PathBuf,
    phase: watch::Sender<Phase>,
    /// One for each child; tells whether that was the gateway.
    tasks: JoinSet<bool>,
    starting: Vec<(String, oneshot::Receiver<Result<Running, Ended>>)>,
}

impl Fleet {
    pub(super) fn new(state: &StateFolder) -> Self {
        Self {
            logs: state.logs(),
            phase: watch::Sender::new(Phase::Run),
            tasks: JoinSet::new(),
            starting: Vec::new(),
        }
    }

    /// Starts a child with an empty log.
    pub(super) fn start(&mut self, member: Member) -> Result<(), Failure> {
        let log = self.logs.join(format!("{}.log", member.id()));
        member.write()?;
        File::create(&log)
            .map_err(|error| Failure::mendable(format!("{}: {error}", log.display())))?;
        let (first, started) = oneshot::channel();
        self.starting.push((member.id().to_owned(), started));
        let phase = self.phase.subscribe();
        let is_gateway = member.is_gateway();
        let keeper = Keeper {
            member,
            log,
            phase,
            first: Some(first),
        };
        self.tasks.spawn(async move {
            keeper.keep().await;
            is_gateway
        });
        Ok(())
    }

    /// Waits for those that were started since the last call, in the order of their start.
    pub(super) async fn all_started(&mut self) -> Result<Vec<Running>, Failure> {
        let mut running = Vec::new();
        for (id, started) in self.starting.drain(..) {
            match started.await {
                Ok(Ok(child)) => running.push(child),
                Ok(Err(ended)) => {
                    let code = if ended.code == 2 { 2 } else { 1 };
                    return Err(Failure::with_code(code, format!("{id} {}", ended.how)));
                }
                Err(_) => return Err(Failure::fault(format!("{id}: lost sight of it"))),
            }
        }
        Ok(running)
    }

    /// Ends the gateway, which cancels what it has open, then the workers; kills what is left.
    pub(super) async fn stop(&mut self) {
        let began = Instant::now();
        self.phase.send_replace(Phase::EndGateway);
        let _ = timeout_at(began + GATEWAY_ENDS_WITHIN, async {
            while let Some(ended) = self.tasks.join_next().await {
                if ended.unwrap_or(false) {
                    break;
                }
            }
        })
        .await;
        self.phase.send_replace(Phase::EndWorkers);
        let _ = timeout_at(began + ALL_END_WITHIN, self.joined()).await;
        self.kill().await;
    }

    /// Ends all at once.
    pub(super) async fn kill(&mut self) {
        self.phase.send_replace(Phase::Kill);
        // A killed process is reaped soon, unless the kernel itself hangs.
        let _ = timeout(Duration::from_secs(1), self.joined()).await;
    }

    async fn joined(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Keeps one child alive.
struct Keeper {
    member: Member,
    log: PathBuf,
    phase: watch::Receiver<Phase>,
    /// Who waits for its first start.
    first: Option<oneshot::Sender<Result<Running, Ended>>>,
}

impl Keeper {
    /// Ends when the fleet does, or when the child did not start the first time.
    async fn keep(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            let ended = match Child::spawn(&self.member, self.log.clone()) {
                Ok(child) => self.life(child).await,
                Err(error) => Ended {
                    code: 1,
                    how: format!("does not start: {error}"),
                },
            };
            if self.is_to_end() {
                return;
            }
            if let Some(first) = self.first.take() {
                let _ = first.send(Err(ended));
                return;
            }
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            let (id, seconds) = (self.member.id(), pause.as_secs_f32());
            complain(&format!("{id} {}; restarts in {seconds} s", ended.how));
            tokio::select! {
                () = sleep(pause) => pause = (2 * pause).min(LONGEST_PAUSE),
                () = self.told_to_end() => return,
            }
        }
    }

    /// From start to end.
    async fn life(&mut self, mut child: Child) -> Ended {
        loop {
            let happened = tokio::select! {
                happened = child.next() => Some(happened),
                changed = self.phase.changed() => {
                    if changed.is_err() {
                        child.kill();
                    }
                    None
                }
            };
            match happened {
                Some(Happened::Started(started)) => self.started(started, child.pid()),
                Some(Happened::Ended(ended)) => return ended,
                None if *self.phase.borrow() == Phase::Kill => child.kill(),
                None if self.is_to_end() => child.terminate(),
                None => {}
            }
        }
    }

    fn started(&mut self, started: Started, pid: u32) {
        self.member.settle(started.address);
        if let Err(failure) = self.member.write() {
            complain(&format!("{failure:?}"));
        }
        match self.first.take() {
            Some(first) => drop(first.send(Ok(Running { started, pid }))),
            None => complain(&format!("{} is back, pid {pid}", self.member.id())),
        }
    }

    fn is_to_end(&self) -> bool {
        let from = if self.member.is_gateway() {
            Phase::EndGateway
        } else {
            Phase::EndWorkers
        };
        *self.phase.borrow() >= from
    }

    async fn told_to_end(&mut self) {
        while !self.is_to_end() {
            if self.phase.changed().await.is_err() {
                return;
            }
        }
    }
}
