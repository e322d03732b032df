//! Reading requests.

use std::io;
use std::time::Instant;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// One request.
pub(super) struct Asking {
    pub(super) line: String,
    pub(super) authorization: Option<String>,
    pub(super) request_id: String,
    pub(super) session: Option<String>,
    pub(super) body: Value,
    pub(super) bytes: usize,
    pub(super) at: Instant,
}

/// What was read and not yet used.
#[derive(Default)]
pub(super) struct Reader {
    buffer: Vec<u8>,
}

const PIECE: usize = 16 << 10;
const LONGEST: usize = 64 << 20;
const HEADERS: usize = 64;

struct Head {
    line: String,
    authorization: Option<String>,
    request_id: String,
    session: Option<String>,
    length: usize,
    body_at: usize,
}

impl Reader {
    /// The next request; `None` at the connection's end.
    pub(super) async fn next(&mut self, stream: &mut TcpStream) -> io::Result<Option<Asking>> {
        loop {
            if let Some(head) = head(&self.buffer)?
                && self.buffer.len() >= head.body_at + head.length
            {
                let at = Instant::now();
                let end = head.body_at + head.length;
                let body = serde_json::from_slice(&self.buffer[head.body_at..end]);
                self.buffer.drain(..end);
                return Ok(Some(Asking {
                    line: head.line,
                    authorization: head.authorization,
                    request_id: head.request_id,
                    session: head.session,
                    body: body.unwrap_or(Value::Null),
                    bytes: head.length,
                    at,
                }));
            }
            let before = self.buffer.len();
            if before > LONGEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.buffer.reserve(PIECE);
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// The head, where it is there.
fn head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(bytes).map_err(io::Error::other)?;
    let httparse::Status::Complete(body_at) = parsed else {
        return Ok(None);
    };
    let header = |name: &str| {
        let found = request
            .headers
            .iter()
            .find(|h| h.name.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(found.value).into_owned())
    };
    let length = header("content-length").and_then(|length| length.parse().ok());
    Ok(Some(Head {
        line: format!(
            "{} {}",
            request.method.unwrap_or(""),
            request.path.unwrap_or("")
        ),
        authorization: header("authorization"),
        request_id: header("x-request-id").unwrap_or_default(),
        session: header("x-session-id"),
        length: length.unwrap_or(0),
        body_at,
    }))
}
