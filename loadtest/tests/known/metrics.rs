//! A server's own metrics beside the harness's: read before, during and after; whatever becomes of them, the load goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tandem_loadtest::Harness;
use tandem_loadtest::body::Api;
use tandem_loadtest::plan::RunPlan;
use tandem_loadtest::server_metrics::{SHOWN, Scrapers, SeriesFigures};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{SCRIPT, Server, open, plan, run, synthetic};

/// Answers each request with what `page` has for its number, and closes.
async fn pages(listener: TcpListener, page: impl Fn(u64) -> (u16, String) + Send + Sync + 'static) {
    let (page, asked) = (Arc::new(page), Arc::new(AtomicU64::new(0)));
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let (page, asked) = (Arc::clone(&page), Arc::clone(&asked));
        connections.spawn(async move {
            let mut head = vec![0; 4096];
            let _ = stream.read(&mut head).await;
            let (status, body) = page(asked.fetch_add(1, Ordering::SeqCst));
            let length = body.len();
            let reply = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(reply.as_bytes()).await;
            let _ = stream.shutdown().await;
        });
    }
}

/// Where it listens.
fn listen(server: &Server, page: impl Fn(u64) -> (u16, String) + Send + Sync + 'static) -> String {
    let listener = server
        .runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    server.runtime.spawn(pages(listener, page));
    format!("http://{address}")
}

fn scrapers(server: &Server, url: &str) -> Result<Scrapers, String> {
    let names = SHOWN.parse().unwrap();
    Scrapers::start(&[url.to_owned()], &server.target(), names).map_err(|error| error.to_string())
}

/// A second and a half of load, with these metrics.
fn with(
    page: impl Fn(u64) -> (u16, String) + Send + Sync + 'static,
) -> tandem_loadtest::results::Run {
    let server = Server::answering(|_| SCRIPT);
    let url = listen(&server, page);
    let harness = Harness::start(server.target(), Api::Chat, None)
        .unwrap()
        .with_metrics(scrapers(&server, &url).unwrap());
    let plan = RunPlan {
        requests: Some(30),
        ..plan(&harness, open("20", "constant"), synthetic("1", "0s"))
    };
    let done = run(&harness, &plan);
    assert_eq!(done.run.phases.measured.all.counts.attained, 30);
    done.run
}

#[test]
fn a_counter_s_difference_is_that_from_before_the_run_to_after_it() {
    // The look before the test is number 0, the readings of the run begin with 1.
    let run = with(|number| {
        (
            200,
            format!(
                "# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total {}\n",
                100 + 7 * number
            ),
        )
    });
    let [metrics] = &run.server[..] else {
        panic!("{:?}", run.server);
    };
    assert!(
        metrics.scrapes >= 3,
        "before, at least one within, and after: {}",
        metrics.scrapes
    );
    assert_eq!((metrics.failed, &metrics.problem), (0, &None));
    let family = &metrics.families["vllm:prompt_tokens_total"];
    let SeriesFigures::Counter { difference, per_s } = family.series[0].figures else {
        panic!("{family:?}");
    };
    assert_eq!(difference, 7.0 * (metrics.scrapes - 1) as f64);
    assert!((per_s - difference / metrics.span_s).abs() < 1e-9 && metrics.span_s >= 1.4);
    assert!(family.shown);
}

#[test]
fn metrics_that_cannot_be_read_any_more_are_told_and_the_run_goes_on() {
    let run = with(|number| match number {
        0 | 1 => (200, "tandem_x 1\n".to_owned()),
        2 => (404, String::new()),
        _ => (200, "<html>".to_owned()),
    });
    let metrics = &run.server[0];
    assert_eq!(metrics.failed, metrics.scrapes - 1);
    let problem = metrics.problem.as_deref().unwrap();
    assert!(problem.contains("answers 404 Not Found"), "{problem}");
    assert_eq!(metrics.families.len(), 1, "what was read is kept");
    let of_metrics = |why: &String| why.contains("metrics");
    assert!(!run.invalid.iter().any(of_metrics), "{:?}", run.invalid);
}

#[test]
fn metrics_that_never_could_be_read_are_refused_before_the_load() {
    let server = Server::answering(|_| SCRIPT);
    let much = "a 1\n".repeat(3 << 20);
    for (page, says) in [
        ((404, String::new()), "/metrics: answers 404 Not Found"),
        (
            (200, "<!DOCTYPE html>".to_owned()),
            "line 1: \"<!DOCTYPE html>\" is no metric",
        ),
        ((200, String::new()), "it holds no metric"),
        ((200, much), "a body of more than 8388608 bytes"),
    ] {
        let url = listen(&server, move |_| page.clone());
        let error = scrapers(&server, &url).err().unwrap();
        assert!(error.contains(says) && error.contains(&url), "{error}");
    }
    let error = scrapers(&server, "127.0.0.1:1/metrics").err().unwrap();
    assert!(error.contains("want a URL such as"), "{error}");
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = scrapers(&server, &format!("http://{free}")).err().unwrap();
    assert!(error.contains("cannot connect"), "{error}");
}
