//! `tandem loadtest` as its users run it: against a server of known behaviour, and against a real fleet.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use support::known::{SCRIPT, Server, code, err, loadtest, results};
use support::{Fleet, model, send, tandem};
use tandem_loadtest::known_server::{Fault, Script};

#[test]
fn a_test_prints_a_summary_and_writes_its_results() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let arguments = [
        "--rate",
        "100",
        "--requests",
        "30",
        "--warmup",
        "5",
        "--slo",
        "ttft=5s",
        "--json",
        "r.json",
        "--csv",
        "r.csv",
        "--requests-file",
        "r.jsonl",
        "--assert",
        "p99_ttft<5s",
        "--assert",
        "goodput>1",
    ];
    let output = loadtest(at, &server.url(), &arguments).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "25 attained, 0 late",
        "TTFT ms",
        "assert      p99_ttft<5s holds",
        "by usage with every event",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let results = results(&at.join("r.json"));
    assert_eq!(results.runs[0].phases.measured.all.counts.attained, 25);
    assert_eq!(results.settings["rate"], "100");
    let csv = std::fs::read_to_string(at.join("r.csv")).unwrap();
    assert_eq!(csv.lines().count(), 2);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
    let requests = std::fs::read_to_string(at.join("r.jsonl")).unwrap();
    assert_eq!(requests.lines().count(), 30);
}

#[test]
fn failures_and_missed_assertions_are_exit_code_1_with_results_kept() {
    let server = Server::start(None, |asked| Script {
        fault: (asked.number % 10 == 3).then_some(Fault::DropAfter(1)),
        ..SCRIPT
    });
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let rate = ["--rate", "200", "--requests", "40", "--json", "r.json"];
    for (more, exit, says) in [
        (vec![], 1, "4 requests failed"),
        (vec!["--assert", "error_rate<=10%"], 0, ""),
        (
            vec!["--assert", "error_rate<1%"],
            1,
            "1 of 1 assertions missed",
        ),
        (
            vec!["--assert", "error_rate<=10%", "--assert", "max_ttft<1us"],
            1,
            "1 of 2 assertions missed",
        ),
    ] {
        let output = loadtest(at, &server.url(), &[&rate[..], &more].concat())
            .output()
            .unwrap();
        assert_eq!(code(&output), exit, "{more:?} {output:?}");
        assert!(err(&output).contains(says), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("4 x stopped: the stream broke after 1 events"),
            "{text}"
        );
        assert_eq!(
            results(&at.join("r.json")).runs[0]
                .phases
                .measured
                .all
                .counts
                .failed,
            4
        );
    }
}

#[test]
fn a_slo_that_no_answer_meets_is_exit_code_1_with_results_kept() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let arguments = ["--rate", "100", "--requests", "10", "--json", "r.json"];
    for (slo, exit, says) in [("ttft=1us", 1, "no answer met the SLO"), ("ttft=1h", 0, "")] {
        let arguments = [&arguments[..], &["--slo", slo]].concat();
        let output = loadtest(at, &server.url(), &arguments).output().unwrap();
        assert_eq!(code(&output), exit, "{output:?}");
        assert!(err(&output).contains(says), "{output:?}");
        let results = results(&at.join("r.json"));
        assert_eq!(results.runs[0].phases.measured.all.counts.answered(), 10);
    }
}

#[test]
fn a_class_of_which_no_answer_meets_the_slo_is_named() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--rate",
        "100",
        "--requests",
        "30",
        "--class",
        "chat 1 8 4",
        "--class",
        "batch 1 8 4",
        "--slo",
        "chat:ttft=9s",
        "--slo",
        "batch:ttft=1us",
    ];
    let output = loadtest(folder.path(), &server.url(), &arguments)
        .output()
        .unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(
        err(&output).contains("no answer of batch met the SLO"),
        "{output:?}"
    );
}

#[test]
fn ctrl_c_ends_a_test_and_keeps_what_it_has() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--rate", "50", "--duration", "1h", "--json", "r.json"];
    let child = loadtest(folder.path(), &server.url(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while server.known.notes().len() < 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    send(child.id(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(err(&output).contains("interrupted"), "{output:?}");
    let run = &results(&folder.path().join("r.json")).runs[0];
    assert!(run.phases.measured.all.counts.attained >= 9);
}

#[test]
fn a_server_that_goes_away_ends_a_sweep_and_what_was_measured_is_kept() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let sweep = ["--sweep", "concurrency=1,2,3", "--requests", "100000"];
    let child = loadtest(
        folder.path(),
        &server.url(),
        &[&sweep[..], &["--json", "r.json"]].concat(),
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    while server.known.notes().len() < 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(server);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    let says = "the server was gone before the end, 2 of 3 runs not begun";
    assert!(err(&output).contains(says), "{}", err(&output));
    let runs = results(&folder.path().join("r.json")).runs;
    assert_eq!(runs.len(), 1);
    assert!(runs[0].phases.measured.all.counts.attained >= 9);
}

#[test]
fn a_start_that_is_waited_for_is_told_and_an_interrupt_meanwhile_measures_nothing() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start = (now.as_secs() + 600).to_string();
    let arguments = ["--rate", "50", "--requests", "5", "--start-at", &start];
    let mut child = loadtest(folder.path(), &server.url(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    let seconds = first.strip_prefix("tandem: starts in ");
    let seconds = seconds.and_then(|rest| rest.trim_end().strip_suffix(" s"));
    let seconds: u64 = seconds.and_then(|text| text.parse().ok()).expect(&first);
    assert!((1..=600).contains(&seconds), "{first}");
    send(child.id(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("requests    nothing was measured"), "{text}");
    assert!(!text.contains("TTFT"), "{text}");
}

#[test]
fn parts_are_merged_to_the_whole_and_others_are_refused() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let part = |part: &str, to: &str, seed: &str| {
        let arguments = [
            "--rate",
            "100",
            "--requests",
            "31",
            "--part",
            part,
            "--json",
            to,
            "--seed",
            seed,
        ];
        let output = loadtest(at, &server.url(), &arguments).output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
    };
    part("1/2", "a.json", "7");
    part("2/2", "b.json", "7");
    part("2/2", "c.json", "8");
    let merge = |files: &[&str]| {
        let files = [&["loadtest", "merge"], files].concat();
        tandem().current_dir(at).args(files).output().unwrap()
    };
    let output = merge(&[
        "a.json",
        "b.json",
        "--json",
        "sum.json",
        "--assert",
        "p99_ttft<1h",
    ]);
    assert_eq!(code(&output), 0, "{output:?}");
    let sum = results(&at.join("sum.json"));
    let measured = &sum.runs[0].phases.measured;
    assert_eq!(measured.all.counts.attained, 31);
    assert_eq!(
        measured.all.metrics[&tandem_loadtest::summary::Metric::Ttft].count(),
        31
    );
    assert_eq!(sum.runs[0].parts.len(), 2);
    for (files, says) in [
        (
            ["a.json", "a.json"],
            "holds part 1/2, which another one holds too",
        ),
        (
            ["a.json", "c.json"],
            "its --seed differ(s): 8, in the first one 7",
        ),
        (["a.json", "none.json"], "none.json: No such file"),
    ] {
        let output = merge(&files);
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(err(&output).contains(says), "{}", err(&output));
    }
}

#[test]
fn a_sweep_has_a_row_for_each_load_and_a_slo_that_nothing_meets_ends_a_search() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let arguments = [
        "--sweep",
        "concurrency=1,2",
        "--requests",
        "10",
        "--repeats",
        "2",
        "--csv",
        "r.csv",
    ];
    let output = loadtest(at, &server.url(), &arguments).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("2 at a time, 2 repeats (95 %): TTFT p50"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_to_string(at.join("r.csv"))
            .unwrap()
            .lines()
            .count(),
        5
    );
    let arguments = [
        "--search",
        "concurrency",
        "--slo",
        "ttft=1us",
        "--requests",
        "20",
    ];
    let output = loadtest(at, &server.url(), &arguments).output().unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(err(&output).contains("no load meets the SLO"), "{output:?}");
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("not even the lowest load met it")
    );
    // Alone a request is as fast as it gets: no lower rate is tried.
    let arguments = [
        "--search",
        "rate",
        "--search-start",
        "8",
        "--slo",
        "ttft=1us",
        "--requests",
        "8",
        "--output",
        "1",
        "--json",
        "s.json",
    ];
    let output = loadtest(at, &server.url(), &arguments).output().unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    let search = results(&at.join("s.json")).search.unwrap();
    assert_eq!(search.probes.len(), 1, "{search:?}");
}

#[test]
fn a_real_fleet_is_measured_with_prompts_of_exact_lengths() {
    let fleet = Fleet::up(&["--decode", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = model();
    let arguments = [
        "--concurrency",
        "2",
        "--requests",
        "6",
        "--input",
        "uniform:30..90",
        "--output",
        "8",
        "--ignore-eos",
        "--tokenizer",
        tokenizer.to_str().unwrap(),
        "--turns",
        "2",
        "--requests-file",
        "r.jsonl",
    ];
    let url = format!("http://{}", fleet.address());
    for version in [&[][..], &["--http2"]] {
        let arguments = [&arguments[..], version].concat();
        let output = loadtest(folder.path(), &url, &arguments).output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        check(folder.path());
    }
}

/// Each request has the lengths that were wanted, by the server's own usage.
fn check(folder: &Path) {
    let lines = std::fs::read_to_string(folder.join("r.jsonl")).unwrap();
    let records: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 12);
    for record in records {
        assert_eq!(record["output_tokens"], 8, "{record}");
        assert_eq!(record["token_source"], "chunk_usage", "{record}");
        match record["turn"].as_u64() {
            Some(0) => assert_eq!(
                record["input_tokens"], record["wanted_input_tokens"],
                "{record}"
            ),
            // The first turn's prompt and answer come before it.
            _ => assert!(
                record["input_tokens"].as_u64() > record["wanted_input_tokens"].as_u64(),
                "{record}"
            ),
        }
    }
}
