//! What disaggregation costs on this machine: `make bench` runs it beside the transfer engine's own
//! measurement.
//!
//! Starts two fleets of the `tandem` binary beside it, one worker that does everything and one prefill
//! with two decode workers, and sends the same prompts to both in turn, one at a time. Prints medians
//! and ratios of one run.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tandem_loadtest::Client;
use tandem_loadtest::statistics::{median, quantile};

type Error = Box<dyn std::error::Error>;

const PROMPTS: [usize; 3] = [128, 512, 2000];
const ROUNDS: usize = 5;
const NEW_TOKENS: u32 = 8;
const START: Duration = Duration::from_secs(60);

#[tokio::main]
#[allow(clippy::print_stdout, reason = "its output is what it is for")]
async fn main() -> Result<(), Error> {
    let provider = std::env::args().nth(1).unwrap_or_else(|| "tcp".into());
    let aggregated = Fleet::up(&["--aggregated"])?;
    let disaggregated = Fleet::up(&["--provider", &provider])?;
    println!("one prompt at a time, {ROUNDS} rounds, medians; disaggregated over {provider}\n");
    println!(
        "{:>7} {:>12} {:>12} {:>9} {:>8} {:>12} {:>9}  aim",
        "prompt", "aggregated", "disagg.", "one step", "ratio", "over agg.", "exposed"
    );
    for tokens in PROMPTS {
        compare(&aggregated, &disaggregated, tokens).await?;
    }
    println!(
        "\nTTFT in ms. aim: TTFT disaggregated at most 1.1 times aggregated plus one decode step, and\n\
         exposed (the transfer left when the last layer's compute ended) at most two layers' worth."
    );
    Ok(())
}

#[allow(clippy::print_stdout, reason = "its output is what it is for")]
async fn compare(aggregated: &Fleet, disaggregated: &Fleet, tokens: usize) -> Result<(), Error> {
    let (mut together, mut apart, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    let before = disaggregated.transfer().await?;
    for round in 0..=ROUNDS {
        let a = aggregated.one(tokens, round).await?;
        let d = disaggregated.one(tokens, round).await?;
        if round == 0 {
            // The first touch of pages and connections is not what is asked for.
            continue;
        }
        together.push(a.ttft_ms);
        apart.push(d.ttft_ms);
        steps.extend(a.steps_ms);
    }
    let after = disaggregated.transfer().await?;
    let together = median(&together).unwrap_or_default();
    let apart_ms = median(&apart).unwrap_or_default();
    let step = quantile(&steps, 0.5).unwrap_or_default();
    let compute = after.compute_s - before.compute_s;
    let layers = (after.exposed_s - before.exposed_s) / compute * after.layers;
    let met = |yes| if yes { "met" } else { "not met" };
    println!(
        "{tokens:>7} {together:>9.1} ms {apart_ms:>9.1} ms {step:>6.1} ms {:>8.3} {:>+9.1} ms {layers:>4.2} lay.  \
         TTFT {}, exposed {}",
        apart_ms / together,
        apart_ms - together,
        met(apart_ms <= together * 1.1 + step),
        met(layers <= 2.0),
    );
    Ok(())
}

/// One request's times.
struct Times {
    ttft_ms: f64,
    steps_ms: Vec<f64>,
}

/// Seconds that completed transfers took, so far.
struct Transfer {
    compute_s: f64,
    exposed_s: f64,
    layers: f64,
}

struct Fleet {
    up: Child,
    state: PathBuf,
    client: Client,
}

impl Fleet {
    fn up(arguments: &[&str]) -> Result<Self, Error> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let state =
            std::env::temp_dir().join(format!("tandem-bench-{}-{port}", std::process::id()));
        let binary = std::env::current_exe()?.with_file_name("tandem");
        let mut up = Command::new(binary)
            .args(["up", "--listen", &address.to_string()])
            .arg("--state-dir")
            .arg(&state)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(up.stdout.take().ok_or("no output")?).lines();
        let fleet = Self {
            up,
            state,
            client: Client::new(address),
        };
        let (ready, is_ready) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.starts_with("ready ") {
                    let _ = ready.send(());
                }
            }
        });
        is_ready.recv_timeout(START)?;
        Ok(fleet)
    }

    async fn one(&self, tokens: usize, round: usize) -> Result<Times, Error> {
        let prompt: Vec<usize> = (0..tokens)
            .map(|i| 17 + (i * 7919 + round * 104_729 + tokens) % 49_000)
            .collect();
        let body = json!({
            "model": "SmolLM2-135M-Instruct",
            "prompt": prompt,
            "max_tokens": NEW_TOKENS,
            "temperature": 0,
            "ignore_eos": true,
            "stream": true,
            // Every token makes an event, whether or not it makes text.
            "logprobs": 0,
        });
        let sent = Instant::now();
        let mut events = self.client.stream("/v1/completions", &body).await?;
        if events.status != 200 {
            let text = events.rest().await?;
            return Err(String::from_utf8_lossy(&text).into_owned().into());
        }
        let mut times = Vec::new();
        while let Some(event) = events.next().await? {
            if event.data == "[DONE]" {
                break;
            }
            let chunk: Value = serde_json::from_str(&event.data)?;
            if chunk["choices"][0]["logprobs"]["tokens"]
                .as_array()
                .is_some_and(|t| !t.is_empty())
            {
                times.push(event.at);
            }
        }
        let first = times.first().ok_or("no token came")?;
        let millis = |d: Duration| d.as_secs_f64() * 1e3;
        Ok(Times {
            ttft_ms: millis(*first - sent),
            steps_ms: times.windows(2).map(|w| millis(w[1] - w[0])).collect(),
        })
    }

    async fn transfer(&self) -> Result<Transfer, Error> {
        let sum = |text: &str, name: &str| -> f64 {
            text.lines()
                .filter(|line| line.starts_with(name))
                .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
                .sum()
        };
        // Workers report at least twice a second.
        tokio::time::sleep(Duration::from_millis(600)).await;
        let metrics = self.client.get("/metrics").await?;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let status = self.client.get("/tandem/status").await?.json()?;
        Ok(Transfer {
            compute_s: sum(&text, "tandem_worker_transfer_compute_seconds_total"),
            exposed_s: sum(&text, "tandem_worker_transfer_exposed_seconds_total"),
            layers: status["workers"][0]["layers"]
                .as_f64()
                .ok_or("no layers in the status")?,
        })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let pid = self.up.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.up.wait();
        let _ = std::fs::remove_dir_all(&self.state);
    }
}
