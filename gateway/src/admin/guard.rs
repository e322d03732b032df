//! Which requests of operators are let in.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use tandem_config::{AdminConfig, ApiKey};

use crate::api::error::ApiError;
use crate::auth::{is_same, shown_credential};
use crate::http::is_local;

/// Whether a request with these headers may ask for anything.
pub(super) fn admit(config: &AdminConfig, headers: &HeaderMap) -> Result<(), ApiError> {
    if config.key_hashes.is_empty() {
        return from_here(headers);
    }
    let shown = shown_credential(headers).map_err(|why| ApiError::unauthorized(why.to_string()))?;
    let none = || ApiError::unauthorized("This listener asks for the admin key.");
    let hash = ApiKey::hash_of(shown.ok_or_else(none)?);
    // All of them are compared, whichever it is.
    let matches = config
        .key_hashes
        .iter()
        .filter(|known| is_same(known, &hash));
    if matches.count() == 0 {
        return Err(ApiError::unauthorized("Incorrect admin key provided."));
    }
    Ok(())
}

/// Without a key the loopback is the guard, and a browser stands inside of it: a page of another site may
/// have it send requests here, by this address or by a name that its site resolves to it.
fn from_here(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST).unwrap_or_default();
    let own = is_local(host);
    let origin = text(ORIGIN).map(|origin| origin.split_once("://").map_or("?", |(_, host)| host));
    if own && origin.is_none_or(|origin| origin == host) {
        return Ok(());
    }
    let message = "Without an admin key this listener answers requests to its own address only.";
    Err(ApiError::forbidden("foreign_request", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn config(keys: &[&str]) -> AdminConfig {
        AdminConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            key_hashes: keys.iter().map(|key| ApiKey::hash_of(key)).collect(),
            tls: None,
        }
    }

    fn status(config: &AdminConfig, headers: &[(HeaderName, &str)]) -> u16 {
        let headers = headers.iter().map(|(n, v)| (n.clone(), v.parse().unwrap()));
        admit(config, &headers.collect()).map_or_else(|error| error.status.as_u16(), |()| 200)
    }

    #[test]
    fn any_of_the_keys_opens_and_nothing_else_does() {
        let config = config(&["old", "new"]);
        let bearer = |key: &str| {
            status(
                &config,
                &[(http::header::AUTHORIZATION, &format!("Bearer {key}"))],
            )
        };
        assert_eq!((bearer("old"), bearer("new")), (200, 200));
        assert_eq!((bearer("other"), bearer("old ")), (401, 200));
        assert_eq!(status(&config, &[(HOST, "127.0.0.1:1")]), 401);
    }

    #[test]
    fn without_a_key_a_browser_on_another_sites_page_gets_nothing() {
        let config = config(&[]);
        for host in ["127.0.0.1:8081", "[::1]:8081", "localhost:8081", "10.0.0.1"] {
            assert_eq!(status(&config, &[(HOST, host)]), 200, "{host}");
        }
        assert_eq!(status(&config, &[(HOST, "evil.example:8081")]), 403);
        assert_eq!(status(&config, &[]), 403);
        let from = |origin| status(&config, &[(HOST, "127.0.0.1:8081"), (ORIGIN, origin)]);
        assert_eq!(from("http://127.0.0.1:8081"), 200);
        assert_eq!((from("http://evil.example"), from("null")), (403, 403));
    }
}
