//! Where a server is, and how to ask it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tandem_trust::TrustError;

/// A server, and how to ask it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it is.
    pub url: Url,
    /// API key, shown as a bearer's.
    pub key: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// HTTP/2, with TLS by ALPN and else from the first byte.
    pub http2: bool,
    /// Certificates, in PEM, of the authorities that are trusted instead of the system's, or a server's own.
    pub ca: Option<PathBuf>,
}

/// What is wrong with a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// No address for the host.
    #[error("{host}: {reason}")]
    Unknown {
        /// The host.
        host: String,
        /// In words.
        reason: String,
    },
    /// A header that HTTP cannot say.
    #[error("header {0:?}: its name or its value cannot stand in an HTTP request")]
    Header(String),
    /// The authorities' file.
    #[error(transparent)]
    Authorities(#[from] TrustError),
}

/// `http://HOST[:PORT][/BASE]` or `https://...`; a base of `/v1` is implied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    secure: bool,
    host: String,
    port: u16,
    base: String,
}

/// What is no URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: want a URL such as http://127.0.0.1:8080 or https://api.example/v1")]
pub struct UrlError(String);

impl Url {
    /// Host, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) const fn is_secure(&self) -> bool {
        self.secure
    }

    pub(crate) const fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What stands before `/models` in a path.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }
}

impl Url {
    /// A URL of any path, taken as it is; `path` where it has none.
    pub(crate) fn exact(text: &str, path: &str) -> Option<Self> {
        let url = split(text)?;
        let base = match url.base.as_str() {
            "" | "/" => path.to_owned(),
            own => own.to_owned(),
        };
        Some(Self { base, ..url })
    }
}

/// Its parts, the base as it stands there; `None` for what is no URL.
fn split(text: &str) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let (secure, default_port) = match scheme {
        "http" => (false, 80),
        "https" => (true, 443),
        _ => return None,
    };
    let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let digits = |port: &&str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if digits(&port) => (host, port.parse().ok()?),
        Some((_, _)) if !authority.ends_with(']') => return None,
        _ => (authority, default_port),
    };
    let is_strange = |c: char| c.is_whitespace() || c.is_control() || "?#@".contains(c);
    if host.is_empty() || port == 0 || rest.contains(is_strange) {
        return None;
    }
    Some(Url {
        secure,
        host: host.to_owned(),
        port,
        base: base.to_owned(),
    })
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = split(text).ok_or_else(|| UrlError(text.to_owned()))?;
        let base = url.base.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        Ok(Self {
            base: format!("{base}/v1"),
            ..url
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority(), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_and_without_port_and_base() {
        for (text, means) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
            ("http://h/", "http://h:80/v1"),
            ("https://api.example/v1/", "https://api.example:443/v1"),
            (
                "https://api.example/openai/v1",
                "https://api.example:443/openai/v1",
            ),
            ("http://[::1]:5", "http://[::1]:5/v1"),
            ("http://[::1]", "http://[::1]:80/v1"),
        ] {
            assert_eq!(text.parse::<Url>().unwrap().to_string(), means);
        }
        assert_eq!("http://[::1]:5".parse::<Url>().unwrap().host(), "::1");
        let exact = |text| Url::exact(text, "/metrics").map(|url| url.to_string());
        assert_eq!(exact("http://h:1").unwrap(), "http://h:1/metrics");
        assert_eq!(exact("http://h:1/").unwrap(), "http://h:1/metrics");
        assert_eq!(exact("http://h:1/a/b").unwrap(), "http://h:1/a/b");
        assert_eq!(exact("h:1/a"), None);
        for wrong in [
            "",
            "h:80",
            "ftp://h",
            "http://",
            "http://h:0",
            "http://h:x",
            "http://u@h",
            "http://h/?q",
            "http://h:70000",
        ] {
            assert!(wrong.parse::<Url>().is_err(), "{wrong}");
        }
    }
}
