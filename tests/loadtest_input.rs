//! What `tandem loadtest` refuses before it loads a server, and how it says so.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod support;

use std::path::Path;

use support::known::{SCRIPT, Server, code, err, loadtest};

/// Whether it ends with exit code 2 and one line that says so.
fn assert_mendable(at: &Path, url: &str, arguments: &str, says: &str) {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = loadtest(at, url, &arguments).output().unwrap();
    assert_eq!(code(&output), 2, "{arguments:?} {output:?}");
    let error = err(&output);
    assert!(error.contains(says), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_wrong_command_line_or_file_is_told_with_exit_code_2_before_a_server_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let trace = "{\"timestamp\":0,\"input_length\":5,\"output_length\":1}\n{oops\n";
    std::fs::write(at.join("t.jsonl"), trace).unwrap();
    std::fs::write(at.join("c.toml"), "rate = 5\nspede = 2\n").unwrap();
    let nobody = format!("http://127.0.0.1:{}", support::free_port());
    for (arguments, says) in [
        (
            "--config c.toml",
            "--config c.toml:2: spede: no such flag, did you mean speed?",
        ),
        ("--config no.toml", "--config no.toml: No such file"),
        (
            "--rate 5 --metrics-match a(",
            "--metrics-match \"a(\": want the beginning",
        ),
        ("--key right", "how hard to press? Give one of --rate"),
        (
            "--trace t.jsonl",
            "--trace t.jsonl:2: key must be a string at column 2",
        ),
        ("--trace none.csv", "--trace none.csv: No such file"),
        (
            "--sweep policy=a,b",
            "--sweep \"policy=a,b\": want rate=1,2,4 or concurrency=1,2,4 (or --vary",
        ),
        ("--rate fast", "--rate \"fast\": want requests per second"),
        ("--rate -5", "--rate \"-5\": want requests per second"),
        (
            "--rate 5 --duration -5s",
            "--duration \"-5s\": want a duration",
        ),
        (
            "--rate 5 --input 0",
            "--input \"0\": want a length from 1 to 4194304 tokens",
        ),
        (
            "--rate 5 --slo foo=1us",
            "--slo \"foo\" is no limit: want ttft, tpot, itl or e2e",
        ),
        (
            "--rate 5 --assert p42_ttft<5",
            "--assert \"p42_ttft<5\": want an assertion",
        ),
        ("--rate 5 --slo ttft", "--slo \"ttft\": want limits"),
        (
            "--rate 5 --slo x:ttft=1s",
            "--slo x: no such class, want one of default",
        ),
        ("--rate 5 --json no/r.json", "no/r.json: No such file"),
        (
            "--rate 5 --body {\"model\":1}",
            "\"model\" is set by the test itself",
        ),
        ("--rate 5 --token-ids 5000", "add --api completions"),
        (
            "--rate 5 --requests 5 --start-at 1000",
            "want seconds since 1970, and this time is over",
        ),
        (
            "--rate 5 --requests 5 --start-at 99999999999",
            "want seconds since 1970, within a day from now",
        ),
    ] {
        assert_mendable(at, &nobody, arguments, says);
    }
}

#[test]
fn a_server_that_is_not_there_or_refuses_is_told_with_exit_code_2() {
    let server = Server::start(Some("right"), |_| SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let nobody = format!("http://127.0.0.1:{}", support::free_port());
    let url = server.url();
    for (url, arguments, says) in [
        (&nobody, "--rate 5 --requests 5", "no server at"),
        (
            &url,
            "--rate 5 --requests 5 --key wrong",
            "does not take the key (401: Incorrect API key provided.)",
        ),
        (
            &url,
            "--rate 5 --requests 5 --key right --model x",
            "no model \"x\": it has known",
        ),
        (
            &url,
            "--rate 5 --key right",
            "the run has no end: give --requests or --duration",
        ),
        (
            &url,
            "--rate 5 --requests 5 --key right --metrics http://127.0.0.1:1/x",
            "--metrics http://127.0.0.1:1/x: cannot connect to 127.0.0.1:1",
        ),
    ] {
        assert_mendable(folder.path(), url, arguments, says);
    }
}

#[test]
fn a_wrong_value_of_a_file_is_named_by_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let url = format!("https://127.0.0.1:{}", support::free_port());
    for (text, more, says) in [
        (
            "requests = 5\nrate = \"fast\"\n",
            "",
            "--config c.toml:2: rate: \"fast\": want requests per second",
        ),
        (
            "rate = 5\nrequests = 5\n\nslo = [\n  \"ttft=1s\", \"x:ttft=1s\"]\n",
            "",
            "--config c.toml:4: slo: x: no such class, want one of default",
        ),
        (
            "rate = 5\nrequests = 5\ninput = \"file:none.txt\"\n",
            "",
            "--config c.toml:3: input: none.txt: No such file",
        ),
        (
            "rate = 5\nrequests = 5\njson = \"no/r.json\"\n",
            "",
            "--config c.toml:3: json: no/r.json: No such file",
        ),
        (
            "rate = 5\nrequests = 5\nca = \"none.pem\"\n",
            "",
            "--config c.toml:3: ca: none.pem: No such file",
        ),
        // What the command line says is its own.
        (
            "requests = 5\nrate = 5\n",
            "--rate fast",
            "tandem: --rate \"fast\": want requests per second",
        ),
    ] {
        std::fs::write(at.join("c.toml"), text).unwrap();
        let arguments = format!("--config c.toml {more}");
        assert_mendable(at, &url, arguments.trim_end(), says);
    }
}
