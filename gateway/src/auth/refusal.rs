//! Why someone does not come in, and what they are told.

use http::Response;
use http::header::{HeaderValue, WWW_AUTHENTICATE};

use crate::api::error::ApiError;
use crate::http::reply::{self, Body};

/// What is wrong with a key. Says nothing of which keys there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// There is none.
    #[error(
        "You did not provide an API key. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
    )]
    Missing,
    /// The headers make no sense.
    #[error(
        "The API key cannot be read. Send one key as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
    )]
    Malformed,
    /// No such key is known.
    #[error("Incorrect API key provided.")]
    Unknown,
    /// It was one.
    #[error("The API key has expired.")]
    Expired,
    /// A token that is not taken.
    #[error("The token is not valid: {0}.")]
    Token(&'static str),
}

impl Refused {
    /// 401.
    pub(crate) fn reply(&self) -> Response<Body> {
        let mut reply = reply::error(&ApiError::unauthorized(self.to_string()));
        // RFC 6750, section 3: a reason only where something was shown.
        let challenge = match self {
            Self::Missing => "Bearer realm=\"tandem\"",
            _ => "Bearer realm=\"tandem\", error=\"invalid_token\"",
        };
        reply
            .headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        reply
    }
}
