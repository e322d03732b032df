//! The front door's rules, case by case.

mod admission;
mod retry;
mod room;

use std::time::Duration;

use super::*;
use crate::admission::{AdmissionSettings, Full};
use crate::fleet::tests::facts as worker;
use crate::fleet::{Figures, is};
use crate::pairing::{NoPair, Stage, Why, of_decode, of_prefill};
use crate::{Incarnation, WorkerId, WorkerRole};
use std::sync::Arc;

/// Takes the first candidate.
struct First;

impl Policy for First {
    fn pair(
        &mut self,
        now: Instant,
        fleet: &Fleet,
        request: &RequestFacts,
    ) -> Result<Pair, NoPair> {
        self.explain(now, fleet, request)
    }

    fn explain(&self, _: Instant, fleet: &Fleet, request: &RequestFacts) -> Result<Pair, NoPair> {
        let none = |reason| NoPair {
            reason,
            why: Arc::default(),
        };
        let first = |stage, fits: &dyn Fn(&Figures) -> bool| {
            let fits = |w: &&Worker| {
                let slot = fleet.slot(&w.facts.worker).unwrap();
                !request.avoids(stage, &w.facts.worker) && fits(&fleet.figures()[slot.index()])
            };
            let found = fleet.workers().find(fits);
            found.map(|w| w.facts.worker.clone())
        };
        let decode = first(Stage::Decode, &|f| {
            of_decode(f, fleet::pages_for(f.page_tokens, request)).is_ok()
        });
        let decode = decode.ok_or(none(NoPairReason::NoRoom(Stage::Decode)))?;
        let figures = fleet.figures()[fleet.slot(&decode).unwrap().index()];
        let prefill = if figures.flags & is::BOTH == 0 {
            let prefill = first(Stage::Prefill, &|f| of_prefill(f).is_ok());
            Some(prefill.ok_or(none(NoPairReason::NoRoom(Stage::Prefill)))?)
        } else {
            None
        };
        Ok(Pair {
            decode,
            prefill,
            local: None,
            cached_tokens: 0,
            why: Arc::new(Why::default()),
        })
    }
}

fn free(sequence: u64, free_pages: u32) -> WorkerLoad {
    WorkerLoad {
        sequence,
        free_pages,
        ..WorkerLoad::default()
    }
}

fn door() -> FrontDoor<First> {
    door_of(AdmissionSettings::one_class(2), &["p", "d"])
}

/// Workers of 16 free pages each; their names begin with `p` or `d`.
fn door_of(settings: AdmissionSettings, workers: &[&str]) -> FrontDoor<First> {
    let mut door = FrontDoor::new(settings, First);
    for name in workers {
        let role = if name.starts_with('p') {
            WorkerRole::Prefill
        } else {
            WorkerRole::Decode
        };
        door.join(worker(name, role), free(1, 16)).unwrap();
    }
    door
}

fn ended(door: &mut FrontDoor<First>, n: u128) -> Vec<Output> {
    let request = RequestId(n);
    tell(
        door,
        Input::Ended {
            request,
            generated: 0,
        },
    )
}

/// Whom requests were asked of: request, prefill worker, decode worker.
fn pairs(outputs: &[Output]) -> Vec<(u128, String, String)> {
    let pair = |output: &Output| match output {
        Output::Ask { request, pair } => Some((
            request.0,
            pair.prefill
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            pair.decode.to_string(),
        )),
        Output::Reject { .. } => None,
    };
    outputs.iter().filter_map(pair).collect()
}

/// A request of `pages` pages.
fn submit(door: &mut FrontDoor<impl Policy>, n: u128, pages: u32) -> Vec<Output> {
    let facts = RequestFacts::new(RequestId(n), pages * 4 - 1, 2);
    door.handle(
        Instant::ZERO,
        Input::Submit {
            facts,
            deadline: Instant::from_millis(100),
            key: None,
        },
    );
    outputs(door)
}

fn outputs(door: &mut FrontDoor<impl Policy>) -> Vec<Output> {
    std::iter::from_fn(|| door.poll()).collect()
}

fn tell(door: &mut FrontDoor<impl Policy>, input: Input) -> Vec<Output> {
    door.handle(Instant::ZERO, input);
    outputs(door)
}

fn report(worker: &str, load: WorkerLoad) -> Input {
    let worker = WorkerId::new(worker).unwrap();
    Input::Report {
        worker,
        incarnation: Incarnation(1),
        load,
    }
}

fn rejected(outputs: &[Output]) -> Vec<(u128, Rejection)> {
    let reject = |output: &Output| match output {
        Output::Reject { request, why, .. } => Some((request.0, why.clone())),
        Output::Ask { .. } => None,
    };
    outputs.iter().filter_map(reject).collect()
}

fn asked(outputs: &[Output]) -> Vec<u128> {
    outputs
        .iter()
        .filter_map(|o| {
            if let Output::Ask { request, .. } = o {
                Some(request.0)
            } else {
                None
            }
        })
        .collect()
}

#[test]
fn a_request_waits_until_a_decode_worker_has_room_for_all_of_it() {
    let mut door = door();
    assert_eq!(asked(&submit(&mut door, 1, 10)), [1]);
    // Ten pages are picked: a second request of ten waits, though no report says so yet.
    assert_eq!(asked(&submit(&mut door, 2, 10)), []);
    assert_eq!(door.waiting(), 1);
    assert_eq!(
        asked(&tell(
            &mut door,
            Input::Ended {
                request: RequestId(1),
                generated: 0
            }
        )),
        [2]
    );
}

#[test]
fn picked_pages_are_counted_once_when_the_worker_reports_them() {
    let mut door = door();
    submit(&mut door, 1, 10);
    tell(
        &mut door,
        Input::Reserved {
            request: RequestId(1),
        },
    );
    tell(&mut door, report("d", free(2, 6)));
    let d = door.fleet().get(&WorkerId::new("d").unwrap()).unwrap();
    assert_eq!((d.free_pages(), d.picked_pages()), (6, 0));
    assert_eq!(asked(&submit(&mut door, 2, 6)), [2]);
}

#[test]
fn a_worker_that_refused_for_room_is_asked_again_after_its_next_report() {
    let mut door = door();
    submit(&mut door, 1, 10);
    let refused = Input::Refused {
        request: RequestId(1),
        again: Again::WhenRoom,
        message: String::new(),
    };
    assert_eq!(asked(&tell(&mut door, refused)), []);
    assert_eq!(asked(&tell(&mut door, report("d", free(2, 10)))), [1]);
}

#[test]
fn a_pair_that_keeps_refusing_is_not_tried_for_ever() {
    let mut door = door();
    let mut out = submit(&mut door, 1, 1);
    let mut tries = 0;
    while asked(&out) == [1] {
        tries += 1;
        out = tell(
            &mut door,
            Input::Refused {
                request: RequestId(1),
                again: Again::Elsewhere,
                message: "busy".into(),
            },
        );
    }
    assert_eq!(tries, again::MAX_TRIES);
    let why = Rejection::Refused("busy".into());
    assert_eq!(rejected(&out), [(1, why)]);
    assert_eq!(door.in_flight(), 0);
}

#[test]
fn what_can_never_fit_is_refused_at_once_and_what_must_wait_waits_in_a_bounded_queue() {
    let mut door = door();
    let why = Rejection::NeverFits {
        needed: 17,
        most: 16,
    };
    assert_eq!(rejected(&submit(&mut door, 1, 17)), [(1, why)]);
    submit(&mut door, 2, 16);
    assert_eq!(submit(&mut door, 3, 1), []);
    assert_eq!(submit(&mut door, 4, 1), []);
    let why = Rejection::QueueFull(Full::Class(2));
    assert_eq!(rejected(&submit(&mut door, 5, 1)), [(5, why)]);
}

#[test]
fn a_waiting_request_is_turned_away_at_its_deadline() {
    let mut door = door();
    submit(&mut door, 1, 16);
    submit(&mut door, 2, 16);
    assert_eq!(door.deadline(), Some(Instant::from_millis(100)));
    door.handle(Instant::from_millis(100), Input::Tick);
    let why = Rejection::Waited;
    assert_eq!(rejected(&outputs(&mut door)), [(2, why)]);
    assert_eq!(door.in_flight(), 1);
}

#[test]
fn without_a_worker_of_each_role_everybody_is_turned_away_at_once() {
    let mut door = door();
    submit(&mut door, 1, 16);
    submit(&mut door, 2, 16);
    let left = |w| Input::Left {
        worker: WorkerId::new(w).unwrap(),
        incarnation: Incarnation(1),
    };
    let out = tell(&mut door, left("p"));
    let why = Rejection::NoWorker("prefill");
    assert_eq!(rejected(&out), [(2, why.clone())]);
    assert_eq!(rejected(&submit(&mut door, 3, 1)), [(3, why)]);
    assert!(!door.ready());
    tell(&mut door, left("d"));
    let why = Rejection::NoWorker("decode");
    assert_eq!(rejected(&submit(&mut door, 4, 1)), [(4, why)]);
}

#[test]
fn a_worker_that_does_both_needs_no_second_one() {
    let mut door = FrontDoor::new(AdmissionSettings::one_class(2), First);
    door.join(worker("both", WorkerRole::Both), free(1, 16))
        .unwrap();
    let out = submit(&mut door, 1, 2);
    assert!(matches!(
        &out[0],
        Output::Ask {
            pair: Pair { prefill: None, .. },
            ..
        }
    ));
}

#[test]
fn a_drained_worker_gets_nothing_new_and_what_waits_is_placed_when_it_is_back() {
    let mut door = door();
    door.join(worker("d2", WorkerRole::Decode), free(1, 16))
        .unwrap();
    let allow = |door: &mut FrontDoor<First>, worker: &str, standing| {
        door.allow(&WorkerId::new(worker).unwrap(), standing, 100);
        outputs(door)
    };
    assert_eq!(allow(&mut door, "d", Standing::Draining), []);
    for n in 1..=2 {
        let placed = submit(&mut door, n, 4);
        let [Output::Ask { pair, .. }] = &placed[..] else {
            panic!("{placed:?}");
        };
        assert_eq!(pair.decode.as_str(), "d2");
    }
    // The other one has no room for this one: it waits for the one that is drained.
    assert_eq!(submit(&mut door, 3, 16), []);
    assert!(door.ready());
    let placed = allow(&mut door, "d", Standing::Enabled);
    assert!(
        matches!(&placed[..], [Output::Ask { pair, .. }] if pair.decode.as_str() == "d"),
        "{placed:?}"
    );
    // With all of a role drained there is nothing to wait for.
    allow(&mut door, "p", Standing::Draining);
    assert!(!door.ready());
    let rejected = submit(&mut door, 4, 1);
    assert!(
        matches!(
            &rejected[..],
            [Output::Reject {
                why: Rejection::NoWorker("prefill"),
                ..
            }]
        ),
        "{rejected:?}"
    );
    // One that comes back comes as its operator left it.
    let back = door.join_as(
        worker("d", WorkerRole::Decode),
        free(1, 16),
        Standing::Draining,
        50,
    );
    back.unwrap();
    let fleet = door.fleet();
    let worker = fleet.get(&WorkerId::new("d").unwrap()).unwrap();
    assert!(!worker.takes_requests() && worker.weight == 50);
}
