//! The gateway's own tables: `[gateway]`, `[auth]`, `[admin]`, `[http]` and `[tls]`.

use tandem_config::{
    AdminConfig, AuthConfig, CorsOrigins, GatewayConfig, HttpConfig, JwtClaims, TlsConfig,
    format_bytes,
};

use super::{Table, quoted};

pub(super) fn tables(gateway: &GatewayConfig) -> String {
    let tls = |name, tls: &Option<TlsConfig>| tls.as_ref().map(|tls| tls_table(name, tls));
    let admin = gateway.admin.as_ref();
    [
        Some(gateway_table(gateway)),
        Some(http_table(&gateway.http)),
        tls("tls", &gateway.tls),
        Some(auth_table(&gateway.auth)),
        admin.map(admin_table),
        admin.and_then(|admin| tls("admin.tls", &admin.tls)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What a gateway that is told of no worker does.
const NO_WORKERS: &str =
    "no worker: every request gets 503 until the file names some, for which no restart is needed";
/// What a dialect that is not configured is.
const SHOWN: &str = "what the model's chat template shows";

fn gateway_table(gateway: &GatewayConfig) -> String {
    let workers: toml::Value = gateway
        .workers
        .iter()
        .map(quoted)
        .collect::<Vec<_>>()
        .into();
    Table::new("gateway")
        .text("listen", gateway.listen)
        .text("tokenizer", gateway.tokenizer.display())
        .raw("workers", workers)
        .note(gateway.workers.is_empty().then_some(NO_WORKERS))
        .text("max_body_bytes", format_bytes(gateway.max_body_bytes))
        .raw("queue_limit", gateway.queue_limit)
        .millis("request_timeout_ms", gateway.request_timeout)
        .millis("header_timeout_ms", gateway.header_timeout)
        .raw("max_connections", gateway.max_connections)
        .raw("tokenizer_threads", gateway.tokenizer_threads)
        .unless_absent(
            "default_max_tokens",
            gateway.default_max_tokens,
            "the rest of the context",
        )
        .raw("max_choices", gateway.max_choices)
        .unless_absent("tool_dialect", gateway.tool_dialect.map(quoted), SHOWN)
        .unless_absent(
            "reasoning_dialect",
            gateway.reasoning_dialect.map(quoted),
            SHOWN,
        )
        .millis("drain_timeout_ms", gateway.drain_timeout)
        .millis("drain_pause_ms", gateway.drain_pause)
        .done()
}

fn auth_table(auth: &AuthConfig) -> String {
    let required = match auth {
        AuthConfig::Unsaid => {
            return "\n# [auth]: (none; whoever reaches the gateway may use it)\n".to_owned();
        }
        AuthConfig::Open => return Table::new("auth").text("mode", "open").done(),
        AuthConfig::Keys(required) => required,
    };
    let keys = required.keys.as_ref().map(|p| quoted(p.display()));
    let table = Table::new("auth")
        .text("mode", "keys")
        .unless_absent("keys", keys, "tokens only")
        .raw("open_metrics", required.open_metrics);
    let Some(jwt) = &required.jwt else {
        return table
            .unless_absent("jwks", None::<&str>, "no tokens")
            .done();
    };
    let algorithms: toml::Value = jwt
        .algorithms
        .iter()
        .map(|algorithm| quoted(algorithm.as_str()))
        .collect::<Vec<_>>()
        .into();
    table
        .text("jwks", jwt.jwks.display())
        .text("jwt_issuer", &jwt.issuer)
        .text("jwt_audience", &jwt.audience)
        .text("jwt_tenant_claim", &jwt.tenant_claim)
        .raw("jwt_algorithms", algorithms)
        .raw("jwt_claims", jwt_claims(&jwt.claims))
        .done()
}

/// A table in one line: claims that are not looked at have no name.
fn jwt_claims(claims: &JwtClaims) -> String {
    let named = [
        ("class", &claims.class),
        ("classes", &claims.classes),
        ("models", &claims.models),
        ("requests_per_second", &claims.requests_per_second),
        ("tokens_per_minute", &claims.tokens_per_minute),
        ("concurrency", &claims.concurrency),
    ];
    let key = format!("key = {}", quoted(&claims.key));
    let named = named.into_iter();
    let named =
        named.filter_map(|(key, claim)| Some(format!("{key} = {}", quoted(claim.as_ref()?))));
    let all: Vec<String> = [key].into_iter().chain(named).collect();
    format!("{{ {} }}", all.join(", "))
}

fn admin_table(admin: &AdminConfig) -> String {
    let hash = |hash: &tandem_config::Sha256| quoted(format!("sha256:{hash}"));
    let hashes: toml::Value = admin.key_hashes.iter().map(hash).collect::<Vec<_>>().into();
    let hashes = Some(hashes).filter(|_| !admin.key_hashes.is_empty());
    Table::new("admin")
        .text("listen", admin.listen)
        .unless_absent("key_hash", hashes, "whoever reaches it may use it")
        .done()
}

fn http_table(http: &HttpConfig) -> String {
    let origins = match &http.cors_origins {
        CorsOrigins::None => "[]".to_owned(),
        CorsOrigins::Any => quoted("*").to_string(),
        CorsOrigins::These(origins) => {
            toml::Value::from(origins.iter().map(quoted).collect::<Vec<_>>()).to_string()
        }
    };
    let bytes = |size: usize| format_bytes(size as u64);
    Table::new("http")
        .millis("idle_timeout_ms", http.idle_timeout)
        .text("min_body_bytes_per_s", format_bytes(http.min_body_rate))
        .text("max_bodies_bytes", format_bytes(http.max_bodies_bytes))
        .text("max_header_bytes", bytes(http.max_header_bytes))
        .raw("max_headers", http.max_headers)
        .text("max_uri_bytes", bytes(http.max_uri_bytes))
        .raw("max_streams", http.max_streams)
        .unless_absent(
            "max_connections_per_address",
            http.max_connections_per_address,
            "as many as in total",
        )
        .raw("cors_origins", origins)
        .raw("hosts", toml::Value::from(http.hosts.clone()))
        .raw("http3", http.http3)
        .done()
}

fn tls_table(name: &str, tls: &TlsConfig) -> String {
    let client_ca = tls.client_ca.as_ref().map(|path| quoted(path.display()));
    Table::new(name)
        .text("certificate", tls.certificate.display())
        .text("key", tls.key.display())
        .unless_absent("client_ca", client_ca, "clients need no certificate")
        .millis("reload_interval_ms", tls.reload_interval)
        .millis("handshake_timeout_ms", tls.handshake_timeout)
        .raw("max_handshakes", tls.max_handshakes)
        .done()
}
