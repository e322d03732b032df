//! Requests that failed on one pair and are tried on another.

use super::*;

fn fleet() -> FrontDoor<First> {
    let settings = AdmissionSettings {
        breaker: crate::admission::BreakerSettings {
            failures: 3,
            ..Default::default()
        },
        ..AdmissionSettings::one_class(10)
    };
    door_of(settings, &["p0", "p1", "d0", "d1"])
}

fn reserved(door: &mut FrontDoor<First>, n: u128) {
    let request = RequestId(n);
    tell(door, Input::Reserved { request });
}

fn failed(door: &mut FrontDoor<impl Policy>, n: u128, blame: Blame, generated: u32) -> Vec<Output> {
    let request = RequestId(n);
    tell(
        door,
        Input::Failed {
            request,
            blame,
            generated,
        },
    )
}

fn pair(n: u128, prefill: &str, decode: &str) -> (u128, String, String) {
    (n, prefill.into(), decode.into())
}

#[test]
fn a_failed_request_goes_to_another_pair_without_the_one_to_blame() {
    for (blame, then) in [
        (Blame::Prefill, pair(1, "p1", "d0")),
        (Blame::Decode, pair(1, "p0", "d1")),
        (Blame::Fabric, pair(1, "p1", "d1")),
    ] {
        let mut door = fleet();
        assert_eq!(pairs(&submit(&mut door, 1, 2)), [pair(1, "p0", "d0")]);
        reserved(&mut door, 1);
        assert_eq!(pairs(&failed(&mut door, 1, blame, 0)), [then]);
        // What was picked first is given back.
        ended(&mut door, 1);
        let picked = door.fleet().workers().map(|w| w.picked_pages());
        assert_eq!(picked.sum::<u32>(), 0);
    }
}

#[test]
fn it_is_tried_a_bounded_number_of_times_and_not_where_nobody_else_is() {
    let mut door = fleet();
    submit(&mut door, 1, 2);
    assert_eq!(failed(&mut door, 1, Blame::Fabric, 0).len(), 1);
    assert_eq!(asked(&failed(&mut door, 1, Blame::Fabric, 0)), [1]);
    let out = failed(&mut door, 1, Blame::Fabric, 0);
    assert_eq!(rejected(&out), [(1, Rejection::NotAgain)]);
    assert_eq!((door.in_flight(), door.waiting()), (0, 0));

    submit(&mut door, 2, 2);
    failed(&mut door, 2, Blame::Decode, 0);
    let out = failed(&mut door, 2, Blame::Decode, 0);
    assert_eq!(rejected(&out), [(2, Rejection::NotAgain)], "both failed it");
}

/// As [`First`], but decode workers do without a prefill worker.
struct Alone;

impl Policy for Alone {
    fn pair(
        &mut self,
        now: Instant,
        fleet: &Fleet,
        request: &RequestFacts,
    ) -> Result<Pair, NoPair> {
        self.explain(now, fleet, request)
    }

    fn explain(&self, now: Instant, fleet: &Fleet, request: &RequestFacts) -> Result<Pair, NoPair> {
        First.explain(now, fleet, request).or_else(|none| {
            let decode = WorkerId::new("d0").unwrap();
            let pair = Pair {
                decode,
                prefill: None,
                local: Some(crate::pairing::Local::NoPrefill),
                cached_tokens: 0,
                why: Arc::default(),
            };
            match none.reason {
                NoPairReason::NoRoom(Stage::Prefill) => Ok(pair),
                _ => Err(none),
            }
        })
    }

    fn decodes_alone(&self) -> bool {
        true
    }
}

#[test]
fn where_the_only_prefill_worker_failed_it_a_decode_worker_that_may_computes_it() {
    let mut door = FrontDoor::new(AdmissionSettings::one_class(10), Alone);
    for (name, role) in [("p0", WorkerRole::Prefill), ("d0", WorkerRole::Decode)] {
        door.join(worker(name, role), free(1, 16)).unwrap();
    }
    assert_eq!(pairs(&submit(&mut door, 1, 2)), [pair(1, "p0", "d0")]);
    let again = failed(&mut door, 1, Blame::Prefill, 0);
    assert_eq!(pairs(&again), [pair(1, "", "d0")]);
    // It failed there too: nobody is left.
    let out = failed(&mut door, 1, Blame::Decode, 0);
    assert_eq!(rejected(&out), [(1, Rejection::NotAgain)]);
}

#[test]
fn no_retries_means_none() {
    let settings = AdmissionSettings {
        retries: 0,
        migrations: 0,
        ..AdmissionSettings::one_class(10)
    };
    let mut door = door_of(settings, &["p0", "p1", "d0", "d1"]);
    for (n, generated) in [(1, 0), (2, 1)] {
        submit(&mut door, n, 2);
        let out = failed(&mut door, n, Blame::Decode, generated);
        assert_eq!(rejected(&out), [(n, Rejection::NotAgain)]);
    }
}

#[test]
fn an_answer_that_moves_needs_room_for_no_more_than_before_and_keeps_its_deadline() {
    let mut door = fleet();
    let facts = RequestFacts::new(RequestId(1), 10, 20);
    let deadline = Instant::from_millis(500);
    let key = None;
    tell(
        &mut door,
        Input::Submit {
            facts,
            deadline,
            key,
        },
    );
    reserved(&mut door, 1);
    // All of d1 is taken: it waits, first of all, for no longer than its own deadline.
    submit(&mut door, 2, 16);
    assert_eq!(asked(&failed(&mut door, 1, Blame::Decode, 7)), []);
    assert_eq!(door.deadline(), Some(deadline));
    let entry = &door.requests[&RequestId(1)];
    assert_eq!(
        (entry.facts.prompt_tokens, entry.facts.new_tokens),
        (17, 13)
    );
    submit(&mut door, 3, 16);
    let out = ended(&mut door, 2);
    assert_eq!(pairs(&out), [pair(1, "p0", "d1")]);
    // Nothing of it is left to generate.
    let out = failed(&mut door, 1, Blame::Fabric, 20);
    assert!(matches!(&rejected(&out)[..], [(1, Rejection::NotAgain)]));
}

#[test]
fn a_new_life_of_the_worker_that_failed_may_take_it_over() {
    let mut door = door_of(AdmissionSettings::one_class(10), &["p0", "d0", "d1"]);
    submit(&mut door, 1, 2);
    let mut risen = worker("p0", WorkerRole::Prefill);
    risen.incarnation = Incarnation(2);
    door.join(risen, free(1, 16)).unwrap();
    // It had failed before it was known to have risen.
    assert_eq!(
        rejected(&failed(&mut door, 1, Blame::Prefill, 0)),
        [(1, Rejection::NotAgain)]
    );
    submit(&mut door, 2, 2);
    let left = Input::Left {
        worker: WorkerId::new("d0").unwrap(),
        incarnation: Incarnation(1),
    };
    tell(&mut door, left);
    assert_eq!(
        pairs(&failed(&mut door, 2, Blame::Decode, 0)),
        [pair(2, "p0", "d1")]
    );
}

#[test]
fn a_worker_that_fails_many_is_left_alone_in_that_part_only_until_it_does_one_well() {
    let mut door = fleet();
    for n in 1..=3 {
        submit(&mut door, n, 1);
        failed(&mut door, n, Blame::Decode, 0);
        ended(&mut door, n);
    }
    // d0's breaker is open; p0, which was in all those pairs, is chosen as before.
    assert_eq!(pairs(&submit(&mut door, 4, 1)), [pair(4, "p0", "d1")]);
    // Where nobody else is, it is asked all the same.
    tell(
        &mut door,
        Input::Left {
            worker: WorkerId::new("d1").unwrap(),
            incarnation: Incarnation(1),
        },
    );
    assert_eq!(pairs(&submit(&mut door, 5, 1)), [pair(5, "p0", "d0")]);
    door.join(worker("d1", WorkerRole::Decode), free(1, 16))
        .unwrap();
    // Half open: one request tries it.
    let later = Instant::from_millis(1_000);
    let at = |n, door: &mut FrontDoor<First>| {
        let facts = RequestFacts::new(RequestId(n), 3, 2);
        let (deadline, key) = (Instant::from_millis(9_000), None);
        door.handle(
            later,
            Input::Submit {
                facts,
                deadline,
                key,
            },
        );
        pairs(&outputs(door)).remove(0).2
    };
    assert_eq!(at(6, &mut door), "d0");
    assert_eq!(at(7, &mut door), "d1");
    door.handle(
        later,
        Input::Served {
            request: RequestId(6),
        },
    );
    assert_eq!(at(8, &mut door), "d0");
}

#[test]
fn a_refused_request_prefers_another_pair() {
    let mut door = fleet();
    submit(&mut door, 1, 2);
    let refused = Input::Refused {
        request: RequestId(1),
        again: Again::Elsewhere,
        message: "busy".into(),
    };
    assert_eq!(pairs(&tell(&mut door, refused)), [pair(1, "p1", "d1")]);
}

#[test]
fn what_would_be_chosen_now_is_told_and_changes_nothing() {
    let mut door = fleet();
    submit(&mut door, 1, 2);
    let now = Instant::ZERO;
    let told = |answer: Result<Pair, NoPair>| {
        let pair = answer.unwrap();
        (pair.prefill.unwrap().to_string(), pair.decode.to_string())
    };
    let pair = |prefill: &str, decode: &str| (prefill.to_owned(), decode.to_owned());
    assert_eq!(
        told(door.explain(now, RequestId(1)).unwrap()),
        pair("p0", "d0")
    );
    failed(&mut door, 1, Blame::Decode, 0);
    assert_eq!(
        told(door.explain(now, RequestId(1)).unwrap()),
        pair("p0", "d1")
    );
    assert!(door.explain(now, RequestId(2)).is_none());
    let facts = RequestFacts::new(RequestId(9), 3, 2);
    assert_eq!(told(door.would_choose(now, facts)), pair("p0", "d0"));
    assert_eq!((door.in_flight(), outputs(&mut door)), (1, vec![]));
}
