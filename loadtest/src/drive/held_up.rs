//! A client that is itself held up: what it measures then is its own doing, and it says so.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::{Live, run};
use crate::endpoint::{Endpoint, Target};
use crate::known_server::{Behaviour, KnownServer, Script};
use crate::plan::{Bounds, Load, RunPlan};
use crate::results::Run;
use crate::summary::Metric;
use crate::testing;

/// The client's only thread does nothing else for this long.
const HELD: Duration = Duration::from_secs(1);
/// Requests that are sent before.
const BEFORE: u64 = 20;
/// 400 requests in two seconds: about 200 fall due while it is held, half of them for half of that time.
const RATE: &str = "200";
const REQUESTS: u64 = 400;
const LATE: Duration = Duration::from_millis(400);

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap()
}

/// A server that answers within milliseconds, asked by a client that may be held up once.
fn asked(held: bool, lateness: Duration) -> Run {
    let server = runtime(2);
    let behaviour = Behaviour {
        models: vec!["m".to_owned()],
        key: None,
        chunk_usage: true,
        notes: false,
        answer: Box::new(|_| Script {
            first: Duration::from_millis(1),
            gap: Duration::from_millis(1),
            tokens: 2,
            tokens_per_event: 1,
            fault: None,
        }),
    };
    let known = server
        .block_on(KnownServer::start("127.0.0.1:0", behaviour))
        .unwrap();
    let client = runtime(1);
    let target = Target {
        url: format!("http://{}", known.address()).parse().unwrap(),
        key: None,
        headers: Vec::new(),
        http2: false,
        ca: None,
    };
    let endpoint = Arc::new(client.block_on(Endpoint::find(target)).unwrap());
    let plan = RunPlan {
        requests: Some(REQUESTS),
        timeout: Duration::from_secs(60),
        bounds: Bounds {
            lateness,
            cpu_share: 2.0,
        },
        ..testing::plan(Load::Open {
            curve: RATE.parse().unwrap(),
            process: "constant".parse().unwrap(),
        })
    };
    let live = Arc::new(Live::default());
    let watched = Arc::clone(&live);
    let _within = client.enter();
    let _hold = tandem_wire::task::spawn("hold", async move {
        while watched.glance().sent < BEFORE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if held {
            std::thread::sleep(HELD);
        }
    });
    run(client.handle(), &endpoint, &plan, &live, None).unwrap()
}

#[test]
fn a_client_that_is_held_up_counts_it_from_the_schedule_and_calls_the_run_invalid() {
    let run = asked(true, LATE / 2);
    let late = u64::try_from(LATE.as_micros()).unwrap();
    let p99 = |times: &crate::distribution::Distribution| times.quantile(0.99).unwrap();
    assert!(p99(&run.client.lateness) > late, "requests were begun late");
    let longest = run.client.loop_delay.max().unwrap();
    assert!(longest > late, "and it noticed late: {longest}");
    let ttft = &run.phases.measured.all.metrics[&Metric::Ttft];
    assert!(
        p99(ttft) > late,
        "no request's wait is left out: {}",
        p99(ttft)
    );
    assert_eq!(ttft.count(), REQUESTS, "and no request");
    let told = |why: &String| why.starts_with("requests were begun") && why.contains("200 ms");
    assert!(run.invalid.iter().any(told), "{:?}", run.invalid);
}

#[test]
fn the_same_client_is_believed_where_nothing_holds_it_up() {
    // As late as that no machine is.
    let run = asked(false, Duration::from_secs(30));
    assert_eq!(run.invalid, Vec::<String>::new());
    assert_eq!(run.phases.measured.all.counts.attained, REQUESTS);
}
