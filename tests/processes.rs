//! Starting and stopping: what goes wrong is one line and exit code 2; what is stopped leaves nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use support::{Fleet, free_port, model, tandem};

#[test]
fn ctrl_c_stops_everything_within_five_seconds() {
    let fleet = Fleet::up(&[]);
    let (status, took, left) = fleet.interrupt();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(left.is_empty(), "still running: {left:?}");
}

/// Runs `tandem up` on something that cannot work; returns its exit code and standard error.
fn fails(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let state = tempfile::tempdir().unwrap();
    let output = tandem()
        .arg("up")
        .arg("--state-dir")
        .arg(state.path())
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn assert_one_line(outcome: &(Option<i32>, String), words: &[&str]) {
    let (code, text) = outcome;
    assert_eq!(*code, Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} in {text:?}");
    }
}

#[test]
fn a_port_in_use_is_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let model = model();
    let outcome = fails(
        &["--listen", &address, "--model", model.to_str().unwrap()],
        &[],
    );
    assert_one_line(&outcome, &[&address, "in use"]);
}

#[test]
fn a_model_cut_short_or_unknown_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let whole = std::fs::read(model()).unwrap();
    let short = folder.path().join("short.gguf");
    std::fs::write(&short, &whole[..whole.len() / 2]).unwrap();
    let outcome = fails(
        &["--listen", &listen, "--model", short.to_str().unwrap()],
        &[],
    );
    assert_one_line(&outcome, &["short.gguf", "cut short"]);

    let strange = folder.path().join("strange.gguf");
    let at = whole.windows(5).position(|w| w == b"llama").unwrap();
    let mut bytes = whole;
    // general.architecture: "llama" becomes one that nobody knows.
    bytes[at..at + 5].copy_from_slice(b"gizmo");
    std::fs::write(&strange, bytes).unwrap();
    let outcome = fails(
        &["--listen", &listen, "--model", strange.to_str().unwrap()],
        &[],
    );
    assert_one_line(&outcome, &["gizmo"]);

    let outcome = fails(&["--listen", &listen, "--model", "/nonexistent.gguf"], &[]);
    assert_one_line(&outcome, &["/nonexistent.gguf"]);
}

#[test]
fn a_missing_libfabric_names_the_package() {
    let model = model();
    let listen = format!("127.0.0.1:{}", free_port());
    let arguments = ["--listen", &listen, "--model", model.to_str().unwrap()];
    let outcome = fails(
        &arguments,
        &[("TANDEM_LIBFABRIC", "/nonexistent/libfabric.so.1")],
    );
    assert_one_line(&outcome, &["libfabric1"]);
}

#[test]
fn a_cache_that_no_machine_holds_is_one_line() {
    let model = model();
    let listen = format!("127.0.0.1:{}", free_port());
    let model = model.to_str().unwrap();
    let outcome = fails(
        &[
            "--listen",
            &listen,
            "--model",
            model,
            "--kv-memory",
            "15TiB",
        ],
        &[],
    );
    assert_one_line(
        &outcome,
        &["15360.0 GiB", "more than this machine's memory"],
    );
}
