//! `[tls]`: the certificate that clients see; and `[admin.tls]`, that which operators do.

use std::path::PathBuf;
use std::time::Duration;

use crate::section::{PATH, Section, text};

/// TLS towards clients, or towards operators. Without the table they are served in the clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate and those between it and its authority, as PEM. Needed.
    pub certificate: PathBuf,
    /// Its private key, as PEM. Needed.
    pub key: PathBuf,
    /// Authorities, as PEM: clients must then have a certificate of one of them. Default: clients
    /// need none.
    pub client_ca: Option<PathBuf>,
    /// Between two looks at whether the files have changed. Default 10 s.
    pub reload_interval: Duration,
    /// For a client to finish the handshake, its wait for a turn included. Default 10 s.
    pub handshake_timeout: Duration,
    /// Handshakes at once; more wait. Default 128.
    pub max_handshakes: usize,
}

pub(crate) fn read(section: &mut Section<'_, '_>) -> Option<TlsConfig> {
    let certificate = section.need("certificate", PATH, |value| text(value).map(PathBuf::from));
    let key = section.need("key", PATH, |value| text(value).map(PathBuf::from));
    let client_ca = section.read("client_ca", PATH, |value| text(value).map(PathBuf::from));
    let reload_interval = section.millis("reload_interval_ms", 10..=86_400_000, 10_000);
    let handshake_timeout = section.millis("handshake_timeout_ms", 10..=600_000, 10_000);
    let max_handshakes = section.number("max_handshakes", 1..=100_000);
    Some(TlsConfig {
        certificate: section.in_folder(certificate?),
        key: section.in_folder(key?),
        client_ca: client_ca.map(|path| section.in_folder(path)),
        reload_interval,
        handshake_timeout,
        max_handshakes: max_handshakes.unwrap_or(128),
    })
}
