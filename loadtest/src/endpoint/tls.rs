//! TLS to a server.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, Error};
use tandem_trust::TrustError;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::{Target, TargetError};

/// How to talk TLS to a server.
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
    http2: bool,
}

/// HTTP/2, as the two sides agree on it.
const HTTP2: &[u8] = b"h2";

impl Tls {
    /// `None` for a server that is asked in the clear.
    pub(super) fn of(target: &Target) -> Result<Option<Self>, TargetError> {
        let ca = target.ca.as_deref();
        if !target.url.is_secure() {
            return match ca {
                Some(path) => {
                    Err(TrustError::new(path, "the URL is http://, want https://").into())
                }
                None => Ok(None),
            };
        }
        let host = target.url.host().to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|error| TargetError::Unknown {
            host,
            reason: error.to_string(),
        })?;
        let protocol: &[u8] = if target.http2 { HTTP2 } else { b"http/1.1" };
        let config = tandem_trust::client_config(ca, protocol)?;
        Ok(Some(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name,
            http2: target.http2,
        }))
    }

    /// Shakes hands; what goes wrong is told with what to do.
    pub(super) async fn connect(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let shaken = self.connector.connect(self.name.clone(), stream).await;
        let stream = shaken.map_err(|error| explained(&error, &self.name.to_str()))?;
        if self.http2 && stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Err(NO_HTTP2.to_owned());
        }
        Ok(stream)
    }
}

const NO_HTTP2: &str = "it speaks no HTTP/2: ask without --http2";

fn explained(error: &std::io::Error, host: &str) -> String {
    match tandem_trust::cause(error) {
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "it does not speak this version of HTTP over TLS: ask with --http2, or without it"
                .to_owned()
        }
        _ => tandem_trust::explained(error, host),
    }
}
