//! I4 and I6 on real processes: whatever clients and processes do, requests end and pages return.

#![allow(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and tells its story in one go"
)]

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Fleet, at_rest, chat};
use tokio::task::JoinSet;

const CHAT: &str = "/v1/chat/completions";

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_two_hundred_requests_a_third_of_them_cut_every_page_is_free() {
    let fleet = Fleet::up(&[]);
    let mut numbers = Numbers(7);
    let mut running = JoinSet::new();
    let (mut cut, mut whole) = (0, 0);
    for n in 0..200u32 {
        while running.len() >= 16 {
            running.join_next().await.unwrap().unwrap();
        }
        let words = 1 + numbers.below(24) as usize;
        let mut body = chat(&"lorem ipsum ".repeat(words), 1 + numbers.below(16) as u32);
        body["stream"] = json!(true);
        let client = fleet.client();
        let patience = Duration::from_millis(numbers.below(1500));
        if n % 3 == 0 {
            cut += 1;
            running.spawn(async move {
                let read = async {
                    let Ok(mut events) = client.stream(CHAT, &body).await else {
                        return;
                    };
                    while let Ok(Some(_)) = events.next().await {}
                };
                // Dropping the future closes the connection, wherever the request is by then.
                let _ = tokio::time::timeout(patience, read).await;
            });
        } else {
            whole += 1;
            running.spawn(async move {
                let mut events = client.stream(CHAT, &body).await.unwrap();
                if events.status != 200 {
                    let status = events.status;
                    panic!("{status}: {:?}", events.rest().await.unwrap());
                }
                let mut last = String::new();
                while let Some(event) = events.next().await.unwrap() {
                    assert!(!event.data.contains("\"error\""), "{}", event.data);
                    last = event.data;
                }
                assert_eq!(last, "[DONE]");
            });
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    assert_eq!((cut, whole), (67, 133));
    fleet
        .wait_for(
            "free pages equal total pages",
            Duration::from_secs(2),
            at_rest,
        )
        .await;
    let in_flight = fleet.metric("tandem_requests_in_flight").await;
    assert!(
        !in_flight.is_empty() && in_flight.iter().all(|(_, v)| *v == 0.0),
        "{in_flight:?}"
    );
    let pages = fleet.metric("tandem_kv_pages").await;
    for state in [
        "leased",
        "exposed",
        "ready",
        "active",
        "draining",
        "quarantined",
    ] {
        let of_state = |l: &str| l.contains(&format!("state=\"{state}\""));
        let sum: f64 = pages
            .iter()
            .filter(|(l, _)| of_state(l))
            .map(|(_, v)| v)
            .sum();
        assert_eq!(sum, 0.0, "{state}: {pages:?}");
    }
}

/// Sends prompts that take a while, kills `victim` while they are in transfer, and expects every
/// client to hear something within the deadline.
async fn kill_during_transfer(fleet: &Fleet, victim: &str) {
    let mut running = JoinSet::new();
    for n in 0..4 {
        let client = fleet.client();
        let body = chat(&format!("{n} {}", "lorem ipsum ".repeat(500)), 4);
        running.spawn(async move { client.post(CHAT, &body).await });
    }
    let exposed = |status: &Value| {
        let workers = status["workers"].as_array().unwrap();
        workers
            .iter()
            .any(|w| w["pages"]["exposed"].as_u64() > Some(0))
    };
    fleet
        .wait_for("pages are exposed", Duration::from_secs(30), exposed)
        .await;
    let pid = fleet.pid_of(victim).unwrap();
    fleet.signal(pid, "-KILL");
    let killed = Instant::now();
    while let Some(ended) = running.join_next().await {
        let answer = ended
            .unwrap()
            .expect("an HTTP answer, not a broken connection");
        let status = answer.status.as_u16();
        assert!(status == 200 || (500..600).contains(&status), "{answer:?}");
        if status != 200 {
            let error = answer.json().unwrap();
            assert!(error["error"]["message"].is_string(), "{error}");
        }
    }
    assert!(
        killed.elapsed() < Duration::from_secs(60),
        "nobody waited for the deadline's end"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_prefill_worker_hangs_nobody_and_is_used_again_when_it_is_back() {
    for provider in ["tcp", "shm"] {
        let fleet = Fleet::up(&["--provider", provider]);
        let decode = fleet.pid_of("decode-0").unwrap();
        let gateway = fleet.pid_of("gateway").unwrap();
        kill_during_transfer(&fleet, "prefill-0").await;
        assert_eq!(
            fleet.pid_of("decode-0"),
            Some(decode),
            "decode workers live on"
        );
        assert_eq!(
            fleet.pid_of("gateway"),
            Some(gateway),
            "the gateway lives on"
        );
        // `tandem up` starts it again.
        fleet
            .wait_for("rest after the kill", Duration::from_secs(60), at_rest)
            .await;
        let ready = |status: &Value| {
            let workers = status["workers"].as_array().unwrap();
            workers.iter().filter(|w| w["state"] == "ready").count() == 3
        };
        fleet
            .wait_for("three workers are ready", Duration::from_secs(60), ready)
            .await;
        let answer = fleet
            .client()
            .post(CHAT, &chat("Say hello.", 8))
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        fleet
            .wait_for("rest", Duration::from_secs(2), at_rest)
            .await;
    }
}
