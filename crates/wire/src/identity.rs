//! Certificates: one private authority for a cluster, one certificate for each process.
//!
//! A certificate's subject alternative names say its role and name: `gateway.tandem`, or
//! `worker.tandem` with `<id>.worker.tandem`.

mod authority;
mod certificate;
mod current;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tandem_core::WorkerId;

pub use authority::{Authority, Terms};
pub use certificate::Certificate;
pub(crate) use current::Current;
pub use current::follow_identity;

/// Server name under which every worker answers.
pub const WORKER_NAME: &str = "worker.tandem";
/// Name that every gateway's certificate has.
pub const GATEWAY_NAME: &str = "gateway.tandem";

const CA_CERT: &str = "ca.pem";

/// What a process is, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerRole {
    /// A gateway.
    Gateway,
    /// The worker of that name.
    Worker(WorkerId),
}

impl PeerRole {
    fn names(&self) -> Vec<String> {
        match self {
            Self::Gateway => vec![GATEWAY_NAME.into()],
            Self::Worker(id) => vec![WORKER_NAME.into(), worker_name(id)],
        }
    }

    /// The certificate's file name without its ending.
    #[must_use]
    pub fn file_stem(&self) -> &str {
        match self {
            Self::Gateway => "gateway",
            Self::Worker(id) => id.as_str(),
        }
    }
}

/// Why certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file holds no such certificate or key.
    #[error("{path}: {reason}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It would take the place of one that is there.
    #[error("{path} is there already: it stays as it is")]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// TLS refuses the certificate.
    #[error("TLS refuses the certificate: {0}")]
    Tls(String),
}

/// A process's certificate, key and the authority it trusts.
#[derive(Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authority: Vec<CertificateDer<'static>>,
}

impl Identity {
    /// The private key's bytes, to derive other secrets from.
    pub(crate) fn secret(&self) -> &[u8] {
        self.key.secret_der()
    }

    /// Reads `<name>.pem`, `<name>.key` and `ca.pem` from `directory`.
    pub fn load(directory: &Path, name: &str) -> Result<Self, IdentityError> {
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, IdentityError> {
            let pem = fs::read(path).map_err(|e| file(path, e))?;
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let found = found.map_err(|e| content(path, e))?;
            if found.is_empty() {
                return Err(content(path, "holds no certificate"));
            }
            Ok(found)
        };
        let key_path = directory.join(format!("{name}.key"));
        let key = fs::read(&key_path).map_err(|e| file(&key_path, e))?;
        Ok(Self {
            chain: certificates(&directory.join(format!("{name}.pem")))?,
            key: PrivateKeyDer::from_pem_slice(&key).map_err(|e| content(&key_path, e))?,
            authority: certificates(&directory.join(CA_CERT))?,
        })
    }

    /// Certificate and key, which belong together.
    pub(crate) fn certified(&self) -> Result<CertifiedKey, IdentityError> {
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), &provider).map_err(tls)
    }

    /// What its certificate says.
    pub fn certificate(&self) -> Result<Certificate, IdentityError> {
        Certificate::parse(&self.chain[0]).map_err(IdentityError::Tls)
    }

    /// Seconds since 1970 at which the first of the authorities expires.
    pub(crate) fn authority_expiry(&self) -> Result<u64, IdentityError> {
        let mut first = u64::MAX;
        for certificate in &self.authority {
            let parsed = Certificate::parse(certificate).map_err(IdentityError::Tls)?;
            first = first.min(parsed.not_after);
        }
        Ok(first)
    }

    fn roots(&self) -> Result<Arc<rustls::RootCertStore>, IdentityError> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in &self.authority {
            roots.add(certificate.clone()).map_err(tls)?;
        }
        Ok(Arc::new(roots))
    }

    pub(crate) fn server_tls(
        &self,
        current: &Arc<Current>,
    ) -> Result<rustls::ServerConfig, IdentityError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            self.roots()?,
            Arc::clone(&provider),
        )
        .build()
        .map_err(tls)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(tls)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::<Current>::clone(current));
        // Every handshake proves anew who the peer is: a resumed session would vouch for a certificate
        // that has ended or was exchanged.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    pub(crate) fn client_tls(
        &self,
        current: &Arc<Current>,
    ) -> Result<rustls::ClientConfig, IdentityError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(tls)?
            .with_root_certificates(self.roots()?)
            .with_client_cert_resolver(Arc::<Current>::clone(current));
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }
}

const ALPN: &[u8] = b"tandem/1";

/// Whether a peer's (already verified) certificate is a gateway's.
pub(crate) fn is_gateway(certificate: &CertificateDer<'_>) -> bool {
    has_name(certificate, GATEWAY_NAME)
}

/// Whether a peer's (already verified) certificate is that of the worker `id`.
pub(crate) fn is_worker(certificate: &CertificateDer<'_>, id: &WorkerId) -> bool {
    has_name(certificate, WORKER_NAME) && has_name(certificate, &worker_name(id))
}

fn has_name(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(entity) = webpki::EndEntityCert::try_from(certificate) else {
        return false;
    };
    let Ok(name) = ServerName::try_from(name) else {
        return false;
    };
    entity.verify_is_valid_for_subject_name(&name).is_ok()
}

/// Names are not case-sensitive and hold no `_` or `.`, worker ids may: written in hexadecimal they
/// stay apart.
fn worker_name(id: &WorkerId) -> String {
    let hex: String = id.as_str().bytes().map(|b| format!("{b:02x}")).collect();
    let (head, tail) = hex.split_at(hex.len().min(62));
    let labels = if tail.is_empty() {
        head.to_owned()
    } else {
        format!("{head}.{tail}")
    };
    // 63 bytes are 126 digits: a third label.
    let labels = match tail.len() {
        0..=62 => labels,
        _ => format!("{head}.{}.{}", &tail[..62], &tail[62..]),
    };
    format!("{labels}.{WORKER_NAME}")
}

fn file(path: &Path, source: std::io::Error) -> IdentityError {
    IdentityError::File {
        path: path.to_owned(),
        source,
    }
}

fn content(path: &Path, reason: impl ToString) -> IdentityError {
    IdentityError::Content {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn tls(reason: impl ToString) -> IdentityError {
    IdentityError::Tls(reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_id_makes_a_name_of_its_own() {
        let long = "x".repeat(63);
        let ids = ["a", "A", "a_b", "a.b", "a-b", &long, &long[1..]];
        let names: std::collections::BTreeSet<_> = ids
            .iter()
            .map(|id| worker_name(&WorkerId::new(*id).unwrap()))
            .collect();
        assert_eq!(names.len(), ids.len());
        for name in names {
            assert!(ServerName::try_from(name.clone()).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_certificate_proves_its_role_and_name_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(folder.path()).unwrap();
        let d0 = WorkerId::new("decode-0").unwrap();
        let d1 = WorkerId::new("decode-1").unwrap();
        authority.issue(&PeerRole::Worker(d0.clone())).unwrap();
        authority.issue(&PeerRole::Gateway).unwrap();
        let worker = Identity::load(folder.path(), "decode-0").unwrap();
        let gateway = Identity::load(folder.path(), "gateway").unwrap();
        assert!(is_worker(&worker.chain[0], &d0));
        assert!(!is_worker(&worker.chain[0], &d1));
        assert!(!is_gateway(&worker.chain[0]));
        assert!(is_gateway(&gateway.chain[0]));
        assert!(!is_worker(&gateway.chain[0], &d0));
    }
}
