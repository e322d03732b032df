//! From one load to the next: a gateway's log becomes a trace, whose replay has the same shared beginnings. Over TLS and
//! HTTP/2, with the gateway's own metrics beside.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Fleet, model, tandem};
use tandem_loadtest::results::Results;
use tandem_loadtest::server_metrics::SeriesFigures;

const PROFILE: &str = "qwen3-235b-tp4-h200";
const LONG: Duration = Duration::from_secs(60);

/// Another gateway of a fleet, that logs in JSON and speaks TLS.
struct Gateway {
    process: Child,
    url: String,
    log: PathBuf,
}

fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn run(folder: &Path, arguments: &str) -> Output {
    let arguments = arguments.split_whitespace();
    let mut command = tandem();
    let command = command.args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).output().unwrap()
}

impl Gateway {
    fn of(fleet: &Fleet, folder: &Path) -> Self {
        ok(&run(folder, "pki init"));
        ok(&run(
            folder,
            "pki issue --role gateway --name web --san localhost",
        ));
        let own = std::fs::read_to_string(fleet.state_dir().join("config/gateway.toml")).unwrap();
        let mut config: toml::Table = own.parse().unwrap();
        let more = format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
             [telemetry]\nlog_prefix_hashes = true\n[tls]\ncertificate = \"{0}/pki/web.pem\"\nkey = \"{0}/pki/web.key\"\n",
            folder.display()
        );
        for (section, values) in more.parse::<toml::Table>().unwrap() {
            let empty = || toml::Value::Table(toml::Table::new());
            let into = config.entry(section).or_insert_with(empty);
            into.as_table_mut()
                .unwrap()
                .extend(values.as_table().unwrap().clone());
        }
        std::fs::write(folder.join("g.toml"), config.to_string()).unwrap();
        let log = folder.join("gateway.log");
        let mut process = tandem()
            .args(["gateway", "--config", "g.toml"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        let json = line.strip_prefix("started ");
        let json = json.unwrap_or_else(|| panic!("{line:?} {}", said()));
        let started: Value = serde_json::from_str(json).unwrap();
        let address = started["address"].as_str().unwrap();
        let port = address.rsplit(':').next().unwrap();
        let url = format!("https://localhost:{port}");
        Self { process, url, log }
    }

    /// Its log so far, once it has so many requests: the line of one is written after its last byte was sent.
    fn log_of(&self, requests: usize, to: &Path) {
        let until = Instant::now() + LONG;
        loop {
            let log = std::fs::read_to_string(&self.log).unwrap();
            if log.matches("\"message\":\"request\"").count() >= requests {
                return std::fs::write(to, log).unwrap();
            }
            assert!(
                Instant::now() < until,
                "fewer than {requests} requests: {log}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `N of M blocks` of what `record` says, and the requests.
fn blocks(said: &str) -> (u64, u64) {
    let (before, _) = said.split_once(" blocks shared").unwrap();
    let mut words = before.rsplit(' ');
    let all = words.next().unwrap().parse().unwrap();
    (words.nth(1).unwrap().parse().unwrap(), all)
}

#[test]
fn a_replayed_recording_has_the_same_shared_beginnings() {
    let fleet = Fleet::up(&["--timed", PROFILE, "--time-scale", "0", "--aggregated"]);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let gateway = Gateway::of(&fleet, at);
    // Two beginnings of two whole blocks each, of four prompts or so.
    let config = format!(
        "url = \"{0}\"\nca = \"pki/ca.pem\"\nhttp2 = true\napi = \"completions\"\nignore-eos = true\n\
         tokenizer = \"{1}\"\nmax-lateness = \"30s\"\nmax-cpu = \"100%\"\nmetrics = [\"{0}/metrics\"]\n\
         json = \"r.json\"\noutput = 4\ninput = 300\nprefix = \"2x1024\"\nconcurrency = 2\nrequests = 8\n",
        gateway.url,
        model().display()
    );
    std::fs::write(at.join("load.toml"), &config).unwrap();
    ok(&run(at, "loadtest --config load.toml"));

    let results: Results =
        serde_json::from_slice(&std::fs::read(at.join("r.json")).unwrap()).unwrap();
    assert_eq!(results.settings["prefix"], "2x1024");
    let metrics = &results.runs[0].server[0];
    assert_eq!((&metrics.problem, metrics.resets), (&None, 0));
    let family = &metrics.families["tandem_generation_tokens_total"];
    let grown = family.series.iter().map(|series| match series.figures {
        SeriesFigures::Counter { difference, .. } => difference,
        _ => panic!("{family:?}"),
    });
    assert_eq!(grown.sum::<f64>(), 32.0, "{family:?}");

    // The harness's own look is a request too.
    gateway.log_of(9, &at.join("first.log"));
    let said = ok(&run(at, "loadtest record first.log -o t.jsonl"));
    assert!(said.starts_with("t.jsonl: 9 requests in "), "{said}");
    let first = blocks(&said);
    assert_eq!(first.1, 16, "{said}");
    assert!(first.0 == 12 || first.0 == 14, "{said}");
    let trace = std::fs::read_to_string(at.join("t.jsonl")).unwrap();
    assert_eq!(trace.lines().count(), 9);

    let config = config.lines().filter(|line| {
        !["input", "output", "prefix", "concurrency", "requests"]
            .iter()
            .any(|key| line.starts_with(key))
    });
    let config = config.collect::<Vec<_>>().join("\n");
    std::fs::write(at.join("replay.toml"), config).unwrap();
    let replay = "loadtest --config replay.toml --trace t.jsonl --concurrency 2 --seed 7";
    ok(&run(at, replay));
    gateway.log_of(19, &at.join("both.log"));
    let log = std::fs::read_to_string(at.join("both.log")).unwrap();
    let requests = |line: &&str| line.contains("\"message\":\"request\"");
    let second: Vec<&str> = log.lines().filter(requests).skip(9).collect();
    std::fs::write(at.join("second.log"), second.join("\n")).unwrap();
    let said = ok(&run(at, "loadtest record second.log -o u.jsonl"));
    assert_eq!(blocks(&said), first, "{said}");
}
