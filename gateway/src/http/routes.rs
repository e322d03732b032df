//! From a path to its reply.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tandem_telemetry::TraceContext;
use tokio::time::{Instant, timeout_at};
use tower::Service;

use super::body::RequestBody;
use super::reply::{self, Body};
use super::request_id::RequestName;
use super::sse;
use super::target::{Target, TextTask};
use crate::api::error::{ApiError, RETRY_AFTER};
use crate::api::request::Endpoint;
use crate::api::{anthropic, vllm};
use crate::app::App;
use crate::caller::{Caller, Standing};
use crate::generate::{self, Reply};
use crate::journal::Origin;
use crate::status;

/// Answers requests.
#[derive(Clone)]
pub(crate) struct Routes {
    pub(crate) app: Arc<App>,
}

impl Service<Request<RequestBody>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let app = Arc::clone(&self.app);
        Box::pin(async move {
            Ok(route(&app, request)
                .await
                .unwrap_or_else(|error| reply::error(&error)))
        })
    }
}

async fn route(app: &Arc<App>, request: Request<RequestBody>) -> Result<Response<Body>, ApiError> {
    let target = Target::of(request.uri().path());
    target.check(request.method()).map_err(ApiError::method)?;
    let ok = |value: Value| Ok(reply::json(StatusCode::OK, &value));
    match target {
        Target::Generate(endpoint) => generate(app, endpoint, request).await,
        Target::Text(task) => text(app, task, request).await,
        Target::StoredResponse(id) => Err(ApiError::no_response(&id)),
        Target::Models => {
            let model = Some(model(app)).filter(|model| may_see(&request, model));
            ok(json!({"object": "list", "data": model.as_slice()}))
        }
        Target::Model(id) => {
            let model = model(app);
            if model["id"] == id && may_see(&request, &model) {
                ok(model)
            } else {
                Err(ApiError::no_model(&id))
            }
        }
        Target::Health => ok(json!({"status": "ok"})),
        Target::Ready => Ok(ready(app)),
        Target::Metrics => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            Ok(reply::text(StatusCode::OK, kind, app.figures()))
        }
        Target::Status => ok(status::page(app)),
        Target::NotServed => Err(ApiError::not_implemented(request.uri().path())),
        Target::Unknown => Err(ApiError::no_path(request.uri().path())),
    }
}

/// What the tokenizer alone can answer.
async fn text(
    app: &Arc<App>,
    task: TextTask,
    request: Request<RequestBody>,
) -> Result<Response<Body>, ApiError> {
    let deadline = Instant::now() + app.request_timeout();
    let view = app.door.view();
    let model = app.model_name(&view);
    if !caller(&request)?.may_use(model) {
        return Err(ApiError::model_not_allowed(model));
    }
    let body = super::body::read(request, app.max_body_bytes(), deadline).await?;
    let bytes = body.len();
    let reading = app
        .reading
        .with(&view, bytes, move |text, known| match task {
            TextTask::Tokenize => vllm::tokenize(&body, text, known),
            TextTask::Detokenize => vllm::detokenize(&body, text, known),
            TextTask::CountTokens => {
                let count = anthropic::request::count(&body, text, known)?;
                Ok(json!({"input_tokens": count}))
            }
        });
    let late = |_| ApiError::timeout(app.request_timeout().as_secs_f32());
    let value = timeout_at(deadline, reading).await.map_err(late)??;
    Ok(reply::json(StatusCode::OK, &value))
}

async fn generate(
    app: &Arc<App>,
    endpoint: Endpoint,
    request: Request<RequestBody>,
) -> Result<Response<Body>, ApiError> {
    let deadline = Instant::now() + app.request_timeout();
    let origin = origin(app, &request);
    let caller = caller(&request)?;
    let settings = app.door.admission();
    let live = app.live.get();
    let header = &live.policy.session_header;
    let standing = Standing::of(request.headers(), request.extensions(), &settings, header)?;
    let limit = app.max_body_bytes();
    let body = super::body::read(request, limit, deadline);
    let who = (origin, caller);
    match generate::answer(app, endpoint, who, standing, body, deadline).await? {
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
fn origin<A>(app: &App, request: &Request<A>) -> Origin {
    let extensions = request.extensions();
    let begin = || TraceContext::begin(None, None, app.metrics.spans.sampler());
    Origin {
        name: extensions.get().map(RequestName::text).unwrap_or_default(),
        trace: extensions.get().cloned().unwrap_or_else(begin),
    }
}

/// Who came in without the layer that names callers came in by no door.
fn caller<A>(request: &Request<A>) -> Result<Caller, ApiError> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| ApiError::internal("The request has no caller."))
}

/// Whether the caller may use the model.
fn may_see<A>(request: &Request<A>, model: &Value) -> bool {
    let caller = request.extensions().get::<Caller>();
    caller.is_some_and(|caller| caller.may_use(model["id"].as_str().unwrap_or_default()))
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

/// Whether the gateway is to be sent requests.
pub(crate) fn ready(app: &App) -> Response<Body> {
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
