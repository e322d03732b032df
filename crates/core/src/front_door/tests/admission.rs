//! Who is turned away at once, and what they are told.

use super::*;
use crate::admission::{Allowance, ClassId, ClassSettings, Limits, TenantId, TenantSettings};

fn at(door: &mut FrontDoor<First>, millis: u64, facts: RequestFacts) -> Vec<Output> {
    let now = Instant::from_millis(millis);
    let deadline = now + Duration::from_secs(100);
    let key = None;
    door.handle(
        now,
        Input::Submit {
            facts,
            deadline,
            key,
        },
    );
    outputs(door)
}

fn retry_after(outputs: &[Output]) -> Option<Duration> {
    match outputs {
        [Output::Reject { retry_after, .. }] => *retry_after,
        other => panic!("not one rejection: {other:?}"),
    }
}

#[test]
fn a_tenant_over_its_limits_is_turned_away_and_others_are_not() {
    let limits = Limits {
        tokens_per_minute: Some(60),
        ..Limits::default()
    };
    let mut settings = AdmissionSettings::one_class(10);
    let weight = 1;
    settings
        .tenants
        .insert("small".into(), TenantSettings { weight, limits });
    let mut door = door_of(settings, &["p", "d0", "d1", "d2"]);
    let facts = |n, tenant: &str, prompt| RequestFacts {
        tenant: TenantId::new(tenant),
        ..RequestFacts::new(RequestId(n), prompt, 20)
    };
    assert_eq!(asked(&at(&mut door, 0, facts(1, "small", 20))), [1]);
    let out = at(&mut door, 0, facts(2, "small", 20));
    assert!(matches!(
        rejected(&out)[0].1,
        Rejection::Limited { scope: "tenant", exceeded } if exceeded.what == Allowance::TokensPerMinute
    ));
    assert_eq!(retry_after(&out), Some(Duration::from_secs(20)));
    // More than a minute's worth never passes, and is told so.
    let out = at(&mut door, 0, facts(3, "small", 41));
    assert_eq!(retry_after(&out), None);
    assert_eq!(asked(&at(&mut door, 0, facts(4, "large", 20))), [4]);
    // Five of the twenty tokens were generated: fifteen come back.
    let now = Instant::ZERO;
    for input in [
        Input::Reserved {
            request: RequestId(1),
        },
        Input::Ended {
            request: RequestId(1),
            generated: 5,
        },
    ] {
        door.handle(now, input);
    }
    assert_eq!(
        retry_after(&at(&mut door, 0, facts(5, "small", 20))),
        Some(Duration::from_secs(5))
    );
    assert_eq!(asked(&at(&mut door, 0, facts(6, "small", 15))), [6]);
}

#[test]
fn what_never_had_a_lease_costs_its_tenant_nothing() {
    let limits = Limits {
        tokens_per_minute: Some(60),
        ..Limits::default()
    };
    let mut settings = AdmissionSettings::one_class(10);
    settings.other_tenants.limits = limits;
    let mut door = door_of(settings, &["p", "d0", "d1"]);
    let facts = |n, prompt| RequestFacts::new(RequestId(n), prompt, 20);
    assert_eq!(asked(&at(&mut door, 0, facts(1, 20))), [1]);
    assert_eq!(rejected(&at(&mut door, 0, facts(2, 40))).len(), 1);
    ended(&mut door, 1);
    assert_eq!(asked(&at(&mut door, 0, facts(3, 40))), [3]);
}

#[test]
fn a_key_has_limits_of_its_own() {
    let mut door = door();
    let limits = Limits {
        concurrency: Some(1),
        ..Limits::default()
    };
    let key = || {
        let key = "k".into();
        Some(KeyLimits { key, limits })
    };
    let mut submit = |n, key| {
        let facts = RequestFacts::new(RequestId(n), 3, 2);
        let deadline = Instant::from_millis(100);
        tell(
            &mut door,
            Input::Submit {
                facts,
                deadline,
                key,
            },
        )
    };
    assert_eq!(asked(&submit(1, key())), [1]);
    assert!(matches!(
        rejected(&submit(2, key()))[0].1,
        Rejection::Limited { scope: "key", .. }
    ));
    assert_eq!(asked(&submit(3, None)), [3]);
    ended(&mut door, 1);
    let facts = RequestFacts::new(RequestId(4), 3, 2);
    let deadline = Instant::from_millis(100);
    let key = key();
    let out = tell(
        &mut door,
        Input::Submit {
            facts,
            deadline,
            key,
        },
    );
    assert_eq!(asked(&out), [4]);
}

/// A door whose one worker takes a request of all its pages and ends it a second later, over and over.
fn steady() -> (FrontDoor<First>, u64) {
    let class = ClassSettings {
        queue_deadline: Some(Duration::from_secs(3)),
        ..ClassSettings::new("chat", 100)
    };
    let settings = AdmissionSettings {
        classes: vec![class],
        ..AdmissionSettings::one_class(100)
    };
    let mut door = door_of(settings, &["p", "d"]);
    let mut running = Some(RequestId(50));
    let mut millis = 0;
    // One runs and one waits, before and after each of the steps.
    for n in 50..52 {
        at(&mut door, 0, RequestFacts::new(RequestId(n), 63, 2));
    }
    for n in 0..8 {
        let mut out = at(&mut door, millis, RequestFacts::new(RequestId(n), 63, 2));
        let now = Instant::from_millis(millis);
        if let Some(request) = running {
            door.handle(
                now,
                Input::Ended {
                    request,
                    generated: 2,
                },
            );
            out.extend(outputs(&mut door));
        }
        running = asked(&out).first().map(|n| RequestId(*n)).or(running);
        if let Some(request) = running {
            door.handle(now, Input::Reserved { request });
        }
        millis += 1000;
    }
    (door, millis - 1000)
}

#[test]
fn what_could_not_start_in_time_is_turned_away_at_its_arrival_with_the_time_to_wait() {
    let (mut door, now) = steady();
    let waiting = door.waiting();
    let mut n = 100;
    let out = loop {
        let out = at(&mut door, now, RequestFacts::new(RequestId(n), 63, 2));
        if !out.is_empty() {
            break out;
        }
        n += 1;
        assert!(n < 110, "it was never turned away");
    };
    // Three seconds' worth wait, at one request a second.
    assert_eq!(door.waiting(), 3, "{waiting} before");
    let Rejection::TooLate { wait, allowed } = rejected(&out)[0].1 else {
        panic!("{out:?}")
    };
    assert_eq!(allowed, Duration::from_secs(3));
    assert!(
        wait > Duration::from_millis(3200) && wait < Duration::from_millis(4500),
        "{wait:?}"
    );
    assert_eq!(
        retry_after(&out),
        Some((wait - allowed).max(Duration::from_secs(1)))
    );
}

#[test]
fn a_class_has_a_deadline_of_its_own_and_one_that_had_a_lease_is_not_late_by_it() {
    let class = ClassSettings {
        queue_deadline: Some(Duration::from_secs(1)),
        ..ClassSettings::new("chat", 100)
    };
    let settings = AdmissionSettings {
        classes: vec![class],
        ..AdmissionSettings::one_class(100)
    };
    let mut door = door_of(settings, &["p", "d0", "d1"]);
    for n in 0..4 {
        at(&mut door, 0, RequestFacts::new(RequestId(n), 63, 2));
    }
    tell(
        &mut door,
        Input::Reserved {
            request: RequestId(0),
        },
    );
    let failed = Input::Failed {
        request: RequestId(0),
        blame: Blame::Decode,
        generated: 0,
    };
    // It waits for d1, and the next one gets what it leaves.
    assert_eq!(asked(&tell(&mut door, failed)), [2]);
    let left = Instant::from_millis(1000);
    assert_eq!(door.deadline(), Some(left));
    door.handle(left, Input::Tick);
    assert_eq!(rejected(&outputs(&mut door)), [(3, Rejection::Waited)]);
    assert_eq!(door.deadline(), Some(Instant::from_millis(100_000)));
}

#[test]
fn the_class_fills_in_what_policies_aim_at() {
    let targets = crate::admission::Targets {
        ttft: Some(Duration::from_millis(200)),
        tpot: None,
    };
    let chat = ClassSettings {
        targets,
        ..ClassSettings::new("chat", 10)
    };
    let settings = AdmissionSettings {
        classes: vec![ClassSettings::new("batch", 10), chat],
        ..AdmissionSettings::one_class(100)
    };
    let mut door = door_of(settings, &["p", "d"]);
    let facts = RequestFacts {
        class: ClassId(1),
        ..RequestFacts::new(RequestId(1), 3, 2)
    };
    at(&mut door, 0, facts);
    assert_eq!(door.requests[&RequestId(1)].facts.targets, targets);
}

#[test]
fn other_settings_hold_for_those_that_come_and_reorder_those_that_wait() {
    let class = |name: &str, priority| ClassSettings {
        priority,
        ..ClassSettings::new(name, 10)
    };
    let of = |classes: Vec<ClassSettings>| AdmissionSettings {
        classes,
        ..AdmissionSettings::one_class(10)
    };
    let mut door = door_of(of(vec![class("a", 0), class("b", 5)]), &["p", "d"]);
    let facts = |n, class| RequestFacts {
        class: ClassId(class),
        ..RequestFacts::new(RequestId(n), 63, 2)
    };
    assert_eq!(asked(&at(&mut door, 0, facts(1, 0))), [1]);
    for (n, class) in [(2, 0), (3, 1)] {
        assert_eq!(at(&mut door, 0, facts(n, class)), []);
    }
    let limits = Limits {
        concurrency: Some(3),
        ..Limits::default()
    };
    let mut after = of(vec![class("new", 0), class("b", 0), class("a", 5)]);
    after.other_tenants = TenantSettings { weight: 1, limits };
    let after = after.following(door.settings()).unwrap();
    door.set_admission(after);
    assert_eq!(door.settings().class_named("new"), Some(ClassId(2)));
    // Three are there already, though none was limited when they came.
    let out = at(&mut door, 0, facts(4, 2));
    assert!(matches!(rejected(&out)[0].1, Rejection::Limited { .. }));
    assert_eq!(asked(&ended(&mut door, 1)), [3], "b goes first now");
}
