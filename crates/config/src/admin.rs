//! `[admin]`: the listener for operators.

use std::net::{Ipv4Addr, SocketAddr};

use toml::de::DeValue;

use crate::section::{SOCKET, Section, socket};
use crate::{Sha256, TlsConfig, tls};

/// Where operators connect, and with which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where it listens; port 0 takes any free one. Default 127.0.0.1:8081.
    pub listen: SocketAddr,
    /// SHA-256 of each key that opens it; several while one takes another's place. Empty: no key is
    /// asked for, which only a loopback address may do.
    pub key_hashes: Vec<Sha256>,
    /// The certificate that operators see, in the form of `[tls]`; `None`, the default: they are served in
    /// the clear.
    pub tls: Option<TlsConfig>,
}

/// `None` where the file has no such table.
pub(crate) fn read(section: &mut Section<'_, '_>) -> Option<AdminConfig> {
    let line = section.line_of("listen");
    let listen = section.read("listen", SOCKET, socket);
    let listen = listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)));
    let key_hashes = section
        .read_hidden(
            "key_hash",
            "\"sha256:\" and 64 hexadecimal digits, or a list of such texts",
            hashes,
        )
        .unwrap_or_default();
    let tls = section.table("tls", tls::read).flatten();
    section.line()?;
    if !listen.ip().is_loopback() && key_hashes.is_empty() {
        let message = format!(
            "listen: other machines reach {listen}: want key_hash, which `tandem keys new --admin` makes"
        );
        section.refuse(line, &message);
    }
    Some(AdminConfig {
        listen,
        key_hashes,
        tls,
    })
}

fn hashes(value: &DeValue<'_>) -> Option<Vec<Sha256>> {
    let Some(list) = value.as_array() else {
        return hash(value).map(|hash| vec![hash]);
    };
    let hashes: Option<Vec<_>> = list.iter().map(|entry| hash(entry.get_ref())).collect();
    hashes.filter(|hashes| !hashes.is_empty())
}

/// `sha256:` and the digits.
pub(crate) fn hash(value: &DeValue<'_>) -> Option<Sha256> {
    value.as_str()?.strip_prefix("sha256:")?.parse().ok()
}
