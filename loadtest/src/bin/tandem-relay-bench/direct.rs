//! The same streams without a gateway: what a client would see that reads from the worker itself.
//!
//! Raw sockets and a formatted line, nothing else: the quickest server that there can be. What the
//! gateway's latency is above this one's is what it adds.

use std::net::SocketAddr;
use std::time::Duration;

use tandem_wire::task::{Task, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::{Error, now_ns};

/// No request here is longer.
const HEAD: usize = 4096;
const READ: Duration = Duration::from_secs(5);

pub(crate) struct Direct {
    pub(crate) address: SocketAddr,
    _task: Task<()>,
}

impl Direct {
    /// Every open answer goes on by one event with each step.
    pub(crate) async fn start(steps: watch::Receiver<u64>) -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = spawn("direct", async move {
            let mut answers = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((socket, _)) => {
                            answers.spawn(answer(socket, steps.clone()));
                        }
                        Err(_) => return,
                    },
                    Some(_) = answers.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            _task: task,
        })
    }
}

async fn answer(mut socket: TcpStream, mut steps: watch::Receiver<u64>) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut head = [0; HEAD];
    let read = tokio::time::timeout(READ, socket.read(&mut head)).await??;
    if read == 0 {
        return Ok(());
    }
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    steps.mark_unchanged();
    loop {
        let event = format!(
            "data: {{\"id\":\"chatcmpl-0000000000000000000000000\",\"object\":\"chat.completion.chunk\",\
             \"created\":1700000000,\"model\":\"made\",\"choices\":[{{\"index\":0,\"delta\":\
             {{\"content\":\" {}\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
            now_ns()
        );
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        socket.write_all(chunk.as_bytes()).await?;
        if steps.changed().await.is_err() {
            return Ok(());
        }
    }
}
