//! A worker fails: the request goes on elsewhere, and the client sees latency only.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tandem_config::GatewayConfig;
use tandem_wire::proto;
use tandem_wire::proto::failure::Blame;
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::proto::{FinishReason, Role};
use tempfile::TempDir;

use crate::client::{Stream, post, post_stream};
use crate::harness::{CHAT, Gateway, chat, config, eventually, pki, with};
use crate::scripted_worker::{Call, ScriptedWorker, welcome};

/// A gateway with two workers of each role.
struct Pairs {
    gateway: Gateway,
    decodes: Vec<Option<ScriptedWorker>>,
    _prefills: Vec<ScriptedWorker>,
    _pki: TempDir,
}

async fn pairs(change: impl FnOnce(&mut GatewayConfig)) -> Pairs {
    let pki = pki();
    let start = |id: &str, role| ScriptedWorker::start(pki.path(), welcome(id, role));
    let prefills = ["prefill-0", "prefill-1"].map(|id| start(id, Role::Prefill));
    let decodes = ["decode-0", "decode-1"].map(|id| start(id, Role::Decode));
    let all = prefills.iter().chain(&decodes).map(|w| w.address);
    let all: Vec<SocketAddr> = all.collect();
    let mut config = config(&pki, all);
    change(&mut config);
    let gateway = Gateway::start(config).await;
    eventually("all are there", || async {
        let status = gateway.status().await;
        let workers = status["workers"].as_array().unwrap();
        workers.iter().all(|w| w["state"] == "ready")
    })
    .await;
    Pairs {
        gateway,
        decodes: decodes.map(Some).into(),
        _prefills: prefills.into(),
        _pki: pki,
    }
}

impl Pairs {
    /// The next request, whichever decode worker is asked; and which.
    async fn call(&mut self) -> (usize, Call) {
        match &mut self.decodes[..] {
            [Some(a), Some(b)] => tokio::select! {
                call = a.call() => (0, call),
                call = b.call() => (1, call),
            },
            [Some(a), None] => (0, a.call().await),
            [None, Some(b)] => (1, b.call().await),
            _ => panic!("nobody is left"),
        }
    }

    fn kill(&mut self, decode: usize) {
        self.decodes[decode].take().unwrap().die();
    }

    async fn counted(&self, metric: &str, stage: &str) -> f64 {
        let sample = format!("{metric}{{stage=\"{stage}\"}}");
        self.gateway.metric(&sample).await.expect(&sample)
    }
}

fn streamed() -> Value {
    let options = json!({"include_usage": true});
    with(chat(), json!({"stream": true, "stream_options": options}))
}

async fn fail(call: &mut Call, blame: Blame) {
    call.say(Kind::Failed(proto::Failure {
        blame: blame.into(),
        code: "broke".into(),
        message: "it broke".into(),
        retry_elsewhere: true,
    }))
    .await;
}

/// The text, the finish reason, and the tokens of the answer that were counted.
async fn read(mut stream: Stream) -> (String, String, u64) {
    assert_eq!(stream.status, 200);
    let (mut text, mut reason, mut tokens) = (String::new(), String::new(), 0);
    let events = stream.rest().await;
    assert_eq!(events.last().unwrap(), "[DONE]");
    for event in &events[..events.len() - 1] {
        let event: Value = serde_json::from_str(event).unwrap();
        assert!(event.get("error").is_none(), "{event}");
        let choice = &event["choices"][0];
        text += choice["delta"]["content"].as_str().unwrap_or_default();
        reason += choice["finish_reason"].as_str().unwrap_or_default();
        tokens += event["usage"]["completion_tokens"].as_u64().unwrap_or(0);
    }
    (text, reason, tokens)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_fails_before_its_first_token_is_answered_by_another_pair() {
    let mut pairs = pairs(|_| {}).await;
    let address = pairs.gateway.address;
    for (blame, stage) in [
        (Blame::Decode, "decode"),
        (Blame::Prefill, "prefill"),
        (Blame::Fabric, "fabric"),
    ] {
        assert_eq!(pairs.counted("tandem_retries_total", stage).await, 0.0);
        let body = chat();
        let serve = async {
            let (first, mut call) = pairs.call().await;
            call.start().await;
            let before = call.generate.clone();
            fail(&mut call, blame).await;
            let (second, mut call) = pairs.call().await;
            let after = &call.generate;
            assert_eq!((&after.tokens, after.generated), (&before.tokens, 0));
            if blame != Blame::Prefill {
                assert_ne!(first, second);
            }
            if blame != Blame::Decode {
                assert_ne!(after.prefill, before.prefill);
            }
            call.start().await;
            call.token(1, "ok").await;
            call.finish("", FinishReason::Stop).await;
        };
        let (reply, ()) = tokio::join!(post(address, CHAT, &body), serve);
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json()["choices"][0]["message"]["content"], "ok");
        assert_eq!(pairs.counted("tandem_retries_total", stage).await, 1.0);
        assert_eq!(pairs.counted("tandem_migrations_total", stage).await, 0.0);
    }
    pairs.gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_whose_worker_is_lost_goes_on_in_the_same_stream() {
    let mut pairs = pairs(|_| {}).await;
    let address = pairs.gateway.address;
    let body = streamed();
    let serve = async {
        let (first, mut call) = pairs.call().await;
        call.start().await;
        call.token(5, "Hel").await;
        call.token(6, "lo").await;
        let prompt = call.generate.tokens.clone();
        pairs.kill(first);
        let (_, mut call) = pairs.call().await;
        let generate = &call.generate;
        assert_eq!(generate.tokens, [&prompt[..], &[5, 6]].concat());
        assert_eq!(generate.generated, 2);
        let stop = generate.stop.as_ref().unwrap();
        assert_eq!(stop.max_tokens, 8, "of the whole answer");
        call.start().await;
        call.token(7, " you").await;
        call.finish("!", FinishReason::Stop).await;
    };
    let (stream, ()) = tokio::join!(post_stream(address, CHAT, &body), serve);
    assert_eq!(read(stream).await, ("Hello you!".into(), "stop".into(), 3));
    assert_eq!(
        pairs.counted("tandem_migrations_total", "decode").await,
        1.0
    );
    assert_eq!(pairs.counted("tandem_retries_total", "decode").await, 0.0);
    pairs.gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_moves_a_bounded_number_of_times() {
    let change = |config: &mut GatewayConfig| config.admission.migrations = 1;
    let mut pairs = pairs(change).await;
    let address = pairs.gateway.address;
    let body = streamed();
    let serve = async {
        for token in [5, 6] {
            let (_, mut call) = pairs.call().await;
            call.start().await;
            call.token(token, "a").await;
            fail(&mut call, Blame::Fabric).await;
        }
    };
    let (mut stream, ()) = tokio::join!(post_stream(address, CHAT, &body), serve);
    let events = stream.rest().await;
    assert!(events[events.len() - 2].contains("\"broke\""), "{events:?}");
    assert_eq!(events[events.len() - 1], "[DONE]");
    assert_eq!(
        pairs.counted("tandem_migrations_total", "fabric").await,
        1.0
    );
    pairs.gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_retries_and_migrations_off_the_first_failure_is_the_answer() {
    let change = |config: &mut GatewayConfig| {
        config.admission.retries = 0;
        config.admission.migrations = 0;
    };
    let mut pairs = pairs(change).await;
    let address = pairs.gateway.address;
    let body = chat();
    for tokens in [0, 1] {
        let serve = async {
            let (_, mut call) = pairs.call().await;
            call.start().await;
            for _ in 0..tokens {
                call.token(1, "a").await;
            }
            fail(&mut call, Blame::Decode).await;
        };
        let (reply, ()) = tokio::join!(post(address, CHAT, &body), serve);
        assert_eq!((reply.status.as_u16(), reply.code()), (503, "broke".into()));
        assert!(reply.header("retry-after").is_some());
    }
    pairs.gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_complete_when_its_worker_was_lost_is_complete() {
    let mut pairs = pairs(|_| {}).await;
    let address = pairs.gateway.address;
    let body = with(streamed(), json!({"max_tokens": 2}));
    let serve = async {
        let (first, mut call) = pairs.call().await;
        call.start().await;
        call.token(5, "a").await;
        call.token(6, "b").await;
        pairs.kill(first);
    };
    let (stream, ()) = tokio::join!(post_stream(address, CHAT, &body), serve);
    assert_eq!(read(stream).await, ("ab".into(), "length".into(), 2));
    pairs.gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_its_answer_moves_leaves_nothing_behind() {
    let mut pairs = pairs(|_| {}).await;
    let address = pairs.gateway.address;
    let body = streamed();
    let serve = async {
        let (first, mut call) = pairs.call().await;
        call.start().await;
        call.token(5, "a").await;
        fail(&mut call, Blame::Decode).await;
        let (second, call) = pairs.call().await;
        assert_ne!(first, second);
        call
    };
    let (mut stream, mut call) = tokio::join!(post_stream(address, CHAT, &body), serve);
    stream.event().await.unwrap();
    drop(stream);
    call.cancelled().await;
    pairs.gateway.at_rest().await;
}
