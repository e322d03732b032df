//! Certificates for a gateway's clients to see, and clients that look at them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tandem_config::TlsConfig;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An authority that clients trust, and the gateway's files.
pub(crate) struct Site {
    folder: TempDir,
    authority: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let site = Self {
            folder: tempfile::tempdir().unwrap(),
            root: certificate.der().clone(),
            authority: Issuer::new(params, key),
        };
        std::fs::write(site.path("ca.pem"), certificate.pem()).unwrap();
        site.renew();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new certificate and key, and the former's bytes.
    pub(crate) fn renew(&self) -> CertificateDer<'static> {
        let (certificate, key) = self.issue();
        replace(&self.path("cert.pem"), &certificate.pem());
        replace(&self.path("key.pem"), &key.serialize_pem());
        certificate.der().clone()
    }

    fn issue(&self) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.signed_by(&key, &self.authority).unwrap(), key)
    }

    pub(crate) fn config(&self) -> TlsConfig {
        TlsConfig {
            certificate: self.path("cert.pem"),
            key: self.path("key.pem"),
            client_ca: None,
            reload_interval: Duration::from_millis(50),
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 16,
        }
    }

    /// A client that trusts the authority and speaks one of these.
    pub(crate) fn client(&self, protocols: &[&str], with_certificate: bool) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = if with_certificate {
            let (certificate, key) = self.issue();
            let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
            let chain = vec![certificate.der().clone()];
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        config
    }

    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        protocols: &[&str],
        with_certificate: bool,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(address).await?;
        let client = TlsConnector::from(Arc::new(self.client(protocols, with_certificate)));
        client.connect(name(), socket).await
    }
}

pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

/// As editors and certificate agents do: the file is never there in part.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}
