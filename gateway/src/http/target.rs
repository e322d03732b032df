//! What a path means.

use http::Method;

use crate::api::ask::Endpoint;

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Generate(Endpoint),
    Models,
    Model(String),
    Health,
    Ready,
    Metrics,
    Status,
    Unknown,
}

impl Target {
    /// Reads a path.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/v1/chat/completions" => Self::Generate(Endpoint::Chat),
            "/v1/completions" => Self::Generate(Endpoint::Completions),
            "/v1/models" => Self::Models,
            "/health" => Self::Health,
            "/ready" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/tandem/status" => Self::Status,
            _ => match path.strip_prefix("/v1/models/") {
                Some(id) if !id.is_empty() => Self::Model(percent_decoded(id)),
                _ => Self::Unknown,
            },
        }
    }

    /// In metrics: few names, whatever clients ask for.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Generate(endpoint) => endpoint.as_str(),
            Self::Models | Self::Model(_) => "models",
            Self::Health => "health",
            Self::Ready => "ready",
            Self::Metrics => "metrics",
            Self::Status => "status",
            Self::Unknown => "unknown",
        }
    }

    /// `Err` with what is allowed where `method` is not.
    pub(crate) fn check(&self, method: &Method) -> Result<(), &'static str> {
        match self {
            Self::Unknown => Ok(()),
            Self::Generate(_) if method == Method::POST => Ok(()),
            Self::Generate(_) => Err("POST"),
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
    fn a_wrong_method_learns_the_right_one() {
        let chat = Target::of("/v1/chat/completions");
        assert_eq!(chat.check(&Method::GET), Err("POST"));
        assert_eq!(Target::Health.check(&Method::POST), Err("GET, HEAD"));
        assert_eq!(Target::Health.check(&Method::HEAD), Ok(()));
    }
}
