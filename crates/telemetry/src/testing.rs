//! A collector for tests: it takes OTLP over HTTP and keeps what it was sent.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;
use tandem_wire::task::{Task, spawn};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Longer than any healthy machine takes.
const LONG: Duration = Duration::from_secs(30);

/// One span, as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// Hexadecimal.
    pub trace: String,
    /// Hexadecimal.
    pub id: String,
    /// Hexadecimal; empty for a root.
    pub parent: String,
    /// What goes with the trace.
    pub state: String,
    /// Its name.
    pub name: String,
    /// OTLP's number: 1 internal, 2 server, 3 client.
    pub kind: i32,
    /// Nanoseconds since 1970.
    pub time: (u64, u64),
    /// Its facts.
    pub attributes: BTreeMap<String, String>,
    /// Those of its process.
    pub resource: BTreeMap<String, String>,
    /// Whether it says that it failed.
    pub failed: bool,
}

/// What a collector was sent.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// All spans.
    pub spans: Vec<Received>,
    /// Of each histogram, by name and attributes, the latest count and sum.
    pub histograms: BTreeMap<(String, BTreeMap<String, String>), (u64, f64)>,
    /// The headers of each request, by path.
    pub headers: Vec<(String, HeaderMap)>,
    /// Requests that were turned away.
    pub refused: usize,
}

/// A running collector.
#[derive(Debug)]
pub struct Collector {
    /// Where it listens.
    pub address: SocketAddr,
    sent: watch::Sender<Sent>,
    answer: Arc<Mutex<StatusCode>>,
    _task: Task<()>,
}

impl Collector {
    /// Starts one at a free port.
    ///
    /// # Panics
    /// Where there is none.
    pub async fn start() -> Self {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(local).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let sent = watch::Sender::new(Sent::default());
        let answer = Arc::new(Mutex::new(StatusCode::OK));
        let serving = serve(listener, sent.clone(), Arc::clone(&answer));
        Self {
            address,
            sent,
            answer,
            _task: spawn("collector", serving),
        }
    }

    /// As `otlp_endpoint` names it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it answers so, and keeps what it was sent only where that is 200.
    pub fn answer(&self, status: u16) {
        let status = StatusCode::from_u16(status).expect("a status");
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// What it was sent so far.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.sent.borrow().clone()
    }

    /// Waits until what it was sent is `enough`.
    ///
    /// # Panics
    /// Where that takes too long.
    pub async fn wait_for(&self, what: &str, enough: impl Fn(&Sent) -> bool) -> Sent {
        let mut sent = self.sent.subscribe();
        let waiting = timeout(LONG, sent.wait_for(|sent| enough(sent)));
        match waiting.await {
            Ok(Ok(sent)) => sent.clone(),
            _ => panic!("not {what} in time: {:#?}", self.sent()),
        }
    }
}

async fn serve(listener: TcpListener, sent: watch::Sender<Sent>, answer: Arc<Mutex<StatusCode>>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (sent, answer) = (sent.clone(), Arc::clone(&answer));
        connections.spawn(async move {
            let service =
                service_fn(move |request| take(request, sent.clone(), Arc::clone(&answer)));
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

async fn take(
    request: Request<Incoming>,
    sent: watch::Sender<Sent>,
    answer: Arc<Mutex<StatusCode>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    let mut status = *answer.lock().unwrap_or_else(PoisonError::into_inner);
    sent.send_modify(|sent| {
        if status != StatusCode::OK {
            sent.refused += 1;
            return;
        }
        let path = head.uri.path().to_owned();
        let kept = match path.as_str() {
            "/v1/traces" => {
                ExportTraceServiceRequest::decode(body).map(|spans| sent.keep_spans(spans))
            }
            "/v1/metrics" => {
                ExportMetricsServiceRequest::decode(body).map(|figures| sent.keep_figures(figures))
            }
            _ => Ok(()),
        };
        if kept.is_err() {
            status = StatusCode::BAD_REQUEST;
        }
        sent.headers.push((path, head.headers));
    });
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    Ok(reply)
}

impl Sent {
    /// The spans of that name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Received> {
        self.spans.iter().filter(move |span| span.name == name)
    }

    fn keep_spans(&mut self, request: ExportTraceServiceRequest) {
        for of_resource in request.resource_spans {
            let resource = of_resource.resource.unwrap_or_default().attributes;
            let resource = attributes(&resource);
            for span in of_resource.scope_spans.into_iter().flat_map(|s| s.spans) {
                self.spans.push(Received {
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    state: span.trace_state,
                    name: span.name,
                    kind: span.kind,
                    time: (span.start_time_unix_nano, span.end_time_unix_nano),
                    attributes: attributes(&span.attributes),
                    resource: resource.clone(),
                    failed: span.status.is_some_and(|status| status.code == 2),
                });
            }
        }
    }

    fn keep_figures(&mut self, request: ExportMetricsServiceRequest) {
        let scopes = request
            .resource_metrics
            .into_iter()
            .flat_map(|r| r.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let Some(Data::Histogram(histogram)) = metric.data else {
                continue;
            };
            for point in histogram.data_points {
                let key = (metric.name.clone(), attributes(&point.attributes));
                let value = (point.count, point.sum.unwrap_or_default());
                self.histograms.insert(key, value);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => format!("{other:?}"),
    };
    all.iter()
        .map(|pair| {
            let value = pair.value.as_ref().and_then(|value| value.value.as_ref());
            (pair.key.clone(), value.map(text).unwrap_or_default())
        })
        .collect()
}
