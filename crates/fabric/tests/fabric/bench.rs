//! Measuring: that a run measures what it says, and ends whatever the other process does.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tandem_fabric::bench::{Bench, BenchError, Case, Layout, Plan, Receiver, receive, run, serve};

crate::on_every_provider!(
    a_run_counts_its_writes_and_reports_every_field,
    a_write_has_latencies,
);

/// Not a test: where spawned receivers begin. Without an address it does nothing.
#[test]
fn receives() {
    let last = std::env::args().next_back().unwrap();
    if let Ok(address) = last.parse::<SocketAddr>() {
        receive(address, &[]).unwrap();
    }
}

fn spawned() -> Receiver {
    let arguments = [
        "--exact",
        "bench::receives",
        "--nocapture",
        "--test-threads=1",
    ];
    Receiver::Spawn(arguments.map(Into::into).to_vec())
}

fn plan(provider: &str) -> Plan {
    let scattered = Case::new(provider, 16 << 10, 256);
    let contiguous = Case {
        layout: Layout::Contiguous,
        ..scattered.clone()
    };
    let runs = Case {
        run_pages: 4,
        ..scattered.clone()
    };
    let nics = Case {
        nics: 2,
        ..scattered.clone()
    };
    Plan {
        cases: vec![scattered, contiguous, runs, nics],
        latency_bytes: Vec::new(),
        ..Plan::quick(provider)
    }
}

/// On a plain thread, as measuring asks for.
async fn apart<T: Send + 'static>(measure: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(measure).await.unwrap()
}

async fn a_run_counts_its_writes_and_reports_every_field(provider: &str) {
    let plan = plan(provider);
    let report = apart(move || run(&plan, &spawned()).unwrap()).await;
    let writes: Vec<u64> = report.cases.iter().map(|c| c.writes).collect();
    assert_eq!(writes, [256, 4, 64, 256], "merged up to 1 MiB");
    let json = serde_json::to_value(&report).unwrap();
    let cases = json["cases"].as_array().unwrap();
    let layouts: Vec<&str> = cases
        .iter()
        .map(|c| c["layout"].as_str().unwrap())
        .collect();
    assert_eq!(
        layouts,
        ["scattered", "contiguous", "scattered", "scattered"]
    );
    for case in cases {
        for field in ["piece_bytes", "nics", "writes"] {
            assert!(case[field].as_u64().unwrap() > 0, "{field}: {case}");
        }
        for rate in [
            "engine_gbytes_per_s",
            "bare_gbytes_per_s",
            "tcp_gbytes_per_s",
            "memcpy_gbytes_per_s",
            "engine_cpu_s_per_gb",
            "bare_cpu_s_per_gb",
        ] {
            assert!(case[rate].as_f64().unwrap() > 0.0, "{rate}: {case}");
        }
    }
    assert_eq!(report.to_string().lines().count(), 7, "{report}");
}

async fn a_write_has_latencies(provider: &str) {
    let provider = provider.to_owned();
    let measure = move || {
        let mut bench = Bench::open(&spawned(), Vec::new()).unwrap();
        let latency = bench.latency(&provider, 64, 20).unwrap();
        bench.close().unwrap();
        latency
    };
    let latency = apart(measure).await;
    for us in [
        latency.engine_completion_us,
        latency.bare_completion_us,
        latency.engine_counted_us,
        latency.bare_counted_us,
    ] {
        assert!(us.p50 > 0.0 && us.p50 <= us.p99, "{latency:?}");
    }
}

#[test]
fn two_hosts_meet_at_an_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver = Receiver::Connect(listener.local_addr().unwrap().to_string());
    let serving = std::thread::spawn(move || serve(&listener, &[]));
    let mut bench = Bench::open(&receiver, Vec::new()).unwrap();
    assert_eq!(bench.receiver_id(), None);
    let result = bench.case(&Case::new("tcp", 64 << 10, 16), 2).unwrap();
    assert_eq!((result.writes, result.rounds), (16, 2));
    bench.close().unwrap();
    serving.join().unwrap().unwrap();
}

#[test]
fn a_receiver_that_dies_ends_the_run() {
    let mut bench = Bench::open(&spawned(), Vec::new()).unwrap();
    let id = bench.receiver_id().unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        let id = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        Instant::now()
    });
    // Far more than is pushed until then.
    let ended = bench.case(&Case::new("tcp", 64 << 10, 1 << 24), 1);
    let killed = killer.join().unwrap();
    assert!(ended.is_err(), "{ended:?}");
    assert!(killed.elapsed() < Duration::from_secs(10), "{ended:?}");
}

#[test]
fn a_receiver_that_cannot_begin_is_an_error() {
    let arguments = ["--exact", "no::such::test"].map(Into::into).to_vec();
    let error = Bench::open(&Receiver::Spawn(arguments), Vec::new()).err();
    assert!(matches!(error, Some(BenchError::Other(_))), "{error:?}");
    let mut bench = Bench::open(&spawned(), Vec::new()).unwrap();
    let error = bench.case(&Case::new("tpc", 64 << 10, 16), 1).unwrap_err();
    assert!(error.to_string().contains("\"tpc\""), "{error}");
}

#[test]
fn a_stranger_at_the_meeting_is_an_error_on_either_side() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let receiver = Receiver::Connect(address.to_string());
    let stranger = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        listener
    });
    let error = Bench::open(&receiver, Vec::new()).err();
    assert!(matches!(error, Some(BenchError::Protocol(_))), "{error:?}");
    let listener = stranger.join().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let error = serve(&listener, &[]).unwrap_err();
    assert!(matches!(error, BenchError::Protocol(_)), "{error:?}");
}
