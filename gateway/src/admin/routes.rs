//! From an operator's path to its reply.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tandem_core::WorkerId;
use tokio::time::timeout;

use super::{explain, guard, page};
use crate::api::error::{ApiError, RETRY_AFTER};
use crate::app::App;
use crate::door::{Allowed, Change};
use crate::http::reply::{self, Body};
use crate::http::{percent_decoded, ready};
use crate::status;

/// Bytes of the longest body.
const LONGEST: usize = 64 << 10;
/// Ended requests that are told of at once.
const RECENT: usize = 50;
/// For a body to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers one request.
pub(super) async fn answer(app: &App, request: Request<Incoming>) -> Response<Body> {
    let config = app.live.get();
    if let Some(file) = page::file(request.method(), request.uri().path()) {
        return file.unwrap_or_else(|error| reply::error(&error));
    }
    let admitted = match &config.admin {
        // Probes, which learn no more than whether the gateway lives, and whether it is to be sent requests.
        _ if matches!(request.uri().path(), "/health" | "/ready") => Ok(()),
        Some(admin) => guard::admit(admin, request.headers()),
        // A reload took the table out of the file: the listener stays until a restart, and lets nobody in.
        None => Err(ApiError::unauthorized(
            "[admin] is not configured any more.",
        )),
    };
    let answered = match admitted {
        Ok(()) => route(app, request).await,
        Err(error) => Err(error),
    };
    answered.unwrap_or_else(|error| reply::error(&error))
}

async fn route(app: &App, request: Request<Incoming>) -> Result<Response<Body>, ApiError> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let get = |value: Value| allow(&head.method, Method::GET, value);
    let value = match parts[..] {
        ["health"] => get(json!({"status": "ok"}))?,
        ["ready"] => return Ok(ready(app)),
        ["metrics"] => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            return Ok(reply::text(StatusCode::OK, kind, app.figures()));
        }
        ["tandem", "status"] => get(status::page(app))?,
        ["admin", "workers"] => get(json!({"workers": status::workers(app)}))?,
        ["admin", "workers", worker] => get(one(app, &id(worker)?)?)?,
        ["admin", "workers", worker, what] => {
            let change = change(&head.method, what, body).await?;
            allow_worker(
                app,
                id(worker)?,
                change.ok_or_else(|| ApiError::no_path(path))?,
            )
            .await?
        }
        ["admin", "requests"] => get(json!({"requests": app.requests.json()}))?,
        ["admin", "recent"] => get(json!({"requests": app.requests.recent(RECENT)}))?,
        ["admin", "leases"] => get(json!({"leases": app.requests.leases()}))?,
        ["admin", "policy"] => get(policy(app)?)?,
        ["admin", "config"] => get(config(app)?)?,
        ["admin", "explain", request] => {
            let name = percent_decoded(request);
            get(explain::request(app, &name).await?)?
        }
        ["admin", "choose"] => {
            let query = head.uri.query().unwrap_or_default();
            get(explain::choice(app, query).await?)?
        }
        ["admin", "reload"] => {
            allow(&head.method, Method::POST, Value::Null)?;
            return reload(app).await;
        }
        ["admin", "drain"] => {
            let value = json!({"stopping": true, "in_flight": app.door.in_flight()});
            let value = allow(&head.method, Method::POST, value)?;
            app.stop.notify_one();
            value
        }
        _ => return Err(ApiError::no_path(path)),
    };
    Ok(reply::json(StatusCode::OK, &value))
}

/// The value, where `method` is the right one.
fn allow(method: &Method, wanted: Method, value: Value) -> Result<Value, ApiError> {
    match method {
        method if *method == wanted => Ok(value),
        _ if wanted == Method::POST => Err(ApiError::method("POST")),
        _ if wanted == Method::PUT => Err(ApiError::method("PUT")),
        _ => Err(ApiError::method("GET")),
    }
}

fn id(text: &str) -> Result<WorkerId, ApiError> {
    let name = percent_decoded(text);
    WorkerId::new(name)
        .map_err(|error| ApiError::not_found("worker_not_found", format!("{error}.")))
}

fn unknown(worker: &WorkerId) -> ApiError {
    let message = format!("No worker {worker} is connected to this gateway.");
    ApiError::not_found("worker_not_found", message)
}

fn one(app: &App, worker: &WorkerId) -> Result<Value, ApiError> {
    let mut rows = status::workers(app).into_iter();
    let row = rows.find(|row| row["id"] == worker.as_str());
    row.ok_or_else(|| unknown(worker))
}

/// What is to be done with a worker; `None` where the path has no such verb.
async fn change(method: &Method, verb: &str, body: Incoming) -> Result<Option<Change>, ApiError> {
    let drained = match verb {
        "drain" => true,
        "enable" => false,
        "weight" => {
            allow(method, Method::PUT, Value::Null)?;
            return Ok(Some(Change::Weight(weight(&read(body).await?)?)));
        }
        _ => return Ok(None),
    };
    allow(method, Method::POST, Value::Null)?;
    Ok(Some(Change::Drained(drained)))
}

fn weight(body: &Value) -> Result<u32, ApiError> {
    let Some(object) = body.as_object() else {
        return Err(ApiError::kind_of(
            "body",
            "an object such as {\"weight\": 50}",
            body,
        ));
    };
    if let Some(stranger) = object.keys().find(|key| *key != "weight") {
        return Err(ApiError::unknown(stranger.as_str()));
    }
    let weight = object
        .get("weight")
        .ok_or_else(|| ApiError::missing("weight"))?;
    let fits = |weight: &u32| (1..=Allowed::MOST).contains(weight);
    let number = weight
        .as_u64()
        .and_then(|n| u32::try_from(n).ok())
        .filter(fits);
    number.ok_or_else(|| {
        let most = Allowed::MOST;
        let message = format!(
            "Invalid 'weight': want a whole number from 1 to {most}, in percent, found {weight}. To give a \
             worker nothing at all, drain it."
        );
        ApiError::value("weight", message)
    })
}

async fn read(body: Incoming) -> Result<Value, ApiError> {
    let collecting = Limited::new(body, LONGEST).collect();
    let collected = match timeout(PATIENCE, collecting).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) => return Err(ApiError::too_large(LONGEST as u64)),
        Err(_) => return Err(ApiError::body("The body did not come in time.")),
    };
    serde_json::from_slice(&collected)
        .map_err(|error| ApiError::bad("invalid_json", format!("The body is no JSON: {error}.")))
}

async fn allow_worker(app: &App, worker: WorkerId, change: Change) -> Result<Value, ApiError> {
    let stopping = |_| ApiError::busy("stopping", "The gateway is stopping.", RETRY_AFTER);
    let allowed = app
        .door
        .allow(worker.clone(), change)
        .await
        .map_err(stopping)?;
    let Allowed { drained, weight } = allowed.ok_or_else(|| unknown(&worker))?;
    tracing::info!(%worker, drained, weight, "worker changed by an operator");
    Ok(json!({
        "worker": worker.as_str(),
        "drained": drained,
        "weight": weight,
        "requests": app.requests.on(&worker),
    }))
}

fn no_file() -> ApiError {
    let message = "The gateway was started without a configuration file.";
    ApiError::not_found("no_configuration_file", message)
}

fn policy(app: &App) -> Result<Value, ApiError> {
    let report = app.reloads.as_ref().ok_or_else(no_file)?.report();
    Ok(json!({"hash": report.hash(), "policy": report.tables()["policy"]}))
}

fn config(app: &App) -> Result<Value, ApiError> {
    let report = app.reloads.as_ref().ok_or_else(no_file)?.report();
    let mut value = report.json();
    value["config"] = report.tables();
    Ok(value)
}

async fn reload(app: &App) -> Result<Response<Body>, ApiError> {
    let reloads = app.reloads.as_ref().ok_or_else(no_file)?;
    let stopping = || ApiError::busy("stopping", "The gateway is stopping.", RETRY_AFTER);
    let outcome = reloads.now().await.ok_or_else(stopping)?;
    if let crate::reload::Outcome::Failed { problems } = &outcome {
        let message = format!("Nothing was changed: {}.", problems.join("; "));
        return Err(ApiError::bad("invalid_configuration", message));
    }
    let mut value = outcome.json();
    value["hash"] = json!(reloads.report().hash());
    Ok(reply::json(StatusCode::OK, &value))
}
