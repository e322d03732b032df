//! Clients that read slowly, not at all, or leave: their pace is their own.

use serde_json::json;
use tandem_config::GatewayConfig;
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;
use tandem_wire::task::{Task, spawn};
use tokio::sync::mpsc;

use crate::client::post_stream;
use crate::harness::{CHAT, Gateway, chat, config, pki, with};
use crate::raw::Raw;
use crate::scripted_worker::{Call, ScriptedWorker, welcome};

const SLOW: usize = 200;
const LEAVING: usize = 50;
const TOKENS: u32 = 200;

/// A worker with room for all of them.
fn large_worker(pki: &tempfile::TempDir) -> ScriptedWorker {
    let mut welcome = welcome("both-0", proto::Role::Both);
    let pages = proto::Pages {
        total: 1 << 16,
        free: 1 << 16,
        ..Default::default()
    };
    welcome.load = Some(proto::Load {
        sequence: 1,
        pages: Some(pages),
        ..Default::default()
    });
    ScriptedWorker::start(pki.path(), welcome)
}

/// Says much, for as long as anybody listens.
fn pour(mut call: Call) -> Task<()> {
    spawn("pour", async move {
        call.start().await;
        let text = "x".repeat(200);
        while call.try_say_token(3, &text).await {
            tokio::task::yield_now().await;
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_gets_each_token_at_once_among_slow_and_leaving_ones() {
    let pki = pki();
    let mut worker = large_worker(&pki);
    let mut config: GatewayConfig = config(&pki, vec![worker.address]);
    config.max_connections = 1000;
    config.queue_limit = 1000;
    let gateway = Gateway::start(config).await;
    gateway.ready().await;
    let body = with(chat(), json!({"stream": true})).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let ask = head + &body;
    let (mut open, mut pours) = (Vec::new(), Vec::new());
    for _ in 0..SLOW + LEAVING {
        let mut raw = Raw::connect(gateway.address).await;
        raw.write(&ask).await;
        pours.push(pour(worker.call().await));
        open.push(raw);
    }

    let (tell, mut told) = mpsc::channel::<u32>(1);
    let body = with(chat(), json!({"stream": true}));
    let begin = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(0, "0 ").await;
        call
    };
    let (mut stream, mut call) = tokio::join!(post_stream(gateway.address, CHAT, &body), begin);
    // The next token is said only when the one before it was read.
    let saying = spawn("say", async move {
        for token in 1..TOKENS {
            assert_eq!(told.recv().await, Some(token - 1));
            call.token(token, &format!("{token} ")).await;
        }
        told.recv().await;
        call.finish("", FinishReason::Stop).await;
    });
    for token in 0..TOKENS {
        loop {
            let event = stream.json().await;
            if event["choices"][0]["delta"]["content"] == format!("{token} ") {
                break;
            }
        }
        if token.is_multiple_of(4) && open.len() > SLOW {
            open.pop();
        }
        tell.send(token).await.unwrap();
    }
    saying.join().await.unwrap();
    assert_eq!(stream.rest().await.last().unwrap(), "[DONE]");
    drop((open, pours));
    gateway.at_rest().await;
}
