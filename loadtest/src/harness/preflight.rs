//! A look at the server before a test: is it there, does it take the key, does it have the model, and what
//! token counts does it offer.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use tokio::time::timeout;

use crate::body::{Api, Asking, Conversation, UsageAsked};
use crate::drive::error_message;
use crate::endpoint::{Endpoint, HttpError, TargetError};
use crate::workload::Prompt;

/// Why a test cannot start, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No address, or a wrong setting.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No threads.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
    /// Nobody answers.
    #[error("no server at {url}: {reason}. Is it running, and is --url right?")]
    Unreachable {
        /// Where.
        url: String,
        /// In words.
        reason: String,
    },
    /// The key is not taken.
    #[error(
        "{url} does not take the key ({status}: {message}). Give one with --key, or in $OPENAI_API_KEY"
    )]
    Key {
        /// Where.
        url: String,
        /// 401 or 403.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// The model is not there.
    #[error("{url} has no model {model:?}{}", choices(.known))]
    Model {
        /// Where.
        url: String,
        /// The one that was asked for.
        model: String,
        /// Those that it has, where it says so.
        known: Vec<String>,
    },
    /// Several models, or none that is known.
    #[error("give --model{}", choices(.known))]
    Which {
        /// Those that the server has.
        known: Vec<String>,
    },
    /// The first request failed.
    #[error("{url} refused the first request ({status}: {message})")]
    Refused {
        /// Where.
        url: String,
        /// The status.
        status: u16,
        /// The server's words.
        message: String,
    },
}

fn choices(known: &[String]) -> String {
    match known {
        [] => String::new(),
        known => format!(": it has {}", known.join(", ")),
    }
}

/// What is known of the server.
pub(super) struct Found {
    pub(super) model: String,
    pub(super) usage: UsageAsked,
    pub(super) max_context: Option<u32>,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    max_model_len: Option<u32>,
}

/// An answer to the look itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first token of a model that is still warming up.
const LONG_PATIENCE: Duration = Duration::from_secs(120);
const LONGEST_BODY: usize = 8 << 20;

/// Looks.
pub(super) async fn look(
    endpoint: &Endpoint,
    api: Api,
    model: Option<String>,
) -> Result<Found, StartError> {
    let known = models(endpoint).await?;
    let ids = || {
        known
            .iter()
            .map(|model| model.id.clone())
            .collect::<Vec<_>>()
    };
    let model = match (model, known.as_slice()) {
        (Some(model), []) => model,
        (Some(model), known) if known.iter().any(|one| one.id == model) => model,
        (Some(model), _) => {
            return Err(StartError::Model {
                url: url(endpoint),
                model,
                known: ids(),
            });
        }
        (None, [only]) => only.id.clone(),
        (None, _) => return Err(StartError::Which { known: ids() }),
    };
    let usage = probe(endpoint, api, &model).await?;
    let max_context = known
        .iter()
        .find(|one| one.id == model)
        .and_then(|one| one.max_model_len);
    Ok(Found {
        model,
        usage,
        max_context,
    })
}

fn url(endpoint: &Endpoint) -> String {
    endpoint.target().url.to_string()
}

/// The server's models; none where it has no such list.
async fn models(endpoint: &Endpoint) -> Result<Vec<Model>, StartError> {
    let (status, body) = ask(endpoint, Method::GET, "/models", Bytes::new(), PATIENCE).await?;
    check_key(endpoint, status, &body)?;
    if status == StatusCode::NOT_FOUND || status == StatusCode::METHOD_NOT_ALLOWED {
        return Ok(Vec::new());
    }
    let refused = |message: String| StartError::Refused {
        url: format!("{}/models", url(endpoint)),
        status: status.as_u16(),
        message,
    };
    if !status.is_success() {
        return Err(refused(error_message(&body)));
    }
    let models: Models = serde_json::from_slice(&body)
        .map_err(|error| refused(format!("no list of models: {error}")))?;
    Ok(models.data)
}

/// Sends a tiny request, with as much usage asked for as the server takes.
async fn probe(endpoint: &Endpoint, api: Api, model: &str) -> Result<UsageAsked, StartError> {
    let mut first = None;
    for usage in [UsageAsked::Every, UsageAsked::Last, UsageAsked::Never] {
        let asking = Asking {
            api,
            model: model.to_owned(),
            usage,
            ignore_eos: false,
            extra: serde_json::Map::new(),
        };
        let body = Conversation::of(api, Prompt::Text("Hello".to_owned())).body(&asking, 1);
        let (status, body) = ask(endpoint, Method::POST, api.path(), body, LONG_PATIENCE).await?;
        check_key(endpoint, status, &body)?;
        let message = error_message(&body);
        match status {
            status if status.is_success() => return Ok(usage),
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
                first.get_or_insert((status, message));
            }
            StatusCode::NOT_FOUND if message.contains(model) => {
                let model = model.to_owned();
                return Err(StartError::Model {
                    url: url(endpoint),
                    model,
                    known: Vec::new(),
                });
            }
            status => return Err(refused(endpoint, api, status, message)),
        }
    }
    let (status, message) = first.unwrap_or((StatusCode::BAD_REQUEST, String::new()));
    Err(refused(endpoint, api, status, message))
}

fn refused(endpoint: &Endpoint, api: Api, status: StatusCode, message: String) -> StartError {
    StartError::Refused {
        url: format!("{}{}", url(endpoint), api.path()),
        status: status.as_u16(),
        message,
    }
}

fn check_key(endpoint: &Endpoint, status: StatusCode, body: &[u8]) -> Result<(), StartError> {
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
        return Err(StartError::Key {
            url: url(endpoint),
            status: status.as_u16(),
            message: error_message(body),
        });
    }
    Ok(())
}

async fn ask(
    endpoint: &Endpoint,
    method: Method,
    path: &str,
    body: Bytes,
    patience: Duration,
) -> Result<(StatusCode, Vec<u8>), StartError> {
    let unreachable = |reason: String| StartError::Unreachable {
        url: url(endpoint),
        reason,
    };
    let whole = async {
        let mut reply = endpoint.ask(method, path, body, &HeaderMap::new()).await?;
        let bytes = reply.rest(LONGEST_BODY).await?;
        let status = reply.status;
        endpoint.keep(reply);
        Ok::<_, HttpError>((status, bytes))
    };
    match timeout(patience, whole).await {
        Ok(answered) => answered.map_err(|error| unreachable(error.to_string())),
        Err(_) => Err(unreachable(format!(
            "no answer within {} s",
            patience.as_secs()
        ))),
    }
}
