//! `tandem loadtest --vary`: the same load on servers that differ.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod support;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use support::known::{SCRIPT, Server, code, err, loadtest, results};
use support::{free_port, model, tandem};
use tandem_loadtest::known_server::Script;
use tandem_loadtest::summary::Metric;

/// A server whose first tokens take as many milliseconds as a file says.
fn server(at: &Path) -> Server {
    let file = at.join("delay");
    std::fs::write(&file, "1").unwrap();
    let delay = move || std::fs::read_to_string(&file).unwrap().parse().unwrap();
    Server::start(None, move |_| Script {
        first: Duration::from_millis(delay()),
        ..SCRIPT
    })
}

fn vary(at: &Path, server: &Server, values: &str, command: &str, more: &[&str]) -> Output {
    let arguments = [
        "--vary",
        values,
        "--prepare",
        command,
        "--requests",
        "10",
        "--json",
        "r.json",
        "--csv",
        "r.csv",
        "--html",
        "r.html",
    ];
    let arguments = [&arguments[..], more].concat();
    loadtest(at, &server.url(), &arguments).output().unwrap()
}

const RATE: [&str; 2] = ["--rate", "50"];

#[test]
fn each_value_has_its_runs_on_a_server_that_was_made_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let server = server(at);
    let command = "echo made; printf $VALUE >delay";
    let output = vary(at, &server, "delay=1,300", command, &RATE);
    assert_eq!(code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        text.contains("delay=300, 50 requests/s") && !text.contains("made"),
        "{text}"
    );
    let found = results(&at.join("r.json"));
    let settings = found.runs.iter().map(|run| run.setting.as_deref().unwrap());
    assert_eq!(settings.collect::<Vec<_>>(), ["delay=1", "delay=300"]);
    let ttft = [0, 1].map(|run: usize| {
        let all = &found.runs[run].phases.measured.all;
        all.metrics[&Metric::Ttft].quantile(0.5).unwrap()
    });
    assert!(ttft[0] < 300_000 && ttft[1] >= 300_000, "{ttft:?}");
    let offered = [0, 1].map(|run: usize| found.runs[run].figures.offered_per_s);
    assert_eq!(offered[0].to_bits(), offered[1].to_bits(), "the same times");
    let csv = std::fs::read_to_string(at.join("r.csv")).unwrap();
    assert!(csv.contains("\ndelay=1,rate,50,"), "{csv}");
    let page = std::fs::read_to_string(at.join("r.html")).unwrap();
    for part in [
        "TTFT by setting",
        "Goodput by setting",
        "delay=300, 50 requests/s",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_sweep_is_made_for_each_value() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let server = server(at);
    let sweep = ["--sweep", "concurrency=1,2"];
    let output = vary(at, &server, "delay=1,2", "printf $VALUE >delay", &sweep);
    assert_eq!(code(&output), 0, "{output:?}");
    let found = results(&at.join("r.json"));
    let places: Vec<String> = found
        .runs
        .iter()
        .map(|run| run.place().to_string())
        .collect();
    assert_eq!(
        places,
        [
            "delay=1, 1 at a time",
            "delay=1, 2 at a time",
            "delay=2, 1 at a time",
            "delay=2, 2 at a time"
        ]
    );
    let page = std::fs::read_to_string(at.join("r.html")).unwrap();
    assert!(page.contains("TTFT p99 by setting and load"));
}

#[test]
fn where_the_command_fails_what_there_is_stays() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let server = server(at);
    let output = vary(at, &server, "delay=1,300", "test $VALUE = 1", &RATE);
    assert_eq!(code(&output), 2, "{output:?}");
    let says = "--prepare for delay=300: the command failed: exit status: 1";
    assert!(err(&output).contains(says), "{output:?}");
    assert_eq!(results(&at.join("r.json")).runs.len(), 1);
    for (values, says) in [
        (
            "delay",
            "--vary \"delay\": want a name and values such as policy=random,kv_cost",
        ),
        (
            "delay=1,,2",
            "--vary \"delay=1,,2\": want a name and values",
        ),
        ("delay=1,1", "--vary \"delay=1,1\": want each value once"),
    ] {
        let output = vary(at, &server, values, "true", &RATE);
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(err(&output).contains(says), "{output:?}");
    }
}

/// The script of docs/LOADTEST.md; stops its fleet at the end.
struct Fleets<'a>(&'a Path);

const FLEET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/loadtest/fleet.sh");

impl Drop for Fleets<'_> {
    fn drop(&mut self) {
        let stop = Command::new(FLEET).arg("stop").current_dir(self.0).status();
        assert!(stop.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn ratios_and_policies_of_real_fleets_are_swept_by_the_documented_script() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _fleets = Fleets(at);
    let listen = format!("127.0.0.1:{}", free_port());
    let more = format!("--time-scale 0.1 --model {}", model().display());
    for (values, settings) in [
        ("pd=1:1,1:2", ["pd=1:1", "pd=1:2"]),
        ("policy=random,kv_cost", ["policy=random", "policy=kv_cost"]),
    ] {
        let arguments = ["--vary", values, "--prepare", FLEET, "--concurrency", "2"];
        let more_arguments = [
            "--requests",
            "6",
            "--input",
            "100",
            "--output",
            "5",
            "--json",
            "r.json",
        ];
        let url = format!("http://{listen}");
        let output = loadtest(at, &url, &[&arguments[..], &more_arguments].concat())
            .env("TANDEM", tandem().get_program())
            .env("LISTEN", &listen)
            .env("MORE", &more)
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        let found = results(&at.join("r.json"));
        let runs = found.runs.iter();
        assert_eq!(
            runs.map(|run| run.setting.as_deref().unwrap())
                .collect::<Vec<_>>(),
            settings
        );
        let answered = found
            .runs
            .iter()
            .map(|run| run.phases.measured.all.counts.attained);
        assert_eq!(answered.collect::<Vec<_>>(), [6, 6]);
    }
}
