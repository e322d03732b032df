//! What an open stream costs: the room that a client takes by asking, and by not reading.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tandem_core::admission::AdmissionSettings;
use tandem_telemetry::Spans;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::{Layer, service_fn};

use super::body::RequestBody;
use super::bounds::BoundsLayer;
use super::connection::{Agreed, ConnectionLimits, serve};
use super::http1::{HeadLimits, Patience};
use super::pace::Pace;
use super::reply::Body;
use super::reply_headers::ReplyHeadersLayer;
use super::request_id::RequestIdLayer;
use super::room::BodyRoom;
use crate::metrics::Metrics;

const STREAMS: usize = 1000;
/// Of memory, for each.
const MOST: usize = 32 << 10;
/// Of a body that nobody reads.
const EVENT: &[u8] = &[b'x'; 250];
const MINUTE: Duration = Duration::from_secs(60);

const LIMITS: ConnectionLimits = ConnectionLimits {
    head: HeadLimits {
        bytes: 32 << 10,
        headers: 100,
        uri: 8 << 10,
    },
    patience: Patience {
        head: MINUTE,
        idle: MINUTE,
    },
    pace: Pace {
        grace: MINUTE,
        rate: 1000,
    },
    write_timeout: MINUTE,
    streams: 8,
};

fn bounds() -> BoundsLayer {
    BoundsLayer {
        limits: LIMITS.head,
        room: BodyRoom::new(1 << 20),
    }
}

/// Bytes that the process has in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}

/// So many events, and then none for ever.
async fn stream(_: Request<RequestBody>, events: usize) -> Result<Response<Body>, Infallible> {
    let mut sent = 0;
    let body = StreamBody::new(futures_util::stream::poll_fn(move |_| {
        if sent == events {
            return Poll::Pending;
        }
        sent += 1;
        Poll::Ready(Some(Ok::<_, io::Error>(Frame::data(Bytes::from_static(
            EVENT,
        )))))
    }));
    Ok(Response::new(body.boxed_unsync()))
}

/// Opens streams whose clients read the first `read` bytes and no more.
async fn open(events: usize, read: usize) -> (JoinSet<()>, Vec<DuplexStream>) {
    let service = service_fn(move |request| stream(request, events));
    let service = RequestIdLayer.layer(ReplyHeadersLayer::new(None).layer(bounds().layer(service)));
    let (_stop, stopping) = watch::channel(false);
    let metrics =
        Arc::new(Metrics::new(&AdmissionSettings::one_class(1), true, Spans::default()).unwrap());
    let (mut servers, mut clients) = (JoinSet::new(), Vec::new());
    for _ in 0..STREAMS {
        let (ours, mut theirs) = duplex(64);
        let (service, stopping) = (service.clone(), stopping.clone());
        let metrics = Arc::clone(&metrics);
        servers.spawn(async move {
            serve(ours, Agreed::Http1, service, LIMITS, &metrics, stopping).await;
        });
        let ask = b"POST / HTTP/1.1\r\nhost: g\r\naccept: */*\r\ncontent-length: 2\r\n\r\n{}";
        theirs.write_all(ask).await.unwrap();
        theirs.read_exact(&mut vec![0; read]).await.unwrap();
        clients.push(theirs);
    }
    (servers, clients)
}

async fn cost(events: usize, read: usize) -> usize {
    // What the first one costs is the process's.
    drop(open(1, 64).await);
    let before = resident();
    let held = open(events, read).await;
    let cost = resident().saturating_sub(before) / STREAMS;
    drop(held);
    cost
}

#[tokio::test]
async fn an_open_stream_costs_little_when_it_is_quiet() {
    let cost = cost(1, 300).await;
    assert!(cost < MOST, "{cost} bytes for each");
}

#[tokio::test]
async fn an_open_stream_costs_little_when_nobody_reads_it() {
    let cost = cost(usize::MAX, 64).await;
    assert!(cost < MOST, "{cost} bytes for each");
}
