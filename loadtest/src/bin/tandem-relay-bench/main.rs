//! What the gateway's relay costs: `make bench` runs it.
//!
//! A gateway in a process of its own, one made worker (real QUIC, no model) and as many clients as are
//! wanted here. Every token carries the time of its sending, and the gateway's CPU time is the kernel's
//! figure for its process. Worker and clients share the machine with it, so latencies are upper bounds.

mod direct;
mod gateway;
mod readers;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use direct::Direct;
use gateway::Gateway;
use readers::{Manner, Readings};
use tandem_wire::task::{Task, spawn};
use worker::MadeWorker;

type Error = Box<dyn std::error::Error>;

const MODEL: &str = "made";
/// Streams open at once where many are wanted.
const MANY: usize = 2000;
/// More tokens than any measurement takes steps; the tokenizer's model has a context of 8192.
const ENDLESS: u32 = 8000;
const SETTLE: Duration = Duration::from_secs(1);

/// Nanoseconds since the program began.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

struct Bench {
    gateway: Gateway,
    direct: Direct,
    worker: MadeWorker,
    seconds: u64,
}

/// One row.
struct Row {
    events: u64,
    cpu: f64,
    seconds: f64,
    latency: (u64, u64),
    gap_p99: u64,
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "its output is what it is for")]
async fn main() -> Result<(), Error> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |s| s.parse())?;
    let tokenizer =
        PathBuf::from(std::env::var_os("TANDEM_MODEL").ok_or("TANDEM_MODEL is not set")?);
    let folder = std::env::temp_dir().join(format!("tandem-relay-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let _cleared = Cleared(folder.clone());
    let worker = MadeWorker::start(&folder, MODEL)?;
    let gateway = Gateway::start(&folder, &tokenizer, worker.address).await?;
    let direct = Direct::start(worker.steps()).await?;
    let bench = Bench {
        gateway,
        direct,
        worker,
        seconds,
    };
    bench.requests().await?;
    // First of all: what later measurements leave in the allocator's hands would hide it.
    let per_stream = bench.memory().await?;
    println!(
        "memory of {MANY} open streams: {:.1} KiB each (aim: < 32)",
        per_stream / 1024.0
    );
    println!(
        "\n{:<34} {:>9} {:>12} {:>9} {:>9} {:>9} {:>9}",
        "streams x step", "events/s", "per CPU-s", "us/event", "p50 us", "p99 us", "gap p99"
    );
    let direct = bench.paced(bench.direct.address, 1, 5, &[]).await?;
    direct.print("1 x 5 ms, without a gateway");
    let single = bench.paced(bench.gateway.address, 1, 5, &[]).await?;
    single.print("1 x 5 ms");
    for (streams, step_ms) in [(64, 5), (500, 50)] {
        let row = bench.relayed(streams, step_ms, &[]).await?;
        row.print(&format!("{streams} x {step_ms} ms"));
    }
    let many = bench.relayed(MANY, 100, &[]).await?;
    many.print(&format!("{MANY} x 100 ms"));
    let mut changed = Vec::new();
    for step_ms in [20, 50] {
        changed.push(bench.beside(step_ms).await?);
    }
    let verdict = |met: bool| if met { "met" } else { "not met" };
    let added = single.latency.0.saturating_sub(direct.latency.0);
    println!(
        "aims: 50,000 events per CPU-second with {MANY} streams: {}; under 200 us added at p50 (1 x 5 ms): {} \
         ({added} us); ITL p99 within 1.1 beside slow and leaving clients: {}",
        verdict(many.per_cpu_second() >= 50_000.0),
        verdict(added < 200),
        verdict(changed.iter().all(|by| *by <= 1.1)),
    );
    Ok(())
}

struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Row {
    fn per_cpu_second(&self) -> f64 {
        self.events as f64 / self.cpu
    }

    #[allow(clippy::print_stdout, reason = "its output is what it is for")]
    fn print(&self, what: &str) {
        println!(
            "{what:<34} {:>9.0} {:>12.0} {:>9.1} {:>9} {:>9} {:>9}",
            self.events as f64 / self.seconds,
            self.per_cpu_second(),
            1e6 / self.per_cpu_second(),
            self.latency.0,
            self.latency.1,
            self.gap_p99
        );
    }
}

impl Bench {
    /// CPU time of a short chat that is not streamed, request after request on 32 clients.
    #[allow(clippy::print_stdout, reason = "its output is what it is for")]
    async fn requests(&self) -> Result<(), Error> {
        const CLIENTS: usize = 32;
        const EACH: usize = 100;
        let client = tandem_loadtest::Client::new(self.gateway.address);
        let body = serde_json::json!({"model": MODEL, "max_tokens": 1,
            "messages": [{"role": "user", "content": "What is the capital of France?"}]});
        let before = self.gateway.cpu_seconds()?;
        let began = Instant::now();
        let tasks: Vec<Task<Result<(), String>>> = (0..CLIENTS)
            .map(|_| {
                let body = body.clone();
                spawn("client", async move {
                    for _ in 0..EACH {
                        let answer = client.post("/v1/chat/completions", &body).await;
                        let answer = answer.map_err(|e| e.to_string())?;
                        if answer.status != 200 {
                            return Err(format!("{}", answer.status));
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for task in tasks {
            task.join().await.ok_or("a client panicked")??;
        }
        let requests = (CLIENTS * EACH) as f64;
        let cpu = self.gateway.cpu_seconds()? - before;
        println!(
            "short chats, {CLIENTS} clients, a connection each: {:.0} requests/s, {:.0} us of CPU each",
            requests / began.elapsed().as_secs_f64(),
            cpu * 1e6 / requests
        );
        Ok(())
    }

    /// How much 200 slow clients and 50 that leave change the ITL p99 of 64 others: against as many that
    /// read, so that only their manner differs.
    #[allow(clippy::print_stdout, reason = "its output is what it is for")]
    async fn beside(&self, step_ms: u64) -> Result<f64, Error> {
        let alone = self.relayed(64, step_ms, &[]).await?;
        alone.print(&format!("64 x {step_ms} ms"));
        let reading = self.relayed(64, step_ms, &[(Manner::Reads, 250)]).await?;
        reading.print(&format!("64 x {step_ms} ms, 250 others"));
        let unruly = [(Manner::Slow, 200), (Manner::Leaves, 50)];
        let beside = self.relayed(64, step_ms, &unruly).await?;
        beside.print(&format!("64 x {step_ms} ms, 200 slow, 50 leaving"));
        let by = |row: &Row| beside.gap_p99 as f64 / row.gap_p99 as f64;
        println!(
            "  gap p99 beside these: {:.2} of that beside others that read, {:.2} of that of 64 alone",
            by(&reading),
            by(&alone)
        );
        Ok(by(&reading))
    }

    async fn relayed(
        &self,
        streams: usize,
        step_ms: u64,
        others: &[(Manner, usize)],
    ) -> Result<Row, Error> {
        self.paced(self.gateway.address, streams, step_ms, others)
            .await
    }

    /// `streams` streams that get a token every `step_ms`, beside others that are not measured.
    async fn paced(
        &self,
        address: SocketAddr,
        streams: usize,
        step_ms: u64,
        others: &[(Manner, usize)],
    ) -> Result<Row, Error> {
        let readings = Readings::new();
        let aside = Readings::new();
        let mut tasks = Vec::new();
        for (manner, count) in others {
            tasks.extend(readers::open(address, MODEL, *count, ENDLESS, *manner, &aside).await?);
        }
        tasks.extend(
            readers::open(address, MODEL, streams, ENDLESS, Manner::Reads, &readings).await?,
        );
        let mut ticks = tokio::time::interval(Duration::from_millis(step_ms));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            ticks.tick().await;
            self.worker.step();
        }
        let (cpu, sent) = (self.gateway.cpu_seconds()?, self.worker.sent());
        readings.begin();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(self.seconds) {
            ticks.tick().await;
            self.worker.step();
        }
        let cpu = self.gateway.cpu_seconds()? - cpu;
        let events = self.worker.sent() - sent;
        let seconds = began.elapsed().as_secs_f64();
        readings.end();
        if let Some(why) = readings.broken.get() {
            return Err(why.clone().into());
        }
        drop(tasks);
        // Their ends are not part of the next measurement.
        tokio::time::sleep(SETTLE).await;
        Ok(Row {
            events,
            cpu,
            seconds,
            latency: (
                readings.latency.quantile(0.5),
                readings.latency.quantile(0.99),
            ),
            gap_p99: readings.gaps.quantile(0.99),
        })
    }

    /// Bytes that one more open stream takes.
    async fn memory(&self) -> Result<f64, Error> {
        let readings = Readings::new();
        let before = self.gateway.resident()?;
        let tasks = readers::open(
            self.gateway.address,
            MODEL,
            MANY,
            ENDLESS,
            Manner::Reads,
            &readings,
        )
        .await?;
        for _ in 0..10 {
            self.worker.step();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let after = self.gateway.resident()?;
        drop(tasks);
        Ok((after - before).max(0.0) / MANY as f64)
    }
}
