//! Bytes as they are, over a socket.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection, and what was read of it and not yet looked at.
pub(crate) struct Raw<S = TcpStream> {
    socket: S,
    read: Vec<u8>,
}

/// One reply to HTTP/1.
#[derive(Debug)]
pub(crate) struct RawReply {
    pub(crate) status: u16,
    /// In lower case, with the status line.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl RawReply {
    /// The error's code.
    pub(crate) fn code(&self) -> String {
        let json: serde_json::Value =
            serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        json["error"]["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self::over(socket)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub(crate) const fn over(socket: S) -> Self {
        Self {
            socket,
            read: Vec::new(),
        }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Whether all could be written before the connection ended.
    pub(crate) async fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(bytes.as_ref()).await.is_ok()
    }

    /// False at the end.
    async fn more(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let read = timeout(PATIENCE, self.socket.read(&mut chunk)).await;
        // A reset is an end too.
        let read = read.expect("bytes or an end in time").unwrap_or(0);
        self.read.extend_from_slice(&chunk[..read]);
        read > 0
    }

    /// Reads up to and with `end`.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            let found = self
                .read
                .windows(end.len())
                .position(|at| at == end.as_bytes());
            if let Some(at) = found {
                let rest = self.read.split_off(at + end.len());
                return String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap();
            }
            let so_far = self.read.len();
            assert!(
                self.more().await,
                "ended after {so_far} bytes, without {end:?}"
            );
        }
    }

    /// The next reply, whose length is given; to HEAD, without its body.
    pub(crate) async fn reply(&mut self, to_head: bool) -> RawReply {
        let head = self.until("\r\n\r\n").await.to_lowercase();
        let status = head[9..12].parse().unwrap();
        let mut reply = RawReply {
            status,
            head,
            body: String::new(),
        };
        if to_head || status < 200 || status == 204 {
            return reply;
        }
        let length: usize = reply.header("content-length").unwrap().parse().unwrap();
        while self.read.len() < length {
            assert!(self.more().await, "a whole body");
        }
        let rest = self.read.split_off(length);
        reply.body = String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap();
        reply
    }

    /// The next reply, whose length is given; `None` where the connection ends instead.
    pub(crate) async fn try_reply(&mut self) -> Option<RawReply> {
        if self.read.is_empty() && !self.more().await {
            return None;
        }
        Some(self.reply(false).await)
    }

    /// All that comes up to the end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        while self.more().await {}
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }
}
