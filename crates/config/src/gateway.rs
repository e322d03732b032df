//! `[gateway]`: the front door.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tandem_dialect::Dialect;

use crate::section::{PATH, SOCKET, Section, socket, text};
use crate::{
    AdminConfig, AdmissionSettings, AuthConfig, ControlConfig, HttpConfig, IdentityConfig,
    PolicySettings, TelemetryConfig, TlsConfig,
};

/// A gateway, with all that it needs of the other tables.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConfig {
    /// Where HTTP clients connect; port 0 takes any free one. Default 127.0.0.1:8080.
    pub listen: SocketAddr,
    /// A GGUF file or a folder with `tokenizer.json`, for tokenising and the chat template. Needed.
    pub tokenizer: PathBuf,
    /// Control addresses (QUIC) of workers, none twice. Needed, may be empty.
    pub workers: Vec<SocketAddr>,
    /// Longest request body, in bytes. Default 64 MiB.
    pub max_body_bytes: u64,
    /// Requests that may wait for a lease; one more is answered 503. Default 1024.
    pub queue_limit: usize,
    /// A request's whole time. Default 120 s.
    pub request_timeout: Duration,
    /// Time for a client to send a request's headers. Default 10 s.
    pub header_timeout: Duration,
    /// Client connections open at once. Default 4096.
    pub max_connections: usize,
    /// Threads that tokenise. Default 2.
    pub tokenizer_threads: usize,
    /// Tokens to generate where a request does not say, cut to what there is room for. All of them
    /// are leased before the first is generated, so a whole context for each would let few requests
    /// run at once. Default 2048; `None`, which no file says: the rest of the context.
    pub default_max_tokens: Option<u32>,
    /// Answers that one request may ask for: `n` times its prompts. Default 32.
    pub max_choices: usize,
    /// How the model writes calls of tools: a name of docs/dialects.md, or `none`. `None`, the default:
    /// what its chat template shows.
    pub tool_dialect: Option<&'static str>,
    /// How the model marks its reasoning, in the same way.
    pub reasoning_dialect: Option<&'static str>,
    /// Time for open requests to end after the gateway was told to stop. Default 5 s.
    pub drain_timeout: Duration,
    /// After it was told to stop a gateway first says on `/ready` that it is not, and serves on for so
    /// long: load balancers shall notice. Default 0: none is asked.
    pub drain_pause: Duration,
    /// `[auth]`: who may use it.
    pub auth: AuthConfig,
    /// `[admin]`: the listener for operators; `None`, the default: there is none.
    pub admin: Option<AdminConfig>,
    /// `[http]`: what clients may do on a connection.
    pub http: HttpConfig,
    /// `[tls]`: the certificate that clients see; `None` where they are served in the clear.
    pub tls: Option<TlsConfig>,
    /// `[policy]`: which workers serve a request.
    pub policy: PolicySettings,
    /// `[admission]`: who waits and who is turned away, with `queue_limit` as the bound of all.
    pub admission: AdmissionSettings,
    /// `[identity]`: who it is to the workers. The name defaults to `gateway`.
    pub identity: IdentityConfig,
    /// `[control]`: its connections to the workers.
    pub control: ControlConfig,
    /// `[telemetry]`: what it tells of requests, and to whom.
    pub telemetry: TelemetryConfig,
}

pub(crate) fn read(section: &mut Section<'_, '_>, auth: &AuthConfig) -> Option<GatewayConfig> {
    let listen_line = section.line_of("listen");
    let listen = section.read("listen", SOCKET, socket);
    let outside = listen.filter(|listen| !listen.ip().is_loopback());
    if let (Some(listen), AuthConfig::Unsaid) = (outside, auth) {
        let message = format!(
            "listen: other machines reach {listen}, and without [auth] all of them may use it: want \
             [auth] with keys = \"keys.toml\" (see `tandem keys new`), or with mode = \"open\""
        );
        section.refuse(listen_line, &message);
    }
    let tokenizer = section.need("tokenizer", PATH, |value| text(value).map(PathBuf::from));
    let line = section.line_of("workers");
    let want = "a list of addresses such as [\"127.0.0.1:7101\"]";
    section.needs("workers", &want);
    let workers = section.list("workers", want, socket);
    if let Some(twice) = workers.as_deref().and_then(first_repeated) {
        section.refuse(line, &format!("workers: {twice} is there twice"));
    }
    let max_body_bytes = section.bytes("max_body_bytes", 1024..=4 << 30);
    let queue_limit = section.number("queue_limit", 1..=1_000_000);
    let request_timeout = section.millis("request_timeout_ms", 1..=86_400_000, 120_000);
    let header_timeout = section.millis("header_timeout_ms", 1..=600_000, 10_000);
    let max_connections = section.number("max_connections", 1..=1_000_000);
    let tokenizer_threads = section.number("tokenizer_threads", 1..=256);
    let default_max_tokens = section.number("default_max_tokens", 1..=16_777_216);
    let max_choices = section.number("max_choices", 1..=1024);
    let tool_dialect = dialect(section, "tool_dialect", Dialect::tool_names());
    let reasoning_dialect = dialect(section, "reasoning_dialect", Dialect::reasoning_names());
    let drain_timeout = section.millis("drain_timeout_ms", 1..=600_000, 5_000);
    let drain_pause = section.millis("drain_pause_ms", 0..=600_000, 0);
    Some(GatewayConfig {
        listen: listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))),
        tokenizer: section.in_folder(tokenizer?),
        workers: workers?,
        max_body_bytes: max_body_bytes.unwrap_or(64 << 20),
        queue_limit: queue_limit.unwrap_or(1024),
        request_timeout,
        header_timeout,
        max_connections: max_connections.unwrap_or(4096),
        tokenizer_threads: tokenizer_threads.unwrap_or(2),
        default_max_tokens: default_max_tokens.or(Some(2048)),
        max_choices: max_choices.unwrap_or(32),
        tool_dialect,
        reasoning_dialect,
        drain_timeout,
        drain_pause,
        auth: AuthConfig::default(),
        admin: None,
        http: HttpConfig::default(),
        tls: None,
        policy: PolicySettings::default(),
        admission: AdmissionSettings::one_class(queue_limit.unwrap_or(1024)),
        identity: IdentityConfig::default(),
        control: ControlConfig::default(),
        telemetry: TelemetryConfig::default(),
    })
}

fn dialect(
    section: &mut Section<'_, '_>,
    key: &'static str,
    names: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let names: Vec<_> = names.chain(["none"]).map(|name| (name, name)).collect();
    section.choice(key, &names)
}

fn first_repeated(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted
        .windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
}
