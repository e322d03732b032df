//! `[http]`: what clients may do on a connection, and which pages may ask.

use std::time::Duration;

use toml::de::DeValue;

use crate::section::{Section, text};

/// Bounds of client connections. Those of bodies, and of connections in total, stand in `[gateway]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// A connection without a request is closed after so long. Default 75 s.
    pub idle_timeout: Duration,
    /// Bytes of a body that must come in each second, on average and after a first
    /// `header_timeout_ms`. Default 1 KiB.
    pub min_body_rate: u64,
    /// Bytes of request bodies that are being read, of all clients together; one that finds no room is
    /// answered 503. Default 1 GiB.
    pub max_bodies_bytes: u64,
    /// Longest head of a request, its first line and all headers. Default 32 KiB.
    pub max_header_bytes: usize,
    /// Most headers of a request. Default 100.
    pub max_headers: usize,
    /// Longest path with its query. Default 8 KiB.
    pub max_uri_bytes: usize,
    /// Requests that one connection of HTTP/2 or 3 may have open. Default 256.
    pub max_streams: u32,
    /// Connections open at once from one address (IPv6: from one /64). Default `None`: no such bound.
    pub max_connections_per_address: Option<usize>,
    /// Pages whose scripts may ask. Default: none.
    pub cors_origins: CorsOrigins,
    /// Further names, in lower case, that requests may be for (their `Host`) where none shows a key: beside
    /// addresses and `localhost` on the loopback, where others are refused; elsewhere, where there are any,
    /// no other name is taken. Default: none.
    pub hosts: Vec<String>,
    /// Whether HTTP/3 is served too, on the same port over UDP. Needs `[tls]`. Default no.
    pub http3: bool,
}

/// Origins in the sense of the Fetch standard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CorsOrigins {
    /// No page of another origin.
    #[default]
    None,
    /// Any page.
    Any,
    /// These, as browsers write them: `https://chat.example.com`, with a port where it is not the
    /// scheme's own.
    These(Vec<String>),
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(75),
            min_body_rate: 1024,
            max_bodies_bytes: 1 << 30,
            max_header_bytes: 32 << 10,
            max_headers: 100,
            max_uri_bytes: 8 << 10,
            max_streams: 256,
            max_connections_per_address: None,
            cors_origins: CorsOrigins::None,
            hosts: Vec::new(),
            http3: false,
        }
    }
}

pub(crate) fn read(section: &mut Section<'_, '_>, has_tls: bool) -> HttpConfig {
    let default = HttpConfig::default();
    let http3_line = section.line_of("http3");
    let http3 = section.flag("http3").unwrap_or(default.http3);
    if http3 && !has_tls {
        section.refuse(http3_line, "http3: HTTP/3 needs TLS, and there is no [tls]");
    }
    let idle_timeout = section.millis("idle_timeout_ms", 100..=86_400_000, 75_000);
    let min_body_rate = section.bytes("min_body_bytes_per_s", 1..=1 << 30);
    let max_bodies_bytes = section.bytes("max_bodies_bytes", 1 << 20..=1 << 44);
    let max_header_bytes = section.bytes("max_header_bytes", 1024..=1 << 20);
    let max_headers = section.number("max_headers", 8..=1000);
    let max_uri_bytes = section.bytes("max_uri_bytes", 64..=60 << 10);
    let max_streams = section.number("max_streams", 1..=10_000);
    let per_address = section.number("max_connections_per_address", 1..=1_000_000);
    let origins = origins(section);
    let want = "a list of names such as [\"tandem.internal\"], in lower case and without a port";
    let hosts = section.list("hosts", want, host);
    let size = |bytes: Option<u64>, default| {
        bytes.map_or(default, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX)
        })
    };
    HttpConfig {
        idle_timeout,
        min_body_rate: min_body_rate.unwrap_or(default.min_body_rate),
        max_bodies_bytes: max_bodies_bytes.unwrap_or(default.max_bodies_bytes),
        max_header_bytes: size(max_header_bytes, default.max_header_bytes),
        max_headers: max_headers.unwrap_or(default.max_headers),
        max_uri_bytes: size(max_uri_bytes, default.max_uri_bytes),
        max_streams: max_streams.unwrap_or(default.max_streams),
        max_connections_per_address: per_address,
        cors_origins: origins.unwrap_or(default.cors_origins),
        hosts: hosts.unwrap_or_default(),
        http3,
    }
}

fn origins(section: &mut Section<'_, '_>) -> Option<CorsOrigins> {
    let key = "cors_origins";
    let want = "\"*\" or a list of origins such as [\"https://chat.example.com\"]";
    if section.is_list(key) {
        let origin = |value: &DeValue<'_>| {
            let text = text(value).filter(|text| is_origin(text));
            text.map(str::to_owned)
        };
        let list = section.list(key, want, origin)?;
        return Some(match list.is_empty() {
            true => CorsOrigins::None,
            false => CorsOrigins::These(list),
        });
    }
    let any = |value: &DeValue<'_>| (text(value) == Some("*")).then_some(CorsOrigins::Any);
    section.read(key, want, any)
}

/// A scheme and a host, perhaps a port, in lower case, and nothing behind: what browsers send, so that
/// a comparison of bytes is enough.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else {
        return false;
    };
    let plain = |text: &str, also: &[u8]| {
        !text.is_empty()
            && text.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || also.contains(&byte)
            })
    };
    plain(scheme, b"+-.") && plain(host, b"-._:[]")
}

/// A name as browsers write it, so that a comparison of bytes is enough.
fn host(value: &DeValue<'_>) -> Option<String> {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    let name = text(value).filter(|name| name.len() <= 253 && name.bytes().all(plain));
    name.map(str::to_owned)
}
