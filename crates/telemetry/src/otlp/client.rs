//! The HTTP client that OpenTelemetry's exporters send with.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::{ClientConfig, RootCertStore};
use tandem_config::HttpUrl;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::TelemetryError;

/// A collector has little to say.
const LONGEST_REPLY: usize = 1 << 20;

/// Sends requests from whatever thread: its sockets live in the runtime that it was made in.
#[derive(Clone, Debug)]
pub(super) struct Client {
    base: String,
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
    runtime: Handle,
}

impl Client {
    /// For a collector at `endpoint`.
    pub(super) fn new(endpoint: &HttpUrl, timeout: Duration) -> Result<Self, TelemetryError> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(endpoint)?)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            base: endpoint.as_str().trim_end_matches('/').to_owned(),
            inner: legacy::Client::builder(TokioExecutor::new()).build(connector),
            timeout,
            runtime: Handle::current(),
        })
    }

    /// The address of one kind of telemetry.
    pub(super) fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }
}

/// Trusts the system's authorities; none where the collector is spoken to in the clear.
fn tls(endpoint: &HttpUrl) -> Result<ClientConfig, TelemetryError> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TelemetryError::Roots(std::io::Error::other(error)))?;
    let builder = if endpoint.is_https() {
        builder.with_native_roots().map_err(TelemetryError::Roots)?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = exchange(self.inner.clone(), request);
        let sending = timeout_in(self.timeout, sending);
        // Whoever awaits this may be no task of the runtime. Dropping it ends the exchange.
        let mut tasks = JoinSet::new();
        tasks.spawn_on(sending, &self.runtime);
        match tasks.join_next().await {
            Some(Ok(reply)) => reply,
            Some(Err(error)) => Err(error.into()),
            None => Err("nothing was sent".into()),
        }
    }
}

async fn timeout_in<T>(
    time: Duration,
    exchange: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    timeout(time, exchange).await?
}

async fn exchange(
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let reply = client.request(request.map(Full::new)).await?;
    let (head, body) = reply.into_parts();
    let body = Limited::new(body, LONGEST_REPLY).collect().await?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
