//! TLS to a server: whom to trust.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};
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
                Some(path) => Err(wrong(path, "the URL is http://, want https://")),
                None => Ok(None),
            };
        }
        let host = target.url.host().to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|error| TargetError::Unknown {
            host,
            reason: error.to_string(),
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions")
            .with_root_certificates(roots(ca)?)
            .with_no_client_auth();
        let protocol: &[u8] = if target.http2 { HTTP2 } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
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
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "its certificate is of an authority that is not known here: give that authority's certificate with --ca"
                .to_owned()
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!("its certificate is not for {host}: ask by a name that it is for"),
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "its certificate has expired: renew it".to_owned(),
        Some(Error::InvalidMessage(_)) => "it speaks no TLS: ask with http://".to_owned(),
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "it does not speak this version of HTTP over TLS: ask with --http2, or without it".to_owned()
        }
        Some(other) => format!("TLS: {other}"),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "it closed the connection instead of a TLS handshake: does it speak TLS? Else ask with http://".to_owned()
        }
        None => error.to_string(),
    }
}

fn wrong(path: &Path, reason: impl ToString) -> TargetError {
    TargetError::Authorities {
        file: path.display().to_string(),
        reason: reason.to_string(),
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, TargetError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        // What of them cannot be read trusts nobody.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let pem = std::fs::read(path).map_err(|error| wrong(path, error))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| wrong(path, error))?;
        roots.add(certificate).map_err(|error| wrong(path, error))?;
    }
    if roots.is_empty() {
        return Err(wrong(path, "holds no certificate in PEM"));
    }
    Ok(roots)
}
