//! Agents that are killed, stopped and restarted while transfers run: no page ever holds a byte of
//! another request, and everything comes back.
//!
//! Agents are processes; the engines, whose memory holds the pages, live in the test's own and check
//! every entry. `TANDEM_LONG=1` runs 10,000 transfers and a stop of a minute.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tandem_config::Config;
use tandem_engine::testing::TinyLlama;
use tandem_wire::proto;
use tokio::sync::RwLock;

use crate::fleet::{Fleet, Worker, generate};
use crate::pattern::{self, Findings, VOCABULARY};

const CONFIG: &str = "TANDEM_TEST_AGENT_CONFIG";

fn is_long() -> bool {
    std::env::var_os("TANDEM_LONG").is_some_and(|v| v == "1")
}

/// The child's part: one agent, until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_agent_process() {
    let Some(path) = std::env::var_os(CONFIG) else {
        return;
    };
    let path = PathBuf::from(path);
    let config = Config::load(&path).unwrap().worker.unwrap();
    let told = path.with_extension("address");
    let run = tandem_worker_agent::run(config, std::future::pending(), |started| {
        let part = told.with_extension("part");
        std::fs::write(&part, started.address.to_string()).unwrap();
        std::fs::rename(&part, &told).unwrap();
    });
    panic!("{:?}", run.await);
}

/// An agent's process beside a pattern engine that outlives it.
struct Agent {
    name: String,
    path: PathBuf,
    child: Child,
    /// As the gateway knows it; `None` while it is away.
    worker: RwLock<Option<Arc<Worker>>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(path: &PathBuf) -> Child {
    let _ = std::fs::remove_file(path.with_extension("address"));
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "chaos::an_agent_process", "--nocapture"])
        .env(CONFIG, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Agent {
    /// Starts an engine of so many ranks and pages, and its agent.
    async fn start(
        fleet: &Fleet,
        role: &str,
        (ranks, page_tokens, pages): (u16, u16, u32),
        fabric: &str,
        findings: &Arc<Findings>,
    ) -> Self {
        let name = fleet.issue(role);
        let socket = fleet.folder().join(format!("{name}.sock"));
        let layout = pattern::layout(ranks, page_tokens, pages);
        pattern::host(&socket, &layout, findings);
        let lines = format!(
            "engine_socket = {:?}\ndrain_timeout_ms = 1000",
            socket.display().to_string()
        );
        let path = fleet.folder().join(format!("{name}.toml"));
        std::fs::write(&path, fleet.text(&name, role, &lines, fabric)).unwrap();
        let agent = Self {
            child: spawn(&path),
            name,
            path,
            worker: RwLock::new(None),
        };
        agent.meet(fleet).await;
        agent
    }

    /// Waits until the agent can be reached.
    async fn meet(&self, fleet: &Fleet) {
        let told = self.path.with_extension("address");
        let deadline = Instant::now() + Duration::from_secs(30);
        let address = loop {
            if let Ok(text) = std::fs::read_to_string(&told) {
                break text.parse().unwrap();
            }
            assert!(Instant::now() < deadline, "{} does not start", self.name);
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        let worker = fleet.meet(&self.name, address).await;
        *self.worker.write().await = Some(Arc::new(worker));
    }

    async fn restart(&mut self, fleet: &Fleet) {
        *self.worker.write().await = None;
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.path);
        self.meet(fleet).await;
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    async fn known(&self) -> Option<Arc<Worker>> {
        self.worker.read().await.clone()
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// One of a few beginnings, then tokens of its own.
fn prompt(random: &mut Random) -> Vec<u32> {
    let shared = random.below(4) as u32;
    let begin = (0..random.below(100) as u32).map(|i| (i * 7 + shared * 131) % VOCABULARY);
    let own = 2 + random.below(120);
    let mut tokens: Vec<u32> = begin.collect();
    tokens.extend((0..own).map(|_| random.below(u64::from(VOCABULARY)) as u32));
    tokens
}

/// How requests ended.
#[derive(Default)]
struct Tally {
    answered: AtomicUsize,
    cut: AtomicUsize,
    failed: AtomicUsize,
}

/// Asks for an answer, or gives it up somewhere on the way.
async fn one(n: u64, random: &mut Random, prefill: &Worker, decode: &Worker, tally: &Tally) {
    let tokens = prompt(random);
    let new_tokens = 1 + random.below(12) as u32;
    let ask = proto::Generate {
        time_left_ms: 5_000,
        ..generate(
            u128::from(n) << 64 | u128::from(n),
            &tokens,
            new_tokens,
            Some(prefill.peer()),
        )
    };
    let cut = random.below(3) == 0;
    let after = Duration::from_micros(random.below(12_000));
    let asked = decode.answer(ask);
    let ended = if cut {
        // Dropped: the stream breaks off wherever it stands.
        match tokio::time::timeout(after, asked).await {
            Ok(ended) => ended,
            Err(_) => {
                tally.cut.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    } else {
        asked.await
    };
    match ended {
        Ok(answer) => {
            assert_eq!(answer.tokens, pattern::answer(&tokens, new_tokens));
            tally.answered.fetch_add(1, Ordering::Relaxed);
        }
        Err(_) => drop(tally.failed.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Kills, stops and restarts agents at random.
async fn harass(
    fleet: &Fleet,
    agents: &[RwLock<Agent>],
    seed: u64,
    kills: &AtomicUsize,
    goes_on: impl Fn() -> bool,
) {
    let mut random = Random(seed);
    while goes_on() {
        tokio::time::sleep(Duration::from_millis(100 + random.below(400))).await;
        let agent = &agents[random.below(4) as usize];
        if random.below(4) == 0 {
            // Stopped for longer than its peers' patience, or not.
            let pause = Duration::from_millis(50 + random.below(1500));
            agent.read().await.signal(Signal::STOP);
            tokio::time::sleep(pause).await;
            agent.read().await.signal(Signal::CONT);
        } else {
            agent.write().await.restart(fleet).await;
        }
        kills.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_ever_holds_a_byte_of_another_request() {
    let (transfers, seed) = if is_long() { (10_000, 1) } else { (1_200, 2) };
    let fleet = Fleet::new(TinyLlama::default());
    let findings = Arc::new(Findings::default());
    let prefills = [(1, 16, 64), (2, 32, 40)];
    let decodes = [(2, 16, 60), (1, 32, 40)];
    let mut agents = Vec::new();
    for (role, shapes) in [("prefill", prefills), ("decode", decodes)] {
        for shape in shapes {
            agents.push(Agent::start(&fleet, role, shape, "nics = 2", &findings).await);
        }
    }
    let agents: Vec<RwLock<Agent>> = agents.into_iter().map(RwLock::new).collect();
    let (next, tally) = (AtomicU64::new(0), Tally::default());
    let kills = AtomicUsize::new(0);
    // However fast the machine is, some agents die meanwhile.
    let goes_on = || next.load(Ordering::Relaxed) < transfers || kills.load(Ordering::Relaxed) < 5;
    let client = |lane: u64| {
        let (agents, next, tally, goes_on) = (&agents, &next, &tally, &goes_on);
        async move {
            let mut random = Random(seed << 32 | lane);
            while goes_on() {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let prefill = agents[random.below(2) as usize].read().await.known().await;
                let decode = agents[2 + random.below(2) as usize]
                    .read()
                    .await
                    .known()
                    .await;
                match (prefill, decode) {
                    (Some(p), Some(d)) => one(n, &mut random, &p, &d, tally).await,
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        }
    };
    let killer = harass(&fleet, &agents, seed, &kills, &goes_on);
    let lanes = futures_util::future::join_all((0..12).map(client));
    tokio::join!(lanes, killer);
    for agent in &agents {
        let worker = agent.read().await.known().await.unwrap();
        worker.at_rest().await;
        let pages = worker.load().await.pages.unwrap();
        let busy = pages.leased + pages.exposed + pages.ready + pages.active;
        assert_eq!(
            busy + pages.draining + pages.quarantined,
            0,
            "{}",
            worker.id
        );
    }
    let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    let checked = findings.checked.load(Ordering::Relaxed);
    eprintln!(
        "{} requests: {} answered, {} cut, {} failed; {} kills and stops; {checked} checks",
        next.load(Ordering::Relaxed),
        count(&tally.answered),
        count(&tally.cut),
        count(&tally.failed),
        count(&kills)
    );
    assert_eq!(
        findings.wrong.load(Ordering::Relaxed),
        0,
        "foreign or missing bytes"
    );
    assert!(count(&tally.answered) > transfers as usize / 4);
    assert!(findings.contexts.load(Ordering::Relaxed) > checked / 2);
}

/// Transfers one after another, so that the stop comes in the middle of some. Whether the last one
/// failed.
async fn doomed(lane: u128, decode: &Worker, prefill: &proto::Peer, stopped: &AtomicBool) -> bool {
    let mut random = Random(lane as u64);
    let mut n = 0;
    loop {
        n += 1;
        let tokens: Vec<u32> = (0..1500).map(|_| random.below(1000) as u32).collect();
        let ask = proto::Generate {
            time_left_ms: 20_000,
            ..generate(lane << 64 | n, &tokens, 2, Some(prefill.clone()))
        };
        let ended = decode.answer(ask).await;
        if stopped.load(Ordering::Relaxed) {
            return ended.is_err();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_worker_that_wakes_up_late_writes_into_nobodys_pages() {
    let pause = Duration::from_secs(if is_long() { 60 } else { 8 });
    let fleet = Fleet::new(TinyLlama::default());
    let findings = Arc::new(Findings::default());
    // One write at a time: most of a transfer waits in the sleeper's own queue.
    let slow = "in_flight_writes = 1\nmax_write_bytes = 4096";
    let sleeper = Agent::start(&fleet, "prefill", (2, 16, 900), slow, &findings).await;
    let other = Agent::start(&fleet, "prefill", (1, 16, 300), "", &findings).await;
    let decode = Agent::start(&fleet, "decode", (2, 16, 600), "", &findings).await;
    let begun = sleeper.known().await.unwrap().peer();
    let o = other.known().await.unwrap();
    let d = decode.known().await.unwrap();
    let stopped = AtomicBool::new(false);
    let stop = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        sleeper.signal(Signal::STOP);
        stopped.store(true, Ordering::Relaxed);
        Instant::now()
    };
    let doomed = (1..=6).map(|lane| doomed(lane, &d, &begun, &stopped));
    let lanes = futures_util::future::join_all(doomed);
    let (failed, started) = tokio::join!(lanes, stop);
    let failed_after = started.elapsed();
    assert!(failed.contains(&true), "nothing was under way");
    assert!(failed_after < Duration::from_secs(7), "{failed_after:?}");
    // Six prompts fill all pages with blocks that stay, and whose every byte is checked each time that
    // one of them is found again.
    let prompt = |i: u64| -> Vec<u32> {
        let mut random = Random(1000 + i);
        (0..1500).map(|_| random.below(1000) as u32).collect()
    };
    let prompts: Vec<Vec<u32>> = (0..6).map(prompt).collect();
    let mut served = 0u32;
    let mut n = 0u128;
    let mut serve = async |until: Instant| {
        while Instant::now() < until {
            n += 1;
            let tokens = &prompts[n as usize % 6];
            let ask = generate(n, tokens, 8, Some(o.peer()));
            match d.answer(ask).await {
                Ok(answer) => {
                    assert_eq!(answer.tokens, pattern::answer(tokens, 8));
                    served += 1;
                }
                // The fence is still under way.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    serve(started + pause).await;
    sleeper.signal(Signal::CONT);
    // Whatever it had posted comes out now.
    serve(Instant::now() + Duration::from_secs(2)).await;
    eprintln!(
        "failed after {failed_after:?}, stopped for {pause:?}, {served} served meanwhile and after"
    );
    assert_eq!(
        findings.wrong.load(Ordering::Relaxed),
        0,
        "foreign or missing bytes"
    );
    assert!(served > 3);
    d.at_rest().await;
    o.at_rest().await;
    // The connection to it has gone meanwhile.
    sleeper.meet(&fleet).await;
    sleeper.known().await.unwrap().at_rest().await;
}
