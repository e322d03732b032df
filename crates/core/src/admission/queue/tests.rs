//! The queue's order and bounds, case by case and for any sequence of events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::ClassSettings;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn class(name: &str, priority: u16, weight: u32) -> ClassSettings {
    ClassSettings {
        priority,
        weight,
        ..ClassSettings::new(name, 1000)
    }
}

fn queue(classes: Vec<ClassSettings>) -> Queue {
    Queue::new(&AdmissionSettings {
        classes,
        ..AdmissionSettings::one_class(1000)
    })
}

fn waiting(n: u128, class: u16, tenant: &str, cost: u64) -> Waiting {
    Waiting {
        request: RequestId(n),
        class: ClassId(class),
        tenant: TenantId::new(tenant),
        priority: 0,
        cost,
        until: Instant::ZERO + SECOND * 3600,
    }
}

/// The next one is placed.
fn serve(queue: &mut Queue, now: Instant) -> Option<RequestId> {
    let first = *queue.candidates(now, 1).first()?;
    queue.placed(now, first);
    Some(first)
}

fn served(queue: &mut Queue) -> Vec<u128> {
    std::iter::from_fn(|| serve(queue, Instant::ZERO))
        .map(|r| r.0)
        .collect()
}

#[test]
fn a_lower_number_of_a_class_is_served_first_whoever_came_first() {
    let mut queue = queue(vec![class("batch", 9, 1), class("chat", 0, 1)]);
    for n in 0..4 {
        queue.enter(Instant::ZERO, waiting(n, (n % 2) as u16, "t", 10), 1);
    }
    assert_eq!(served(&mut queue), [1, 3, 0, 2]);
}

#[test]
fn other_settings_order_those_that_wait_and_bound_those_that_come() {
    let mut settings = AdmissionSettings {
        classes: vec![class("batch", 9, 1), class("chat", 0, 1)],
        ..AdmissionSettings::one_class(1000)
    };
    let mut queue = Queue::new(&settings);
    for n in 0..4 {
        queue.enter(Instant::ZERO, waiting(n, (n % 2) as u16, "t", 10), 1);
    }
    settings.classes[0] = ClassSettings {
        queue: 1,
        ..class("batch", 0, 1)
    };
    settings.classes[1].priority = 9;
    settings.classes.push(class("new", 5, 1));
    queue.follow(&settings);
    let tenant = TenantId::new("t");
    assert_eq!(queue.check(ClassId(0), &tenant), Err(Full::Class(2)));
    assert_eq!(queue.check(ClassId(2), &tenant), Ok(None));
    queue.enter(Instant::ZERO, waiting(9, 2, "t", 10), 1);
    assert_eq!(served(&mut queue), [0, 2, 9, 1, 3]);
}

#[test]
fn within_a_tenant_the_requests_own_priority_decides_then_its_arrival() {
    let mut queue = queue(vec![class("c", 0, 1)]);
    for (n, priority) in [(1, 5), (2, 0), (3, -1), (4, 0)] {
        let waiting = Waiting {
            priority,
            ..waiting(n, 0, "t", 10)
        };
        queue.enter(Instant::ZERO, waiting, 1);
    }
    assert_eq!(served(&mut queue), [3, 2, 4, 1]);
}

#[test]
fn a_tenant_with_long_prompts_gets_as_many_tokens_as_one_with_short_ones() {
    let mut queue = queue(vec![class("c", 0, 1)]);
    for n in 0..40 {
        queue.enter(Instant::ZERO, waiting(n, 0, "long", 8000), 1);
    }
    for n in 100..500 {
        queue.enter(Instant::ZERO, waiting(n, 0, "short", 800), 1);
    }
    let order = served(&mut queue);
    let long = order[..220].iter().filter(|n| **n < 100).count();
    // 20 × 8000 is 200 × 800.
    assert!((19..=21).contains(&long), "{long}");
}

#[test]
fn a_request_that_comes_back_is_first_again_and_is_not_charged_twice() {
    let mut queue = queue(vec![class("c", 0, 1)]);
    queue.enter(Instant::ZERO, waiting(1, 0, "a", 10), 1);
    queue.enter(Instant::ZERO, waiting(2, 0, "b", 10), 1);
    assert_eq!(serve(&mut queue, Instant::ZERO), Some(RequestId(1)));
    queue.come_back(Instant::ZERO, waiting(1, 0, "a", 10));
    assert_eq!((queue.len(), queue.of_class(ClassId(0))), (2, 1));
    assert_eq!(served(&mut queue), [1, 2]);
}

#[test]
fn no_class_waits_for_ever_however_many_come_before_it() {
    let mut queue = queue(vec![class("chat", 0, 1), class("batch", 5, 1)]);
    queue.enter(Instant::ZERO, waiting(0, 1, "t", 100_000), 1);
    let late = Instant::ZERO + SECOND * 11;
    for n in 1..=100 {
        queue.enter(late, waiting(n, 0, "t", 10), 1);
    }
    // Before it is old, it has no turn.
    let early = Instant::ZERO + SECOND * 9;
    for _ in 0..50 {
        assert_ne!(serve(&mut queue, early), Some(RequestId(0)));
    }
    let order: Vec<_> = std::iter::from_fn(|| serve(&mut queue, late)).collect();
    let at = order.iter().position(|r| *r == RequestId(0)).unwrap();
    assert!(at < AGED_ONE_IN as usize, "{at}");
}

#[test]
fn every_bound_holds_and_the_class_that_is_served_last_makes_room() {
    let small = |name: &str, priority| ClassSettings {
        queue: 3,
        tenant_queue: 2,
        ..class(name, priority, 1)
    };
    let mut queue = Queue::new(&AdmissionSettings {
        classes: vec![small("chat", 0), small("batch", 1)],
        ..AdmissionSettings::one_class(4)
    });
    let (chat, batch, t) = (ClassId(0), ClassId(1), TenantId::new("t"));
    for n in 0..2 {
        assert_eq!(queue.check(batch, &t), Ok(None));
        queue.enter(Instant::ZERO, waiting(n, 1, "t", 10), 1);
    }
    assert_eq!(queue.check(batch, &t), Err(Full::Tenant(2)));
    queue.enter(Instant::ZERO, waiting(2, 1, "u", 10), 1);
    assert_eq!(queue.check(batch, &TenantId::new("v")), Err(Full::Class(3)));
    queue.enter(Instant::ZERO, waiting(3, 0, "t", 10), 1);
    // The queue is full: the newest of the batch goes for a chat.
    assert_eq!(queue.check(chat, &t), Ok(Some(RequestId(2))));
    queue.leave(RequestId(2));
    queue.enter(Instant::ZERO, waiting(4, 0, "t", 10), 1);
    assert_eq!(queue.check(batch, &TenantId::new("v")), Err(Full::Queue(4)));
}

#[test]
fn what_waits_before_a_request_is_what_its_place_in_the_order_says() {
    let mut queue = queue(vec![
        class("chat", 0, 1),
        class("batch", 5, 1),
        class("bulk", 5, 3),
    ]);
    queue.enter(Instant::ZERO, waiting(1, 0, "t", 500), 1);
    queue.enter(Instant::ZERO, waiting(2, 1, "t", 10_000), 1);
    queue.enter(Instant::ZERO, waiting(3, 2, "t", 10_000), 1);
    let before =
        |class, tenant| queue.tokens_before(ClassId(class), &TenantId::new(tenant), 100, 1);
    assert_eq!(before(0, "t"), 500);
    assert_eq!(before(0, "u"), 100, "a fair share for the other tenant");
    // Its own tenant's, the chat, and three times as much of bulk, of which there is less.
    assert_eq!(before(1, "t"), 10_000 + 500 + 10_000);
    // 100 of the other tenant of batch, then three times 200 of bulk.
    assert_eq!(before(1, "u"), 500 + 100 + 600);
}

#[test]
fn those_whose_time_is_over_go() {
    let mut queue = queue(vec![class("c", 0, 1)]);
    for n in 1..=3_u8 {
        let until = Instant::ZERO + SECOND * u32::from(n);
        let waiting = Waiting {
            until,
            ..waiting(n.into(), 0, "t", 1)
        };
        queue.enter(Instant::ZERO, waiting, 1);
    }
    assert_eq!(queue.deadline(), Some(Instant::ZERO + SECOND));
    let gone = queue.expired(Instant::ZERO + SECOND * 2);
    assert_eq!(gone, [RequestId(1), RequestId(2)]);
    assert_eq!(served(&mut queue), [3]);
}

#[derive(Clone, Debug)]
enum Event {
    Enter { class: u16, tenant: u8, cost: u64 },
    Leave(u8),
    Serve,
    Overtake,
    Return(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let enter = (0..3_u16, 0..4_u8, 1..5000_u64);
    let enter = enter.prop_map(|(class, tenant, cost)| Event::Enter {
        class,
        tenant,
        cost,
    });
    let event = prop_oneof![
        4 => enter,
        1 => any::<u8>().prop_map(Event::Leave),
        3 => Just(Event::Serve),
        1 => Just(Event::Overtake),
        1 => any::<u8>().prop_map(Event::Return),
    ];
    prop::collection::vec(event, 1..200)
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nothing_comes_twice(events in events()) {
        let mut queue = queue(vec![class("a", 0, 1), class("b", 1, 2), class("c", 1, 1)]);
        let mut there = BTreeMap::new();
        let mut gone: Vec<Waiting> = Vec::new();
        for (n, event) in (0_u128..).zip(events) {
            let now = Instant::ZERO + SECOND * (n as u32);
            match event {
                Event::Enter { class, tenant, cost } => {
                    let waiting = waiting(n, class, &tenant.to_string(), cost);
                    there.insert(waiting.request, waiting.clone());
                    queue.enter(now, waiting, u32::from(tenant) + 1);
                }
                Event::Leave(at) => {
                    let at = there.keys().nth(usize::from(at) % there.len().max(1)).copied();
                    if let Some(request) = at {
                        there.remove(&request);
                        prop_assert!(queue.leave(request));
                        prop_assert!(!queue.leave(request));
                    }
                }
                Event::Serve | Event::Overtake => {
                    let looked = queue.candidates(now, 8);
                    prop_assert_eq!(looked.is_empty(), there.is_empty());
                    prop_assert_eq!(&looked, &queue.candidates(now, 8), "looking changes nothing");
                    let overtakes = matches!(event, Event::Overtake);
                    let request = if overtakes { looked.last() } else { looked.first() };
                    if let Some(request) = request {
                        queue.placed(now, *request);
                        gone.push(there.remove(request).unwrap());
                    }
                }
                Event::Return(at) => {
                    let at = usize::from(at);
                    if at < gone.len() {
                        let back = gone.swap_remove(at);
                        there.insert(back.request, back.clone());
                        queue.come_back(now, back);
                    }
                }
            }
            prop_assert_eq!(queue.requests().collect::<Vec<_>>(), there.keys().copied().collect::<Vec<_>>());
        }
        let mut all = served(&mut queue);
        all.sort_unstable();
        prop_assert_eq!(all, there.keys().map(|r| r.0).collect::<Vec<_>>());
        prop_assert_eq!(queue.deadline(), None);
        prop_assert!(queue.bands.is_empty() && queue.by_age.is_empty() && queue.returned.is_empty());
    }

    /// Shreedhar and Varghese's bound: while two flows both wait, what they got by weight differs by
    /// no more than a quantum each and the longest request of each.
    #[test]
    fn weights_are_kept_within_drrs_bound(
        costs in prop::collection::vec((1_u64..6000, 1_u64..6000), 60..61),
        weight in 1_u32..6,
    ) {
        let mut queue = queue(vec![class("c", 0, 1)]);
        for (n, (a, b)) in (0_u128..).zip(&costs) {
            queue.enter(Instant::ZERO, waiting(n, 0, "a", *a), 1);
            queue.enter(Instant::ZERO, waiting(n + 1000, 0, "b", *b), weight);
        }
        let (mut a, mut b, mut left) = (0_i64, 0_i64, [60, 60]);
        while let Some(request) = serve(&mut queue, Instant::ZERO) {
            let n = request.0 as usize;
            if n < 1000 {
                a += costs[n].0 as i64;
                left[0] -= 1;
            } else {
                b += costs[n - 1000].1 as i64;
                left[1] -= 1;
            }
            if left.contains(&0) {
                break;
            }
            let quantum = super::super::drr::QUANTUM;
            let apart = (a - b / i64::from(weight)).abs();
            prop_assert!(apart <= 2 * quantum + 2 * 6000, "{a} {b} {weight}");
        }
    }
}
