//! `tandem plan` and `tandem experiment`: what they find, and how they refuse what cannot be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use serde_json::Value;
use support::{send, tandem};

const CHATS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../policies/traces/mooncake-conversation-excerpt.jsonl"
);
const R1: &str = "deepseek-r1-tp8-h200";

fn run(arguments: &[&str]) -> Output {
    tandem().args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What it complains of; it has to end with exit code 2.
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
    complaint
}

fn plan<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let base = ["plan", "--profile", R1, "--slo", "ttft=5s,tpot=25ms"];
    [&base[..], more].concat()
}

#[test]
fn a_plan_says_which_fleet_serves_most_and_why() {
    let arguments = plan(&["--trace", CHATS, "--workers", "4", "--json"]);
    let found = json(&arguments);
    assert_eq!(found["requests"], 120);
    let fleets = found["fleets"].as_array().unwrap();
    // 1:3, 2:2, 3:1 and four that do both, the best first.
    assert_eq!(fleets.len(), 4);
    let rate = |fleet: &Value| fleet["rate"].as_f64().unwrap();
    assert!(
        fleets
            .windows(2)
            .all(|pair| rate(&pair[0]) >= rate(&pair[1]))
    );
    let best = &found["best"];
    assert_eq!(*best, fleets[0]);
    assert!(rate(best) > 0.0);
    let all = |name: &str| best[name].as_u64().unwrap();
    assert_eq!(all("attained") + all("late") + all("rejected"), 120);
    assert!(all("attained") >= 108, "90 % of 120: {best}");
    let neighbours = found["why"]["neighbours"].as_array().unwrap();
    assert!(neighbours.len() >= 2, "{neighbours:?}");
    let known = ["prefill", "decode_steps", "decode_room", "nothing"];
    assert!(known.contains(&found["why"]["saturates"].as_str().unwrap()));
    // The same once more, and for people.
    assert_eq!(json(&arguments), found);
    let text = run(&plan(&["--trace", CHATS, "--gpus", "32"]));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("best: ") && text.contains("why no more: "),
        "{text}"
    );
}

#[test]
fn gpus_that_are_too_few_for_a_worker_are_named_as_idle() {
    let arguments = plan(&["--trace", CHATS, "--gpus", "36"]);
    let text = String::from_utf8(run(&arguments).stdout).unwrap();
    let says = format!("4 of the 36 GPUs stay idle: a worker of {R1} has 8");
    assert!(text.contains(&says), "{text}");
    let found = json(&plan(&["--trace", CHATS, "--gpus", "32", "--json"]));
    assert_eq!(found["idle_gpus"], 0);
}

#[test]
fn an_interrupted_search_prints_the_best_so_far() {
    for json in [true, false] {
        let mut arguments = plan(&["--trace", CHATS, "--workers", "256"]);
        arguments.extend(json.then_some("--json"));
        let mut child = tandem()
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Without a terminal it says how far it is too.
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        stderr.read_line(&mut first).unwrap();
        assert!(
            first.starts_with("tandem: 1 of 256 fleets tried; 256 mixed: "),
            "{first}"
        );
        send(child.id(), "-INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        if json {
            let found: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(found["interrupted"], true);
            assert!(found["fleets_tried"].as_u64() >= Some(1), "{found}");
            assert!(found["best"]["rate"].as_f64() > Some(0.0), "{found}");
        } else {
            assert!(text.starts_with("the best of "), "{text}");
        }
    }
}

#[test]
fn policies_are_compared_on_the_same_fleets() {
    let policies = ["--policy", "random", "--policy", "kv_cost"];
    let base = plan(&["--trace", CHATS, "--workers", "4", "--json"]);
    let found = json(&[&base[..], &policies].concat());
    let fleets = found["fleets"].as_array().unwrap();
    assert_eq!(fleets.len(), 8);
    for policy in ["random", "kv_cost"] {
        assert_eq!(
            fleets
                .iter()
                .filter(|fleet| fleet["policy"] == policy)
                .count(),
            4
        );
    }
}

#[test]
fn what_cannot_be_planned_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.jsonl");
    let good = r#"{"timestamp": 0, "input_length": 5, "output_length": 5}"#;
    std::fs::write(&broken, format!("{good}\n{good}\nnonsense\n")).unwrap();
    let broken = broken.to_str().unwrap();
    let complaint = refused(&plan(&["--trace", broken]));
    assert!(complaint.contains("broken.jsonl:3: "), "{complaint}");
    let complaint = refused(&[
        "plan",
        "--profile",
        "b300",
        "--slo",
        "ttft=1s",
        "--trace",
        CHATS,
    ]);
    assert!(complaint.contains("no profile \"b300\""), "{complaint}");
    assert!(complaint.contains(R1), "the others are named: {complaint}");
    let slo = "ttft=1ms,tpot=1ms";
    let complaint = refused(&["plan", "--profile", R1, "--slo", slo, "--trace", CHATS]);
    assert!(complaint.contains("fastest single request"), "{complaint}");
    assert!(complaint.contains("ms to its first token"), "{complaint}");
    let complaint = refused(&["plan", "--profile", R1, "--slo", "e2e=1s", "--trace", CHATS]);
    assert!(complaint.contains("want ttft, tpot or both"), "{complaint}");
    let complaint = refused(&plan(&["--trace", CHATS, "--policy", "best"]));
    assert!(complaint.contains("no policy \"best\""), "{complaint}");
    let complaint = refused(&plan(&["--trace", CHATS, "--gpus", "7"]));
    assert!(complaint.contains("one worker of"), "{complaint}");
}

#[test]
fn experiments_are_listed_and_unknown_ones_refused() {
    let listed = String::from_utf8(run(&["experiment"]).stdout).unwrap();
    let names = [
        "r1-tp",
        "r1-dp",
        "qwen3-ttft",
        "pd-ratio",
        "chunk-size",
        "page-size",
        "layerwise",
        "local-prefill",
        "policies",
    ];
    for name in names {
        assert!(
            listed.lines().any(|line| line.starts_with(name)),
            "{name}: {listed}"
        );
    }
    let complaint = refused(&["experiment", "r2"]);
    assert!(
        complaint.contains("no experiment \"r2\"") && complaint.contains("r1-tp"),
        "{complaint}"
    );
    let complaint = refused(&["experiment", "qwen3-ttft", "--requests", "5"]);
    assert!(
        complaint.contains("--requests means nothing to qwen3-ttft"),
        "{complaint}"
    );
}
