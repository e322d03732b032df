//! Connections that are served from memory.

use std::io;
use std::task::{Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tandem_core::admission::AdmissionSettings;
use tandem_telemetry::Spans;
use tandem_wire::task::{Task, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use tower::service_fn;

use super::*;
use crate::http::body::RequestBody;
use crate::http::reply;

const MINUTE: Duration = Duration::from_secs(60);

const LIMITS: ConnectionLimits = ConnectionLimits {
    head: HeadLimits {
        bytes: 4096,
        headers: 20,
        uri: 200,
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

/// Answers `/panic` with a body that panics after its first piece, when `gate` says so, and everything
/// else at once.
async fn answer(
    request: Request<RequestBody>,
    gate: Arc<Notify>,
) -> Result<Response<Body>, Infallible> {
    if request.uri().path() != "/panic" {
        return Ok(reply::json(StatusCode::OK, &serde_json::Value::Null));
    }
    let mut piece = Some(Frame::data(Bytes::from_static(b"data: 1\n\n")));
    let mut gate = Box::pin(async move { gate.notified().await });
    let body = StreamBody::new(futures_util::stream::poll_fn(move |context| {
        if let Some(piece) = piece.take() {
            return Poll::Ready(Some(Ok::<_, io::Error>(piece)));
        }
        ready!(gate.as_mut().poll(context));
        panic!("as this test wants it");
    }));
    Ok(Response::new(body.boxed_unsync()))
}

/// A client's end, the server, and what stops it.
fn connect(gate: &Arc<Notify>) -> (DuplexStream, Task<()>, watch::Sender<bool>) {
    let gate = Arc::clone(gate);
    let (ours, theirs) = duplex(4096);
    let (stop, stopping) = watch::channel(false);
    let server = spawn("server", async move {
        let metrics =
            Metrics::new(&AdmissionSettings::one_class(1), true, Spans::default()).unwrap();
        let service = service_fn(move |request| answer(request, Arc::clone(&gate)));
        super::serve(ours, Agreed::Nothing, service, LIMITS, &metrics, stopping).await;
    });
    (theirs, server, stop)
}

#[tokio::test]
async fn an_answer_that_panics_breaks_its_connection_off_in_http_1() {
    let gate = Arc::new(Notify::new());
    let (mut client, server, _stop) = connect(&gate);
    client
        .write_all(b"GET /panic HTTP/1.1\r\nhost: g\r\n\r\n")
        .await
        .unwrap();
    let mut reply = Vec::new();
    while !reply.ends_with(b"9\r\ndata: 1\n\n\r\n") {
        assert!(client.read_buf(&mut reply).await.unwrap() > 0);
    }
    gate.notify_one();
    // Ends without the last chunk, so that nobody takes it for whole.
    assert_eq!(client.read_buf(&mut reply).await.unwrap(), 0);
    assert_eq!(server.join().await, Some(()));
}

#[tokio::test]
async fn an_answer_that_panics_ends_its_own_stream_and_no_other_in_http_2() {
    let gate = Arc::new(Notify::new());
    let (client, _server, _stop) = connect(&gate);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client))
            .await
            .unwrap();
    let _connection = spawn("client", connection);
    let mut ask = |path: &str| {
        let request = Request::get(format!("http://g{path}")).body(String::new());
        sender.send_request(request.unwrap())
    };
    let (first, panics, last) = tokio::join!(ask("/"), ask("/panic"), ask("/"));
    let panics = panics.unwrap();
    gate.notify_one();
    let broken = panics.into_body().collect().await;
    assert!(broken.is_err());
    for reply in [first, last, ask("/").await] {
        let whole = reply.unwrap().into_body().collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "null");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_uses_ends_when_it_is_asked_to() {
    for bytes in [&b""[..], b"PRI", b"GET / HTTP/1.1\r\nhost: g\r\n\r\n"] {
        let (mut client, server, stop) = connect(&Arc::new(Notify::new()));
        client.write_all(bytes).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        let ended = timeout(Duration::from_secs(2), server.join()).await;
        assert_eq!(ended, Ok(Some(())), "{bytes:?}");
    }
}
