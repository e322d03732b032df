//! Whom a client of HTTP trusts over TLS: the authorities and certificates of a file, or else the system's
//! authorities. And what to do where a handshake fails, in words.
//!
//! Every command that asks a server over https takes its configuration from here, so that they all trust the same.
//! Clients' certificates are not its subject: nothing here shows any.
#![forbid(unsafe_code)]

mod pinned;

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use pinned::{Pinned, is_authority};

/// A file of certificates that cannot be trusted by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--ca {file}: {reason}")]
pub struct TrustError {
    file: String,
    reason: String,
}

impl TrustError {
    /// About this file.
    pub fn new(file: &Path, reason: impl Display) -> Self {
        Self {
            file: file.display().to_string(),
            reason: reason.to_string(),
        }
    }
}

/// Trusts the authorities of a file in PEM, and each certificate in it as a server's own; without a file the system's
/// authorities. Speaks `protocol`, as ALPN names it (RFC 7301).
///
/// # Errors
///
/// [`TrustError`]: the file cannot be read, or holds no certificate or a broken one.
pub fn client_config(ca: Option<&Path>, protocol: &[u8]) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions");
    let mut roots = RootCertStore::empty();
    let builder = match ca {
        Some(path) => {
            let certificates = certificates(path)?;
            for certificate in &certificates {
                let added = roots.add(certificate.clone());
                added.map_err(|error| TrustError::new(path, error))?;
            }
            let pinned = Pinned::new(certificates, roots, provider);
            let pinned = pinned.map_err(|error| TrustError::new(path, error))?;
            let builder = builder.dangerous();
            builder.with_custom_certificate_verifier(Arc::new(pinned))
        }
        None => {
            // What of them cannot be read trusts nobody.
            let system = rustls_native_certs::load_native_certs().certs;
            let _ = roots.add_parsable_certificates(system);
            builder.with_root_certificates(roots)
        }
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let wrong = |reason: &dyn Display| TrustError::new(path, reason);
    let pem = std::fs::read(path).map_err(|error| wrong(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| wrong(&error))?;
    if found.is_empty() {
        return Err(wrong(&"holds no certificate in PEM"));
    }
    Ok(found)
}

/// The error of TLS that a failed handshake, or a connection that broke, is about.
#[must_use]
pub fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// What went wrong with a server that was asked for as `host`, and what to do.
#[must_use]
pub fn explained(error: &io::Error, host: &str) -> String {
    match cause(error) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "its certificate is of an authority that is not known here: give that authority's certificate with --ca FILE"
                .to_owned()
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!("its certificate is not for {host}: ask by a name that it is for"),
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "its certificate has expired: renew it".to_owned(),
        Some(error) if is_authority(error) => {
            "its certificate is its own authority: give that very certificate with --ca FILE".to_owned()
        }
        Some(Error::InvalidMessage(_)) => "it speaks no TLS: ask with http://".to_owned(),
        Some(other) => format!("TLS: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it closed the connection instead of a TLS handshake: does it speak TLS? Else ask with http://".to_owned()
        }
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: &[u8] = b"http/1.1";

    #[test]
    fn a_file_that_holds_no_certificate_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            client_config(Some(&path), HTTP).unwrap_err().to_string()
        };
        let named = format!("--ca {}: ", path.display());
        let none = refused("no certificate\n");
        assert_eq!(none, format!("{named}holds no certificate in PEM"));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let broken = refused(broken);
        assert!(broken.starts_with(&named) && broken != none, "{broken}");
        let missing = client_config(Some(Path::new("/nowhere/ca.pem")), HTTP).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("--ca /nowhere/ca.pem: No such file"),
            "{missing}"
        );
    }

    #[test]
    fn a_protocol_and_a_servers_own_certificate_are_taken() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.pem");
        std::fs::write(&path, made.cert.pem()).unwrap();
        let config = client_config(Some(&path), b"h2").unwrap();
        assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
        assert_eq!(client_config(None, HTTP).unwrap().alpn_protocols, [HTTP]);
    }

    #[test]
    fn what_is_no_error_of_tls_is_told_as_it_is() {
        let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(explained(&closed, "h").contains("does it speak TLS?"));
        let refused = io::Error::other("refused");
        assert_eq!(
            (cause(&refused), explained(&refused, "h")),
            (None, "refused".to_owned())
        );
    }
}
