//! One trace through a gateway and two workers: from the client's span to each layer's push.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tandem_config::Config;
use tandem_core::WorkerId;
use tandem_engine::testing::TinyLlama;
use tandem_loadtest::Client;
use tandem_telemetry::testing::{Collector, Received, Sent};
use tandem_wire::identity::{Authority, PeerRole};
use tandem_wire::task::{Task, spawn};
use tokio::sync::oneshot;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

/// A process's life in this one.
struct Life {
    stop: oneshot::Sender<()>,
    running: Task<()>,
    address: SocketAddr,
}

impl Life {
    async fn start<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(oneshot::Receiver<()>, oneshot::Sender<SocketAddr>) -> F,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let running = spawn("life", run(stopped, tell));
        let address = timeout(LONG, told).await.unwrap().expect("it starts");
        Self {
            stop,
            running,
            address,
        }
    }

    async fn end(self) {
        let _ = self.stop.send(());
        timeout(LONG, self.running.join()).await.unwrap().unwrap();
    }
}

async fn worker(folder: &Path, id: &str, role: &str, telemetry: &str) -> Life {
    let name = WorkerId::new(id).unwrap();
    let authority = Authority::open_or_create(&folder.join("pki")).unwrap();
    authority.issue(&PeerRole::Worker(name)).unwrap();
    let text = format!(
        "[worker]\nid = \"{id}\"\nrole = \"{role}\"\nlisten = \"127.0.0.1:0\"\nmodel = \"tiny.gguf\"\n\
         threads = 1\nkv_pages = 64\n{telemetry}"
    );
    let config = Config::parse(&text, &folder.join("worker.toml")).unwrap();
    let config = config.worker.unwrap();
    Life::start(|stopped, tell| async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        let started = |told: tandem_worker_agent::Started| tell.send(told.address).unwrap();
        tandem_worker_agent::run(config, shutdown, started)
            .await
            .unwrap();
    })
    .await
}

async fn gateway(folder: &Path, workers: [SocketAddr; 2], telemetry: &str) -> Life {
    let authority = Authority::open_or_create(&folder.join("pki")).unwrap();
    authority.issue(&PeerRole::Gateway).unwrap();
    let [prefill, decode] = workers;
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\ntokenizer = \"tiny.gguf\"\n\
         workers = [\"{prefill}\", \"{decode}\"]\n{telemetry}"
    );
    let config = Config::parse(&text, &folder.join("gateway.toml")).unwrap();
    let config = config.gateway.unwrap();
    Life::start(|stopped, tell| async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        let started = |address| tell.send(address).unwrap();
        tandem_gateway::run(config, shutdown, started)
            .await
            .unwrap();
    })
    .await
}

async fn ready(client: &Client) {
    timeout(LONG, async {
        while client.get("/ready").await.unwrap().status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("ready in time");
}

/// The chain of names from a span up to the request's.
fn chain<'a>(sent: &'a Sent, mut span: &'a Received) -> Vec<String> {
    let mut names = vec![span.name.clone()];
    while let Some(parent) = sent.spans.iter().find(|other| other.id == span.parent) {
        names.push(parent.name.clone());
        span = parent;
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_one_trace_from_the_gateway_to_each_layers_push() {
    let folder = tempfile::tempdir().unwrap();
    let model = TinyLlama::default();
    let layers = model.layers;
    model.write_gguf(&folder.path().join("tiny.gguf")).unwrap();
    let collector = Collector::start().await;
    let telemetry = format!(
        "[telemetry]\notlp_endpoint = \"{}\"\notlp_interval_ms = 20\n",
        collector.endpoint()
    );
    let prefill = worker(folder.path(), "prefill-0", "prefill", &telemetry).await;
    let decode = worker(folder.path(), "decode-0", "decode", &telemetry).await;
    let workers = [prefill.address, decode.address];
    let gateway = gateway(folder.path(), workers, &telemetry).await;
    let client = Client::new(gateway.address);
    ready(&client).await;
    let model = client.get("/v1/models").await.unwrap().json().unwrap();
    let model = model["data"][0]["id"].as_str().unwrap().to_owned();
    let body = json!({
        "model": model, "prompt": "the quick brown fox jumps over the lazy dog",
        "max_tokens": 4, "ignore_eos": true, "temperature": 0,
    });
    let reply = client.post("/v1/completions", &body).await.unwrap();
    assert_eq!(reply.status, 200, "{:?}", reply.body);

    let request = format!("text_completion {model}");
    let sent = collector
        .wait_for("the spans of all three", |sent| {
            [request.as_str(), "generate", "prefill"]
                .iter()
                .all(|name| sent.spans.iter().any(|s| s.name == *name && s.kind == 2))
        })
        .await;
    let root = sent.named(&request).next().unwrap();
    assert_eq!(root.parent, "");
    assert!(sent.spans.iter().all(|span| span.trace == root.trace));
    let pushes: Vec<&Received> = sent.named("push").collect();
    assert_eq!(pushes.len(), layers, "one for each layer: {pushes:#?}");
    for push in pushes {
        let up = ["push", "prefill", "dispatch", "generate", request.as_str()];
        assert_eq!(chain(&sent, push), up);
        assert_eq!(push.resource["service.instance.id"], "prefill-0");
    }
    for span in &sent.spans {
        assert_eq!(chain(&sent, span).last(), Some(&request), "{span:#?}");
    }
    for life in [gateway, decode, prefill] {
        life.end().await;
    }
}
