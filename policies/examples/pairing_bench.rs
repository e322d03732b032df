//! What a pairing costs: the whole of `Policy::pair`, by rule.
//!
//! `cargo run --release -p tandem-policies --example pairing_bench [WORKERS [BLOCKS [PAIRINGS [POLICY]]]]`;
//! default: 1000 workers, an index of 1000000 blocks, 20000 pairings a policy, all policies. Half of the workers
//! prefill, half decode. Each pairing is of another prompt and counts as its pair's load; nothing is
//! left out of the measured time but that and the prompt's names, which the gateway makes once.
//!
//! On a machine that does other work too, the thread's own CPU time says more than the clock.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints, and reads the clock"
)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use tandem_core::blocks::{BlockChain, BlockHash, BlockSeed};
use tandem_core::fleet::{Fleet, WorkerFacts, WorkerLoad, pages_for};
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::pairing::{Policy, RequestFacts, Targets};
use tandem_core::pool::CacheChange;
use tandem_core::{Incarnation, Instant, RequestId, WorkerId, WorkerRole};
use tandem_policies::{Pairing, Picker, PolicySettings, Rule, Scorer};

const PAGE: u32 = 16;
/// Blocks of a conversation that a worker holds: 2,048 tokens.
const HELD: u32 = 128;
/// Workers that hold the same conversation's beginning.
const SHARED: u32 = 3;
/// Blocks of a system prompt that everybody holds.
const SYSTEM: u32 = 32;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| {
        arguments
            .get(at)
            .map_or(default, |a| a.parse().expect("a number"))
    };
    let (workers, blocks, pairings) = (number(0, 1000), number(1, 1_000_000), number(2, 20_000));
    let started = Clock::now();
    let (fleet, conversations) = fleet(workers, blocks);
    let index = fleet.index().expect("an index");
    println!(
        "{workers} workers, {} blocks in the index (made in {:.1} s), {conversations} conversations, {pairings} \
         pairings each of 2,560 prompt tokens",
        index.len(),
        started.elapsed().as_secs_f64()
    );
    println!(
        "{:<26} {:>9} {:>9} {:>9} {:>10} {:>10}",
        "policy", "p50 us", "p99 us", "p99.9 us", "CPU p50 us", "CPU p99 us"
    );
    let wanted = |name: &str| arguments.get(3).is_none_or(|only| only == name);
    for (name, settings) in policies() {
        if !wanted(&name) {
            continue;
        }
        report(&name, measure(&fleet, &settings, conversations, pairings));
    }
    for (turns, us) in [(4_000, 6), (8_000, 12)] {
        report(
            &format!("arithmetic, about {us} us"),
            arithmetic(turns, pairings),
        );
    }
}

/// What the machine makes of work that waits for nothing: how much of a p99 is the machine's.
fn arithmetic(turns: u64, times: u32) -> [Vec<u64>; 2] {
    let mut taken = [(); 2].map(|()| Vec::with_capacity(times as usize));
    let mut number = 1_u64;
    for _ in 0..times {
        let (started, cpu) = (Clock::now(), cpu_time());
        for turn in 0..turns {
            number = std::hint::black_box(number).wrapping_mul(6_364_136_223_846_793_005) ^ turn;
        }
        let took = [started.elapsed(), cpu_time() - cpu];
        for (taken, took) in taken.iter_mut().zip(took) {
            taken.push(took.as_nanos() as u64);
        }
    }
    taken.iter_mut().for_each(|times| times.sort_unstable());
    taken
}

/// Every rule for both stages, and the costliest combinations.
fn policies() -> Vec<(String, PolicySettings)> {
    let mut all = Vec::new();
    for (name, rule) in Rule::NAMES {
        let mut settings = PolicySettings::default();
        (settings.prefill.choose, settings.decode.choose) = (rule, rule);
        settings.prefill.weights = vec![
            (Scorer::Prefix, 2.0),
            (Scorer::Queue, 1.0),
            (Scorer::Topology, 0.5),
        ];
        settings.decode.weights = vec![
            (Scorer::Pages, 1.0),
            (Scorer::Requests, 1.0),
            (Scorer::Session, 0.5),
        ];
        settings.slo = Targets {
            ttft: Some(Duration::from_millis(500)),
            tpot: Some(Duration::from_millis(50)),
        };
        all.push((name.to_owned(), settings));
    }
    let mut warm = all[7].1.clone();
    warm.kv_cost.router_temperature = 0.5;
    all.push(("kv_cost, temperature 0.5".to_owned(), warm));
    let mut soft = all[10].1.clone();
    soft.prefill.picker = Picker::Softmax { temperature: 0.2 };
    soft.decode.picker = Picker::Softmax { temperature: 0.2 };
    all.push(("scored, softmax".to_owned(), soft));
    let mut pairs = all[10].1.clone();
    pairs.pair.candidates = 4;
    all.push(("scored, 4 x 4 pairs".to_owned(), pairs));
    all
}

fn block(conversation: u32, at: u32) -> BlockHash {
    let key = if at < SYSTEM {
        u64::from(at)
    } else {
        u64::from(conversation + 1) << 32 | u64::from(at)
    };
    let mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    BlockHash((u128::from(mixed) << 64 | u128::from(mixed)).to_be_bytes())
}

fn seed() -> BlockSeed {
    BlockSeed::announced(BlockHash([7; 16]), PAGE as u16)
}

fn fleet(workers: u32, blocks: u32) -> (Fleet, u32) {
    let geometry = KvGeometry {
        layers: 32,
        kv_heads: 8,
        head_dim: 128,
        page_tokens: PAGE as u16,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };
    let layout = WorkerLayout::tensor_parallel(geometry, 20_000, 1).expect("a layout");
    let layout = Arc::new(layout);
    let mut fleet = Fleet::new(blocks as usize + HELD as usize);
    for n in 0..workers {
        let prefills = n % 2 == 0;
        let place = [("host", n / 8), ("rack", n / 64)];
        let labels = place.map(|(key, value)| (key.to_owned(), value.to_string()));
        let facts = WorkerFacts {
            worker: name(n),
            incarnation: Incarnation(1),
            role: if prefills {
                WorkerRole::Prefill
            } else {
                WorkerRole::Decode
            },
            model: String::new(),
            fingerprint: String::new(),
            context_length: 1 << 20,
            layout: Arc::clone(&layout),
            provider: String::new(),
            seed: Some(seed()),
            labels: BTreeMap::from(labels),
        };
        let load = WorkerLoad {
            sequence: 1,
            free_pages: 20_000 - n * 7 % 9_000,
            queued_prompt_tokens: u64::from(n * 37 % 20_000),
            running: n * 13 % 64,
            prefill_ns_per_token: 20_000 + n,
            decode_step_us: 15_000 + n,
            ..WorkerLoad::default()
        };
        fleet.join(facts, load).expect("room");
    }
    let conversations = (blocks - SYSTEM) / (HELD - SYSTEM);
    for conversation in 0..conversations {
        let chain: Vec<_> = (0..HELD)
            .map(|at| CacheChange::Stored(block(conversation, at)))
            .collect();
        for copy in 0..SHARED {
            // The later ones hold less of it.
            let held = &chain[..(HELD - copy * 30) as usize];
            let worker = name((conversation * 17 + copy * 331) % workers);
            fleet.cached(&worker, Incarnation(1), false, held);
        }
    }
    (fleet, conversations)
}

fn name(n: u32) -> WorkerId {
    WorkerId::new(format!("w{n}")).expect("a name")
}

fn request(n: u32, conversations: u32) -> RequestFacts {
    let conversation = n.wrapping_mul(2_654_435_761) % conversations;
    let chain = BlockChain {
        seed: seed(),
        // The last quarter of the prompt is new.
        blocks: (0..HELD + HELD / 4)
            .map(|at| block(conversation, at))
            .collect(),
    };
    RequestFacts {
        affinity: Some(u64::from(conversation)),
        blocks: Arc::new([chain]),
        ..RequestFacts::new(RequestId(n.into()), (HELD + HELD / 4) * PAGE, 256)
    }
}

fn measure(
    fleet: &Fleet,
    settings: &PolicySettings,
    conversations: u32,
    pairings: u32,
) -> [Vec<u64>; 2] {
    let mut fleet = fleet.clone();
    let mut policy = Pairing::new(settings, 7);
    let mut running = VecDeque::new();
    let mut times = [(); 2].map(|()| Vec::with_capacity(pairings as usize));
    let warm_up = pairings / 20;
    for n in 0..pairings + warm_up {
        let request = request(n, conversations);
        let (started, cpu) = (Clock::now(), cpu_time());
        let pair = policy.pair(Instant::ZERO, &fleet, &request);
        let took = [started.elapsed(), cpu_time() - cpu];
        if n >= warm_up {
            for (times, took) in times.iter_mut().zip(took) {
                times.push(took.as_nanos() as u64);
            }
        }
        if let Ok(pair) = pair {
            running.push_back(fleet.pick(&pair, &request, pages_for(PAGE as u16, &request)));
        }
        if running.len() > 2000 {
            running
                .pop_front()
                .into_iter()
                .for_each(|picked| fleet.give_back(picked));
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    times
}

/// What this thread has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(name: &str, [clock, cpu]: [Vec<u64>; 2]) {
    let at =
        |times: &[u64], share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    println!(
        "{name:<26} {:>9.2} {:>9.2} {:>9.2} {:>10.2} {:>10.2}",
        at(&clock, 0.5),
        at(&clock, 0.99),
        at(&clock, 0.999),
        at(&cpu, 0.5),
        at(&cpu, 0.99)
    );
}
