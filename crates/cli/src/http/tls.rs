//! TLS to a gateway.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, Error};
use tokio_rustls::TlsConnector;

/// Trusts the authorities and certificates of a file, or else the system's authorities.
pub(super) fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    let config = tandem_trust::client_config(ca, b"http/1.1");
    let config = config.map_err(|error| error.to_string())?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The name that the certificate has to be for.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|_| format!("{host}: no host's name or address"))
}

/// What went wrong with a handshake, and what to do.
pub(super) fn explained(error: &io::Error, host: &str) -> String {
    match tandem_trust::cause(error) {
        Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "it asks clients for a certificate ([tls] client_ca): ask its listener for operators"
                .to_owned()
        }
        _ => tandem_trust::explained(error, host),
    }
}
