//! `[telemetry]`: metrics' names, and the collector that traces and figures are sent to.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use toml::de::DeValue;

use crate::section::{Section, text};

/// What a process tells of its requests, and to whom.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryConfig {
    /// Whether `/metrics` shows vLLM's names beside Tandem's. Default yes.
    pub vllm_names: bool,
    /// Whether a request's log line names its prompt's blocks of 512 tokens by hashes, for load traces.
    /// Equal prompts show as equal. Default no.
    pub log_prefix_hashes: bool,
    /// The collector's address for OTLP over HTTP, without `/v1/traces`; `None`, the default: nobody is
    /// told.
    pub otlp_endpoint: Option<HttpUrl>,
    /// Which part of the traces that begin here is recorded, 0 to 1. Default 1.
    pub sample: f64,
    /// Headers that the collector wants. Default none.
    pub headers: BTreeMap<String, Secret>,
    /// The service that spans and figures are of. Default `tandem`.
    pub service_name: String,
    /// Further attributes of it. Default none.
    pub resource: BTreeMap<String, String>,
    /// How long spans wait to be sent together, and the time between two reports of figures. Default
    /// 5 s.
    pub otlp_interval: Duration,
    /// For the collector to take what it is sent. Default 10 s.
    pub otlp_timeout: Duration,
    /// Spans that may wait; more are dropped and counted. Default 16384.
    pub otlp_queue_limit: usize,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            vllm_names: true,
            log_prefix_hashes: false,
            otlp_endpoint: None,
            sample: 1.0,
            headers: BTreeMap::new(),
            service_name: "tandem".to_owned(),
            resource: BTreeMap::new(),
            otlp_interval: Duration::from_secs(5),
            otlp_timeout: Duration::from_secs(10),
            otlp_queue_limit: 16_384,
        }
    }
}

/// Text that nothing prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for the one whom it is meant for.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// An address of HTTP or HTTPS: a host, maybe a port and a path; no user, no query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl(String);

impl HttpUrl {
    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is spoken to under TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https://")
    }
}

/// Text that is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: want http:// or https://, a host, and maybe a port and a path")]
pub struct InvalidUrl(pub String);

impl FromStr for HttpUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let invalid = || InvalidUrl(text.to_owned());
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"))
            .ok_or_else(invalid)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/[]%".contains(&b);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let bracketed = host.rfind(']').map_or(0, |end| end + 1);
        let port = host[bracketed..].rsplit_once(':');
        let port_fits = port.is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|p| p > 0));
        let name = port.map_or(host.len(), |(name, _)| bracketed + name.len());
        let fits = name > 0 && port_fits && rest.bytes().all(plain) && !path.contains([':', '[']);
        fits.then(|| Self(text.to_owned())).ok_or_else(invalid)
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) fn read(section: &mut Section<'_, '_>) -> TelemetryConfig {
    let default = TelemetryConfig::default();
    let endpoint = section.read(
        "otlp_endpoint",
        "an address such as \"http://127.0.0.1:4318\"",
        |value| value.as_str()?.parse().ok(),
    );
    let sample = section.read("sample", "a number from 0 to 1", |value| {
        let number: f64 = match value {
            DeValue::Float(number) => number.as_str().parse().ok()?,
            DeValue::Integer(number) => number.as_str().parse().ok()?,
            _ => return None,
        };
        (0.0..=1.0).contains(&number).then_some(number)
    });
    let resource = section.read(
        "resource",
        "a table of texts such as { \"deployment.environment.name\" = \"prod\" }",
        |value| pairs(value, |_, text| Some(text.to_owned())),
    );
    TelemetryConfig {
        vllm_names: section.flag("vllm_names").unwrap_or(default.vllm_names),
        log_prefix_hashes: section
            .flag("log_prefix_hashes")
            .unwrap_or(default.log_prefix_hashes),
        otlp_endpoint: endpoint,
        sample: sample.unwrap_or(default.sample),
        headers: headers(section),
        service_name: section
            .read("service_name", "a name", |value| {
                text(value).map(str::to_owned)
            })
            .unwrap_or(default.service_name),
        resource: resource.unwrap_or_default(),
        otlp_interval: section.millis("otlp_interval_ms", 10..=600_000, 5_000),
        otlp_timeout: section.millis("otlp_timeout_ms", 10..=600_000, 10_000),
        otlp_queue_limit: section
            .number("otlp_queue_limit", 1..=1_000_000)
            .unwrap_or(default.otlp_queue_limit),
    }
}

/// What is wrong with them is said without showing them.
fn headers(section: &mut Section<'_, '_>) -> BTreeMap<String, Secret> {
    let line = section.line_of("headers");
    let read = section.read("headers", "", |value| Some(pairs(value, header)));
    read.unwrap_or_else(|| Some(BTreeMap::new()))
        .unwrap_or_else(|| {
            section.refuse(
                line,
                "headers: want a table of HTTP headers such as { authorization = \"Bearer x\" }, names \
                 of letters, digits and '-', values of visible characters",
            );
            BTreeMap::new()
        })
}

fn header(name: &str, value: &str) -> Option<Secret> {
    let name_fits = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let fits = name_fits && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    fits.then(|| Secret(value.to_owned()))
}

fn pairs<T>(
    value: &DeValue<'_>,
    read: impl Fn(&str, &str) -> Option<T>,
) -> Option<BTreeMap<String, T>> {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let key: &std::borrow::Cow<'_, str> = key.get_ref();
        let value = read(key, value.get_ref().as_str()?)?;
        Some((key.to_string(), value))
    };
    value.as_table()?.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        for good in [
            "http://127.0.0.1:4318",
            "https://otel.example.com",
            "http://collector:4318/tenant/",
            "http://[::1]:4318",
        ] {
            assert_eq!(good.parse::<HttpUrl>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "127.0.0.1:4318",
            "grpc://x:1",
            "http://",
            "http://:4318",
            "http://x:0",
            "http://x:99999",
            "http://x:",
            "http://user:pass@host",
            "http://x/?a=b",
            "http://x y",
            "http://x/#f",
        ] {
            assert!(bad.parse::<HttpUrl>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_secret_is_in_no_debug_text() {
        let config = TelemetryConfig {
            headers: [("authorization".to_owned(), Secret("hunter2".to_owned()))].into(),
            ..TelemetryConfig::default()
        };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
