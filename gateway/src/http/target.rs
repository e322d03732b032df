//! What a path means.

use http::Method;

use crate::api::request::Endpoint;

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Generate(Endpoint),
    Text(TextTask),
    /// A response that was stored: none was.
    StoredResponse(String),
    Models,
    Model(String),
    Health,
    Ready,
    Metrics,
    Status,
    /// An API that Tandem has not.
    NotServed,
    Unknown,
}

/// What is asked of the tokenizer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTask {
    Tokenize,
    Detokenize,
    /// Anthropic's way to ask for a prompt's length.
    CountTokens,
}

/// Beginnings of the paths that OpenAI's API and vLLM have besides.
const NOT_SERVED: [&str; 22] = [
    "/v1/embeddings",
    "/v1/audio",
    "/v1/images",
    "/v1/videos",
    "/v1/moderations",
    "/v1/files",
    "/v1/uploads",
    "/v1/batches",
    "/v1/fine_tuning",
    "/v1/vector_stores",
    "/v1/assistants",
    "/v1/threads",
    "/v1/realtime",
    "/v1/conversations",
    "/v1/evals",
    "/v1/containers",
    "/v1/messages/batches",
    "/v1/rerank",
    "/v1/score",
    "/rerank",
    "/score",
    "/pooling",
];

impl Target {
    /// Reads a path.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/v1/chat/completions" => Self::Generate(Endpoint::Chat),
            "/v1/completions" => Self::Generate(Endpoint::Completions),
            "/v1/responses" => Self::Generate(Endpoint::Responses),
            "/v1/messages" => Self::Generate(Endpoint::Messages),
            "/v1/messages/count_tokens" => Self::Text(TextTask::CountTokens),
            "/tokenize" => Self::Text(TextTask::Tokenize),
            "/detokenize" => Self::Text(TextTask::Detokenize),
            "/v1/models" => Self::Models,
            "/health" => Self::Health,
            "/ready" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/tandem/status" => Self::Status,
            _ => Self::under(path),
        }
    }

    /// Paths that hold a name, or that are known not to be served.
    fn under(path: &str) -> Self {
        let named = |folder| {
            path.strip_prefix(folder)
                .filter(|name: &&str| !name.is_empty())
        };
        if let Some(id) = named("/v1/models/") {
            return Self::Model(percent_decoded(id));
        }
        if let Some(id) = named("/v1/responses/") {
            return Self::StoredResponse(percent_decoded(id));
        }
        let begins = |root: &str| {
            let rest = path.strip_prefix(root);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if NOT_SERVED.iter().any(|root| begins(root)) {
            return Self::NotServed;
        }
        Self::Unknown
    }

    /// Whether errors are told in Anthropic's form.
    pub(crate) fn is_anthropics(path: &str) -> bool {
        let rest = path.strip_prefix("/v1/messages");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// In metrics: few names, whatever clients ask for.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Generate(endpoint) => endpoint.as_str(),
            Self::Text(TextTask::Tokenize) => "tokenize",
            Self::Text(TextTask::Detokenize) => "detokenize",
            Self::Text(TextTask::CountTokens) => "count_tokens",
            Self::StoredResponse(_) => "responses",
            Self::Models | Self::Model(_) => "models",
            Self::Health => "health",
            Self::Ready => "ready",
            Self::Metrics => "metrics",
            Self::Status => "status",
            Self::NotServed | Self::Unknown => "unknown",
        }
    }

    /// `Err` with what is allowed where `method` is not.
    pub(crate) fn check(&self, method: &Method) -> Result<(), &'static str> {
        match self {
            Self::Unknown | Self::NotServed | Self::StoredResponse(_) => Ok(()),
            Self::Generate(_) | Self::Text(_) if method == Method::POST => Ok(()),
            Self::Generate(_) | Self::Text(_) => Err("POST"),
            _ if method == Method::GET || method == Method::HEAD => Ok(()),
            _ => Err("GET, HEAD"),
        }
    }
}

/// Model names may hold any character; what is no escape stays as it is.
pub(crate) fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 3;
            }
            (byte, ..) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_may_hold_slashes_and_escapes() {
        assert_eq!(
            Target::of("/v1/models/a%2Fb/c%"),
            Target::Model("a/b/c%".into())
        );
        assert_eq!(Target::of("/v1/models/"), Target::Unknown);
        assert_eq!(Target::of("/v1/models/%C3%A9"), Target::Model("é".into()));
        assert_eq!(Target::of("/v1/models/%4é"), Target::Model("%4é".into()));
    }

    #[test]
    fn what_others_serve_is_told_apart_from_what_nobody_does() {
        for path in ["/v1/embeddings", "/v1/audio/speech", "/rerank"] {
            assert_eq!(Target::of(path), Target::NotServed, "{path}");
        }
        for path in ["/v1/embeddingses", "/v1", "/v1/responses/"] {
            assert_eq!(Target::of(path), Target::Unknown, "{path}");
        }
        assert_eq!(
            Target::of("/v1/responses/r"),
            Target::StoredResponse("r".into())
        );
        assert!(Target::is_anthropics("/v1/messages/x") && !Target::is_anthropics("/v1/messagesx"));
    }

    #[test]
    fn a_wrong_method_learns_the_right_one() {
        let chat = Target::of("/v1/chat/completions");
        assert_eq!(chat.check(&Method::GET), Err("POST"));
        assert_eq!(Target::Health.check(&Method::POST), Err("GET, HEAD"));
        assert_eq!(Target::Health.check(&Method::HEAD), Ok(()));
    }
}
