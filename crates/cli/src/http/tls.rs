//! TLS to a gateway: whom to trust, and what to do where a handshake fails.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};
use tokio_rustls::TlsConnector;

/// Trusts the authorities of a file, or else the system's.
pub(super) fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in authorities(path)? {
                let refused = |error| format!("{}: {error}", path.display());
                roots.add(certificate).map_err(refused)?;
            }
        }
        None => {
            // What of them cannot be read trusts nobody.
            let system = rustls_native_certs::load_native_certs().certs;
            let _ = roots.add_parsable_certificates(system);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fail = |error: &dyn std::fmt::Display| format!("--ca {}: {error}", path.display());
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
        Some(Error::InvalidMessage(_)) => "it speaks no TLS: ask with http://".to_owned(),
        Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "it asks clients for a certificate ([tls] client_ca): ask its listener for operators"
                .to_owned()
        }
        Some(other) => format!("TLS: {other}"),
        None => error.to_string(),
    }
}
