//! TLS to a gateway: whom to trust, and what to do where a handshake fails.

mod pinned;

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};
use tokio_rustls::TlsConnector;

use pinned::{Pinned, is_authority};

/// Trusts the authorities and certificates of a file, or else the system's authorities.
pub(super) fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    let builder = match ca {
        Some(path) => {
            let certificates = authorities(path)?;
            let refused = |error: &dyn Display| format!("{}: {error}", path.display());
            for certificate in &certificates {
                let added = roots.add(certificate.clone());
                added.map_err(|error| refused(&error))?;
            }
            let pinned = Pinned::new(certificates, roots, provider);
            let pinned = pinned.map_err(|error| refused(&error))?;
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
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fail = |error: &dyn Display| format!("--ca {}: {error}", path.display());
    let pem = std::fs::read(path).map_err(|error| fail(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| fail(&error))?;
    if found.is_empty() {
        return Err(fail(&"holds no certificate in PEM"));
    }
    Ok(found)
}

/// The name that the certificate has to be for.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|_| format!("{host}: no host's name or address"))
}

/// What went wrong with a handshake, and what to do.
pub(super) fn explained(error: &io::Error, host: &str) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "its certificate is of an authority that is not known here: give that authority's \
             certificate with --ca FILE"
                .to_owned()
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!("its certificate is not for {host}: ask by a name that it is for"),
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "its certificate has expired: renew it".to_owned(),
        Some(error) if is_authority(error) => {
            "its certificate is its own authority: give that very certificate with --ca FILE"
                .to_owned()
        }
        Some(Error::InvalidMessage(_)) => "it speaks no TLS: ask with http://".to_owned(),
        Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "it asks clients for a certificate ([tls] client_ca): ask its listener for operators"
                .to_owned()
        }
        Some(other) => format!("TLS: {other}"),
        None => error.to_string(),
    }
}
