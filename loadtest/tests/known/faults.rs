//! Answers that go wrong: each is a failure with a message of its own, and the rest goes on.

use std::sync::Arc;
use std::time::Duration;

use tandem_loadtest::Live;
use tandem_loadtest::known_server::{Fault, Script};
use tandem_loadtest::plan::RunPlan;
use tandem_loadtest::record::{FailureKind, Outcome};
use tandem_loadtest::results::RunEnd;

use crate::support::{Done, SCRIPT, Server, closed, open, plan, run, run_with, synthetic};

/// Eight requests, the third of which goes wrong.
fn with(fault: Fault) -> Done {
    let server = Server::answering(move |asked| Script {
        fault: (asked.number == 2).then_some(fault),
        ..SCRIPT
    });
    let harness = server.harness().unwrap();
    let plan = RunPlan {
        requests: Some(8),
        timeout: Duration::from_millis(400),
        ..plan(&harness, closed(1), synthetic("1", "0s"))
    };
    run(&harness, &plan)
}

#[test]
fn each_fault_is_told_by_its_kind_and_in_words() {
    for (fault, kind, says) in [
        (
            Fault::Status(500),
            FailureKind::Status,
            "500 Internal Server Error: as the script says",
        ),
        (
            Fault::Page,
            FailureKind::NotAStream,
            "content-type text/html, want text/event-stream",
        ),
        (
            Fault::Drop,
            FailureKind::Connection,
            "closed the connection before its answer ended",
        ),
        (
            Fault::DropAfter(2),
            FailureKind::Stopped,
            "the stream broke after 2 events",
        ),
        (
            Fault::EndAfter(3),
            FailureKind::Stopped,
            "stopped after 3 events, without a finish_reason",
        ),
        (
            Fault::GarbageAfter(1),
            FailureKind::Garbage,
            "502 Bad Gateway",
        ),
        (
            Fault::ErrorAfter(1),
            FailureKind::StreamError,
            "the worker is gone",
        ),
        (
            Fault::SilenceAfter(0),
            FailureKind::Timeout,
            "no token within 0.4 s",
        ),
        (
            Fault::SilenceAfter(2),
            FailureKind::Timeout,
            "no end after 2 events within 0.4 s",
        ),
    ] {
        let done = with(fault);
        let counts = done.run.phases.measured.all.counts;
        assert_eq!((counts.attained, counts.failed), (7, 1), "{fault:?}");
        let failures = &done.run.phases.measured.failures;
        assert_eq!(failures.keys().collect::<Vec<_>>(), [&kind], "{fault:?}");
        assert!(
            failures[&kind].example.contains(says),
            "{}",
            failures[&kind].example
        );
        assert_eq!(done.run.ended, RunEnd::Complete);
    }
}

#[test]
fn a_request_that_is_turned_away_is_rejected_not_failed() {
    for status in [429, 503] {
        let done = with(Fault::Status(status));
        let counts = done.run.phases.measured.all.counts;
        assert_eq!((counts.attained, counts.rejected, counts.failed), (7, 1, 0));
        assert_eq!(done.records[2].outcome, Outcome::Rejected);
    }
}

#[test]
fn a_server_that_dies_ends_the_run_and_what_was_measured_is_kept() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let plan = RunPlan {
        duration: Some(Duration::from_secs(60)),
        ..plan(&harness, open("100", "constant"), synthetic("1", "0s"))
    };
    let live = Arc::new(Live::default());
    let done = std::thread::scope(|threads| {
        let kill = || {
            while live.glance().answered < 20 {
                std::thread::yield_now();
            }
            server.runtime.shutdown_background();
            drop(server.known);
        };
        threads.spawn(kill);
        run_with(&harness, &plan, Arc::clone(&live))
    });
    assert_eq!(done.run.ended, RunEnd::ServerGone);
    let measured = &done.run.phases.measured;
    assert!(measured.all.counts.attained >= 20);
    assert!(measured.failures[&FailureKind::Connect].count >= 64);
    assert_eq!(done.records.len() as u64, measured.all.counts.all());
}

#[test]
fn a_run_that_is_stopped_keeps_what_it_has_and_counts_what_it_cuts() {
    let server = Server::answering(|asked| Script {
        fault: match asked.number {
            2 => Some(Fault::Status(500)),
            0..=10 => None,
            _ => Some(Fault::SilenceAfter(1)),
        },
        ..SCRIPT
    });
    let harness = server.harness().unwrap();
    let plan = RunPlan {
        requests: Some(1000),
        ..plan(&harness, closed(4), synthetic("1", "0s"))
    };
    let live = Arc::new(Live::default());
    let done = std::thread::scope(|threads| {
        threads.spawn(|| {
            while live.glance().answered < 10 || live.glance().sent < 15 {
                std::thread::yield_now();
            }
            live.stop();
        });
        run_with(&harness, &plan, Arc::clone(&live))
    });
    assert_eq!(done.run.ended, RunEnd::Interrupted);
    let counts = done.run.phases.measured.all.counts;
    assert_eq!((counts.attained, counts.failed), (10, 1));
    assert_eq!((done.records.len(), done.run.cut), (11, 4));
}
