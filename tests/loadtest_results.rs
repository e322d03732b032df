//! What `tandem loadtest` makes of saved results: pages and comparisons.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod support;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use support::known::{SCRIPT, Server, code, err, loadtest};
use support::tandem;
use tandem_loadtest::known_server::Script;

/// A test of 60 requests at one load, saved with its requests.
fn save(at: &Path, server: &Server, name: &str, more: &[&str]) {
    let json = format!("{name}.json");
    let requests = format!("{name}.jsonl");
    let arguments = [
        "--rate",
        "300",
        "--requests",
        "60",
        "--slo",
        "ttft=5s",
        "--json",
        &json,
        "--requests-file",
        &requests,
    ];
    let output = loadtest(at, &server.url(), &[&arguments[..], more].concat())
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
}

#[test]
fn a_report_is_one_page_of_a_test_or_of_saved_results() {
    let server = Server::start(None, |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    save(at, &server, "a", &["--html", "a.html"]);
    save(at, &server, "b", &[]);
    let page = std::fs::read_to_string(at.join("a.html")).unwrap();
    for part in [
        "<title>Load test of known</title>",
        "Distribution of TTFT",
        "The slowest requests<",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let report = |arguments: &str| {
        let arguments = format!("loadtest report {arguments}");
        let arguments = arguments.split(' ');
        tandem().current_dir(at).args(arguments).output().unwrap()
    };
    let output = report("a.json b.json --requests a.jsonl --html both.html");
    assert_eq!(code(&output), 0, "{output:?}");
    let page = std::fs::read_to_string(at.join("both.html")).unwrap();
    for part in [
        "TTFT p99 of all tests",
        "The slowest requests of a.jsonl",
        "b.json",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<script") && !page.contains("src="));
    std::fs::write(at.join("broken.jsonl"), "{\"index\":1}\n").unwrap();
    for (arguments, says) in [
        ("none.json --html x.html", "none.json: No such file"),
        (
            "a.jsonl --html x.html",
            "a.jsonl: no results of a load test",
        ),
        (
            "a.json --requests broken.jsonl --html x.html",
            "broken.jsonl:1: no request of a load test",
        ),
        ("a.json --html no/x.html", "no/x.html: No such file"),
    ] {
        let output = report(arguments);
        assert_eq!(code(&output), 2, "{arguments}: {output:?}");
        assert!(err(&output).contains(says), "{arguments}: {}", err(&output));
    }
}

#[test]
fn a_comparison_finds_a_slower_server_and_not_the_same_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let server = |gap: u64| {
        let gap = Duration::from_millis(gap);
        // Far from each other on any machine, and alike from run to run.
        Server::start(None, move |_| Script { gap, ..SCRIPT })
    };
    let (quick, slow) = (server(2), server(150));
    save(at, &quick, "a", &[]);
    save(at, &slow, "b", &["--output", "9"]);
    let compare = |arguments: &str| {
        let arguments = format!("loadtest compare {arguments}");
        let arguments = arguments.split(' ');
        tandem().current_dir(at).args(arguments).output().unwrap()
    };
    let output = compare("a.json b.json --json c.json");
    assert_eq!(code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("differs     --output: not set -> 9"),
        "{text}"
    );
    let tpot = text
        .lines()
        .find(|line| line.starts_with("TPOT p50 ms"))
        .unwrap();
    assert!(tpot.ends_with("WORSE"), "{tpot}");
    let json: Value = serde_json::from_slice(&std::fs::read(at.join("c.json")).unwrap()).unwrap();
    assert_eq!(json["format"], "tandem-loadtest-comparison/1");
    assert_eq!(json["loads"][0]["method"], "within_runs");
    for (arguments, exit, says) in [
        (
            "a.json b.json --fail-on-worse",
            1,
            "b.json is worse than a.json",
        ),
        ("a.json a.json --fail-on-worse", 0, ""),
        ("a.json none.json", 2, "none.json: No such file"),
        (
            "a.json b.json --confidence 100%",
            2,
            "--confidence 100%: want 50% or more",
        ),
    ] {
        let output = compare(arguments);
        assert_eq!(code(&output), exit, "{arguments}: {output:?}");
        assert!(err(&output).contains(says), "{arguments}: {}", err(&output));
    }
    let text = std::fs::read_to_string(at.join("a.json")).unwrap();
    let other = text.replace("tandem-loadtest/1", "tandem-loadtest/9");
    std::fs::write(at.join("other.json"), other).unwrap();
    let output = compare("a.json other.json");
    assert_eq!(code(&output), 2, "{output:?}");
    let says = "other.json: its format is tandem-loadtest/9, want tandem-loadtest/1";
    assert!(err(&output).contains(says), "{}", err(&output));
    let arguments = ["--concurrency", "2", "--requests", "5", "--json", "d.json"];
    let output = loadtest(at, &quick.url(), &arguments).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    let output = compare("a.json d.json");
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(
        err(&output).contains("no load is in both"),
        "{}",
        err(&output)
    );
}
