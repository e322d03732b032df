//! TLS to a server: whom to trust.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::{Target, TargetError};

/// How to talk TLS to a server.
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

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
        let protocol: &[u8] = if target.http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Some(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        }))
    }

    pub(super) async fn connect(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
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
