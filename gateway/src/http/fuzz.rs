//! Any bytes on a connection: replies, and an end in bounded time. Never a panic.

use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use serde_json::json;
use tandem_core::admission::AdmissionSettings;
use tandem_telemetry::Spans;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tower::{Layer, service_fn};

use super::body::{self, RequestBody};
use super::bounds::BoundsLayer;
use super::connection::{Agreed, ConnectionLimits, serve};
use super::http1::{HeadLimits, Patience};
use super::pace::Pace;
use super::reply::{self, Body};
use super::room::BodyRoom;
use crate::metrics::Metrics;

const SECOND: Duration = Duration::from_secs(1);
/// Of virtual time. HTTP/2 asks a silent client whether it is there.
const LONGEST: Duration = Duration::from_secs(120);

const LIMITS: ConnectionLimits = ConnectionLimits {
    head: HeadLimits {
        bytes: 2048,
        headers: 20,
        uri: 200,
    },
    patience: Patience {
        head: SECOND,
        idle: SECOND,
    },
    pace: Pace {
        grace: SECOND,
        rate: 1000,
    },
    write_timeout: SECOND,
    streams: 8,
};

static METRICS: OnceLock<Metrics> = OnceLock::new();

const REQUESTS: [&[u8]; 4] = [
    b"GET /health HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\n\r\nHEAD /a?b=c HTTP/1.0\r\n\r\n",
    b"POST /v1 HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n{\"a\":\
      GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"POST /v1 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n\
      5;a=b\r\n\x1f\x8b\x08\0\0\r\nA\r\n0123456789\r\n0\r\nx-sum: 1\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x10\x01\x05\0\0\0\x01\
      \x82\x86\x41\x01g\x04\x07/health\0\0\0\0\x04\x08\0\0\0\0\0\0\0\x01\0",
];

fn bounds() -> BoundsLayer {
    BoundsLayer {
        limits: LIMITS.head,
        room: BodyRoom::new(1 << 20),
    }
}

/// Reads a body as the gateway does, and says that it did.
async fn answer(request: Request<RequestBody>) -> Result<Response<Body>, Infallible> {
    let deadline = Instant::now() + 30 * SECOND;
    Ok(match body::read(request, 4096, deadline).await {
        Ok(body) => reply::json(StatusCode::OK, &json!({"read": body.len()})),
        Err(error) => reply::error(&error),
    })
}

/// What a client gets for these bytes.
fn connect(bytes: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (ours, theirs) = duplex(512);
        let (mut reader, mut writer) = tokio::io::split(theirs);
        let metrics = METRICS.get_or_init(|| {
            Metrics::new(&AdmissionSettings::one_class(1), true, Spans::default()).unwrap()
        });
        let (_stop, stopping) = watch::channel(false);
        let service = bounds().layer(service_fn(answer));
        let serving = serve(ours, Agreed::Nothing, service, LIMITS, metrics, stopping);
        let talking = async {
            let mut replies = Vec::new();
            let writing = async {
                // Fails where the connection has ended.
                let _ = writer.write_all(bytes).await;
            };
            let (_, read) = tokio::join!(writing, reader.read_to_end(&mut replies));
            read.unwrap();
            replies
        };
        let both = async { tokio::join!(serving, talking).1 };
        timeout(LONGEST, both).await.expect("an end")
    })
}

#[test]
fn connections_of_any_bytes() {
    bolero::check!().for_each(|bytes: &[u8]| {
        connect(bytes);
    });
}

#[test]
fn requests_with_a_few_other_bytes() {
    for (request, replies) in REQUESTS.iter().zip([2, 3, 2]) {
        let text = String::from_utf8(connect(request)).unwrap();
        assert_eq!(text.matches("HTTP/1.").count(), replies, "{text}");
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u16, u8)>)>()
        .for_each(|(which, edits)| {
            let mut bytes = REQUESTS[usize::from(*which) % REQUESTS.len()].to_vec();
            for (at, byte) in edits.iter().take(5) {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
            }
            let replies = connect(&bytes);
            let http2 = bytes.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
            assert!(
                http2 || replies.is_empty() || replies.starts_with(b"HTTP/1."),
                "{}",
                String::from_utf8_lossy(&replies)
            );
        });
}
