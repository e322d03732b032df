//! Overload in simulated time: what a fleet serves in time does not shrink when more is asked of it.
//!
//! A fleet of decode workers, each with so many pages; a request holds its pages from its grant to
//! its end. Its first token comes a fixed time after the grant, so it is in time where it waited no
//! longer than its class may.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking; figures, for whoever asks for them"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tandem_core::admission::{AdmissionSettings, ClassId, ClassSettings, TenantId};
use tandem_core::fleet::{Fleet, WorkerFacts, WorkerLoad, pages_for};
use tandem_core::front_door::{FrontDoor, Input, Output};
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::pairing::{
    Local, NoPair, NoPairReason, Pair, Policy, RequestFacts, Stage, of_decode,
};
use tandem_core::{Incarnation, Instant, RequestId, WorkerId, WorkerRole};

const WORKERS: u64 = 4;
const PAGES: u32 = 256;
/// From a grant to the first token.
const PREFILL: Duration = Duration::from_millis(500);
const PER_TOKEN: Duration = Duration::from_millis(10);
/// The class's target for the first token.
const TTFT: Duration = Duration::from_millis(2_500);
const RUN: Duration = Duration::from_secs(120);

struct MostFree;

impl Policy for MostFree {
    fn pair(
        &mut self,
        now: Instant,
        fleet: &Fleet,
        request: &RequestFacts,
    ) -> Result<Pair, NoPair> {
        self.explain(now, fleet, request)
    }

    fn explain(&self, _: Instant, fleet: &Fleet, request: &RequestFacts) -> Result<Pair, NoPair> {
        let fits = fleet.workers().filter(|w| {
            let slot = fleet.slot(&w.facts.worker).unwrap();
            let figures = fleet.figures()[slot.index()];
            let pages = pages_for(figures.page_tokens, request);
            !request.avoids(Stage::Decode, &w.facts.worker) && of_decode(&figures, pages).is_ok()
        });
        let best = fits.max_by_key(|w| w.free_pages());
        let none = NoPair {
            reason: NoPairReason::NoRoom(Stage::Decode),
            why: Default::default(),
        };
        Ok(Pair {
            decode: best.ok_or(none)?.facts.worker.clone(),
            prefill: None,
            local: Some(Local::Role),
            cached_tokens: 0,
            why: Default::default(),
        })
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.0 >> 11) as f64) / ((1_u64 << 53) as f64)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() * f64::from(n)) as u32
    }

    fn pause(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.next()).ln())
    }
}

fn door(settings: AdmissionSettings) -> FrontDoor<MostFree> {
    let mut door = FrontDoor::new(settings, MostFree);
    let geometry = KvGeometry {
        layers: 1,
        kv_heads: 1,
        head_dim: 2,
        page_tokens: 16,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };
    let layout = WorkerLayout::tensor_parallel(geometry, PAGES, 1).unwrap();
    let roles = (0..WORKERS).map(|_| WorkerRole::Decode);
    for (n, role) in roles.chain([WorkerRole::Prefill]).enumerate() {
        let facts = WorkerFacts {
            worker: WorkerId::new(format!("{role}-{n}")).unwrap(),
            incarnation: Incarnation(1),
            role,
            model: String::new(),
            fingerprint: String::new(),
            context_length: 1 << 20,
            layout: layout.clone().into(),
            provider: String::new(),
            seed: None,
            labels: BTreeMap::new(),
        };
        let load = WorkerLoad {
            free_pages: PAGES,
            ..WorkerLoad::default()
        };
        door.join(facts, load).unwrap();
    }
    door
}

/// A request of the load: how long it holds its pages follows from its tokens.
#[derive(Clone)]
struct Asked {
    arrived: Instant,
    answer: u32,
    prompt: u32,
    tenant: u32,
    class: u16,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(u128),
    Ends(u128),
    Wakes,
}

#[derive(Debug, Default)]
struct Outcome {
    /// By class.
    in_time: BTreeMap<u16, u64>,
    late: u64,
    turned_away: u64,
    /// Those that waited in the queue and were turned away for that.
    waited_in_vain: u64,
    served_tokens: BTreeMap<u32, u64>,
}

impl Outcome {
    fn goodput(&self) -> f64 {
        self.in_time.values().sum::<u64>() as f64 / RUN.as_secs_f64()
    }
}

/// Requests of a load that is `times` what the fleet can do.
fn load(times: f64, classes: u16) -> Vec<Asked> {
    let mut random = Random(42);
    // Tokens × seconds that the mean request takes of what the fleet has in each second.
    let (prompt, answer) = (512.0, 128.0);
    let held = PREFILL.as_secs_f64() + answer * PER_TOKEN.as_secs_f64();
    let capacity = (WORKERS * u64::from(PAGES) * 16) as f64 / ((prompt + answer) * held);
    let mean = Duration::from_secs_f64(1.0 / (capacity * times));
    let mut now = Instant::ZERO;
    let mut asked = Vec::new();
    while now < Instant::ZERO + RUN {
        now = now + random.pause(mean);
        asked.push(Asked {
            arrived: now,
            prompt: 128 + random.below(768),
            answer: 64 + random.below(128),
            tenant: random.below(3),
            class: u16::from(random.next() < 0.5) * (classes - 1),
        });
    }
    asked
}

fn run(settings: AdmissionSettings, asked: &[Asked]) -> Outcome {
    let mut door = door(settings);
    let mut events = BinaryHeap::new();
    for (n, asked) in (0_u128..).zip(asked) {
        events.push(Reverse((asked.arrived, Event::Arrives(n))));
    }
    let mut outcome = Outcome::default();
    let end = Instant::ZERO + RUN;
    while let Some(Reverse((now, event))) = events.pop() {
        let input = match event {
            Event::Arrives(n) => {
                let a = &asked[n as usize];
                let facts = RequestFacts {
                    tenant: TenantId::new(a.tenant.to_string()),
                    class: ClassId(a.class),
                    ..RequestFacts::new(RequestId(n), a.prompt, a.answer)
                };
                let (deadline, key) = (now + RUN, None);
                Input::Submit {
                    facts,
                    deadline,
                    key,
                }
            }
            Event::Ends(n) => Input::Ended {
                request: RequestId(n),
                generated: asked[n as usize].answer,
            },
            Event::Wakes => Input::Tick,
        };
        door.handle(now, input);
        while let Some(output) = door.poll() {
            match output {
                Output::Ask { request, .. } => {
                    door.handle(now, Input::Reserved { request });
                    let a = &asked[request.0 as usize];
                    let first = now + PREFILL;
                    let ends = first + PER_TOKEN * a.answer;
                    events.push(Reverse((ends, Event::Ends(request.0))));
                    if first.since(a.arrived) > TTFT {
                        outcome.late += 1;
                    } else if first < end {
                        *outcome.in_time.entry(a.class).or_default() += 1;
                    }
                    if now < end {
                        *outcome.served_tokens.entry(a.tenant).or_default() +=
                            u64::from(a.prompt + a.answer);
                    }
                }
                Output::Reject { request, .. } => {
                    outcome.turned_away += 1;
                    let waited = now > asked[request.0 as usize].arrived;
                    outcome.waited_in_vain += u64::from(waited);
                }
            }
        }
        if let Some(wake) = door.deadline().filter(|wake| *wake > now) {
            let is_next = events
                .peek()
                .is_some_and(|Reverse((next, _))| *next <= wake);
            if !is_next {
                events.push(Reverse((wake, Event::Wakes)));
            }
        }
    }
    assert_eq!(
        (door.in_flight(), door.waiting()),
        (0, 0),
        "nothing is left"
    );
    outcome
}

fn admission() -> AdmissionSettings {
    let class = ClassSettings {
        queue_deadline: Some(TTFT - PREFILL),
        ..ClassSettings::new("chat", 10_000)
    };
    AdmissionSettings {
        classes: vec![class],
        ..AdmissionSettings::one_class(10_000)
    }
}

/// One long queue in which everybody waits for a turn.
fn fifo() -> AdmissionSettings {
    AdmissionSettings {
        early_rejection: false,
        ..AdmissionSettings::one_class(10_000)
    }
}

#[test]
fn overload_does_not_lower_goodput_where_plain_fifo_collapses() {
    let goodput = |settings, times| run(settings, &load(times, 1)).goodput();
    let base = goodput(admission(), 1.0);
    assert!(base > 10.0, "{base}");
    for times in [2.0, 5.0] {
        let ours = goodput(admission(), times);
        let plain = goodput(fifo(), times);
        println!("{times}x: {ours:.1} requests/s in time, {plain:.1} by FIFO, {base:.1} at 1x");
        assert!(ours >= 0.9 * base, "{ours} of {base} at {times}x");
        assert!(
            plain < 0.5 * base,
            "{plain} of {base} at {times}x by plain FIFO"
        );
    }
}

#[test]
fn most_of_those_that_cannot_be_served_learn_it_at_once() {
    let outcome = run(admission(), &load(5.0, 1));
    assert!(outcome.turned_away > 1000, "{outcome:?}");
    let in_vain = outcome.waited_in_vain as f64 / outcome.turned_away as f64;
    assert!(in_vain < 0.1, "{in_vain} of them waited first: {outcome:?}");
    assert_eq!(outcome.late, 0, "whoever starts, starts in time");
}

#[test]
fn tenants_get_their_weights_worth_of_an_overloaded_fleet() {
    let mut settings = admission();
    for (tenant, weight) in [("0", 1), ("1", 1), ("2", 2)] {
        let limits = Default::default();
        let own = tandem_core::admission::TenantSettings { weight, limits };
        settings.tenants.insert(tenant.into(), own);
    }
    settings.early_rejection = false;
    let served = run(settings, &load(5.0, 1)).served_tokens;
    let share = |tenant: u32| served[&tenant] as f64 / served.values().sum::<u64>() as f64;
    for (tenant, want) in [(0, 0.25), (1, 0.25), (2, 0.5)] {
        let share = share(tenant);
        assert!((share - want).abs() < 0.03, "{tenant}: {share} of {want}");
    }
}

#[test]
fn the_first_class_is_served_as_if_it_were_alone_and_the_last_still_gets_something() {
    let chat = ClassSettings {
        queue_deadline: Some(TTFT - PREFILL),
        ..ClassSettings::new("chat", 10_000)
    };
    let batch = ClassSettings {
        priority: 10,
        ..ClassSettings::new("batch", 200)
    };
    let settings = AdmissionSettings {
        classes: vec![chat, batch],
        ..AdmissionSettings::one_class(10_000)
    };
    // Half of it is chat, which alone would be 1.2 times what there is room for.
    let asked = load(2.4, 2);
    let alone: Vec<Asked> = asked.iter().filter(|a| a.class == 0).cloned().collect();
    let (both, alone) = (run(settings.clone(), &asked), run(settings, &alone));
    let share = both.in_time[&0] as f64 / alone.in_time[&0] as f64;
    assert!(share > 0.8, "{share}: {both:?} {alone:?}");
    let batch = both.in_time.get(&1).copied().unwrap_or(0) + both.late;
    assert!(batch > 50, "{both:?}");
}
