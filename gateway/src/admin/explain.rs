//! Why requests went where they went, and where the next one would go.

use serde_json::{Value, json};
use tandem_core::RequestId;
use tandem_core::pairing::{RequestFacts, session};

use crate::api::error::{ApiError, RETRY_AFTER};
use crate::app::App;
use crate::door::{Closed, Question};
use crate::http::percent_decoded;
use crate::requests::why;

/// Tokens of the answer where neither the question nor the configuration says.
const NEW_TOKENS: u32 = 256;

/// A request's way, and for one in flight what the policy would choose for it now.
pub(super) async fn request(app: &App, name: &str) -> Result<Value, ApiError> {
    let now = match app.requests.in_flight(name) {
        Some(request) => app.door.explain(Question::Request(request)).await,
        None => Ok(None),
    };
    let now = now.map_err(stopping)?;
    let Some(mut value) = app.requests.explain(name) else {
        let shown: String = name.chars().take(128).collect();
        let message = format!("No request {shown} is in flight or among the last that ended.");
        return Err(ApiError::not_found("request_not_found", message));
    };
    value["now"] = now.as_ref().map_or(Value::Null, why::answer);
    Ok(value)
}

/// What the policy would choose now for a request of so many tokens of which nobody holds any.
pub(super) async fn choice(app: &App, query: &str) -> Result<Value, ApiError> {
    let facts = facts(app, query)?;
    let asked = json!({
        "prompt_tokens": facts.prompt_tokens,
        "new_tokens": facts.new_tokens,
        "class": app.door.admission().class(facts.class).name,
    });
    let answer = app.door.explain(Question::Facts(Box::new(facts))).await;
    let answer = answer.map_err(stopping)?;
    let mut value = answer.as_ref().map_or(Value::Null, why::answer);
    value["asked"] = asked;
    Ok(value)
}

fn facts(app: &App, query: &str) -> Result<RequestFacts, ApiError> {
    let settings = app.door.admission();
    let default = app.live.get().default_max_tokens.unwrap_or(NEW_TOKENS);
    let mut facts = RequestFacts::new(RequestId(rand::random()), 1, default);
    facts.class = settings.default_class;
    facts.arrived = app.door.now();
    let mut prompt = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decoded(value);
        match key {
            "prompt_tokens" => prompt = Some(tokens("prompt_tokens", &value)?),
            "new_tokens" => facts.new_tokens = tokens("new_tokens", &value)?,
            "class" => {
                facts.class = settings.class_named(&value).ok_or_else(|| {
                    let names = settings.nameable().map(|(_, class)| class.name.as_str());
                    let names: Vec<&str> = names.collect();
                    let message = format!(
                        "Invalid 'class': there is no class {value:?}, only {}.",
                        names.join(", ")
                    );
                    ApiError::value("class", message)
                })?;
            }
            "session" => facts.affinity = Some(session(&value)),
            other => return Err(ApiError::unknown(other)),
        }
    }
    facts.prompt_tokens = prompt.ok_or_else(|| ApiError::missing("prompt_tokens"))?;
    Ok(facts)
}

fn tokens(key: &'static str, value: &str) -> Result<u32, ApiError> {
    let most = 1 << 24;
    let number = value.parse().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| {
        let shown: String = value.chars().take(32).collect();
        let message =
            format!("Invalid '{key}': want a whole number from 1 to {most}, found {shown:?}.");
        ApiError::value(key, message)
    })
}

fn stopping(_: Closed) -> ApiError {
    ApiError::busy("stopping", "The gateway is stopping.", RETRY_AFTER)
}
