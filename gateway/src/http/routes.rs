//! From a path to its reply.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tandem_telemetry::TraceContext;
use tokio::time::Instant;
use tower::Service;

use super::reply::{self, Body};
use super::request_id::RequestName;
use super::sse;
use super::target::Target;
use crate::api::ask::Endpoint;
use crate::api::error::{ApiError, RETRY_AFTER};
use crate::app::App;
use crate::caller::Standing;
use crate::generate::{self, Reply};
use crate::journal::Origin;
use crate::status;

/// Answers requests.
#[derive(Clone)]
pub(crate) struct Routes {
    pub(crate) app: Arc<App>,
}

impl Service<Request<Incoming>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let app = Arc::clone(&self.app);
        Box::pin(async move {
            Ok(route(&app, request)
                .await
                .unwrap_or_else(|error| reply::error(&error)))
        })
    }
}

async fn route(app: &Arc<App>, request: Request<Incoming>) -> Result<Response<Body>, ApiError> {
    let target = Target::of(request.uri().path());
    target.check(request.method()).map_err(ApiError::method)?;
    let ok = |value: Value| Ok(reply::json(StatusCode::OK, &value));
    match target {
        Target::Generate(endpoint) => generate(app, endpoint, request).await,
        Target::Models => ok(json!({"object": "list", "data": [model(app)]})),
        Target::Model(id) => {
            let model = model(app);
            if model["id"] == id {
                ok(model)
            } else {
                Err(ApiError::no_model(&id))
            }
        }
        Target::Health => ok(json!({"status": "ok"})),
        Target::Ready => Ok(ready(app)),
        Target::Metrics => {
            let view = app.door.view();
            let text = app.metrics.render(app.door.in_flight(), &view, &app.roster);
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            Ok(reply::text(StatusCode::OK, kind, text))
        }
        Target::Status => ok(status::page(app)),
        Target::Unknown => Err(ApiError::no_path(request.uri().path())),
    }
}

async fn generate(
    app: &Arc<App>,
    endpoint: Endpoint,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let deadline = Instant::now() + app.request_timeout;
    let origin = origin(app, &request);
    let settings = app.door.admission();
    let standing = Standing::of(request.headers(), request.extensions(), settings)?;
    let limit = app.max_body_bytes;
    let body = super::body::read(request, limit, deadline);
    match generate::answer(app, endpoint, origin, standing, body, deadline).await? {
        Reply::Whole(value) => Ok(reply::json(StatusCode::OK, &value)),
        Reply::Stream(events) => {
            let mut response = Response::new(sse::EventBody::new(events).boxed_unsync());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            Ok(response)
        }
    }
}

/// Its layers gave the request a name and a place in a trace.
fn origin(app: &App, request: &Request<Incoming>) -> Origin {
    let extensions = request.extensions();
    let begin = || TraceContext::begin(None, None, app.metrics.spans.sampler());
    Origin {
        name: extensions.get().map(RequestName::text).unwrap_or_default(),
        trace: extensions.get().cloned().unwrap_or_else(begin),
    }
}

fn model(app: &App) -> Value {
    let view = app.door.view();
    json!({
        "id": app.model_name(&view),
        "object": "model",
        "created": app.started,
        "owned_by": "tandem",
        "max_model_len": app.reading.context(&view),
    })
}

fn ready(app: &App) -> Response<Body> {
    let view = app.door.view();
    let stopping = app.is_stopping();
    if view.ready() && !stopping {
        return reply::json(StatusCode::OK, &json!({"ready": true, "missing": []}));
    }
    let value = json!({"ready": false, "missing": view.missing, "stopping": stopping});
    let mut response = reply::json(StatusCode::SERVICE_UNAVAILABLE, &value);
    let after = HeaderValue::from(RETRY_AFTER.as_secs());
    response
        .headers_mut()
        .insert(http::header::RETRY_AFTER, after);
    response
}
