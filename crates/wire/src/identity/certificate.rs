//! What a certificate says, for people and for those who follow its renewal.

use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::digest;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tandem_core::WorkerId;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::{GATEWAY_NAME, IdentityError, PeerRole, WORKER_NAME, content, file, worker_name};

const DAY: u64 = 86_400;

/// What it says. Nothing of it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is; `None` where it is no gateway's and no worker's.
    pub peer: Option<PeerRole>,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// All names and addresses.
    pub names: Vec<String>,
    /// Seconds since 1970 from which it is valid.
    pub not_before: u64,
    /// Seconds since 1970 until which it is valid.
    pub not_after: u64,
    /// Its number, in hexadecimal.
    pub serial: String,
    /// SHA-256 of all of it, in hexadecimal.
    pub fingerprint: String,
}

impl Certificate {
    /// Reads the first certificate of a file.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let pem = std::fs::read(path).map_err(|e| file(path, e))?;
        let der = CertificateDer::from_pem_slice(&pem).map_err(|e| content(path, e))?;
        Self::parse(&der).map_err(|reason| content(path, reason))
    }

    pub(crate) fn parse(der: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|e| e.to_string())?;
        let names: Vec<String> = names
            .iter()
            .flat_map(|names| &names.value.general_names)
            .filter_map(shown)
            .collect();
        let validity = certificate.validity();
        let seconds = |timestamp: i64| u64::try_from(timestamp).unwrap_or(0);
        let fingerprint = digest::digest(&digest::SHA256, der);
        Ok(Self {
            peer: peer(&names),
            is_authority: certificate.is_ca(),
            names,
            not_before: seconds(validity.not_before.timestamp()),
            not_after: seconds(validity.not_after.timestamp()),
            serial: hex(certificate.raw_serial()),
            fingerprint: hex(fingerprint.as_ref()),
        })
    }

    /// In a word or two.
    #[must_use]
    pub fn role(&self) -> String {
        match &self.peer {
            Some(PeerRole::Gateway) => "gateway".to_owned(),
            Some(PeerRole::Worker(id)) => format!("worker {id}"),
            None if self.is_authority => "authority".to_owned(),
            None => "none".to_owned(),
        }
    }

    /// The day from which it is valid.
    #[must_use]
    pub fn from(&self) -> String {
        day(self.not_before)
    }

    /// Days for which it was made, rounded.
    #[must_use]
    pub fn days(&self) -> u32 {
        let seconds = self.not_after.saturating_sub(self.not_before);
        u32::try_from((seconds + DAY / 2) / DAY).unwrap_or(u32::MAX)
    }

    /// Whole days from now until its end; 0 where that is over too.
    #[must_use]
    pub fn days_left(&self) -> u64 {
        self.not_after.saturating_sub(now()) / DAY
    }

    /// The day until which it is valid, and how far away that is.
    #[must_use]
    pub fn until(&self) -> String {
        let until = day(self.not_after);
        if self.not_after < now() {
            return format!("{until} (over)");
        }
        format!("{until} ({} days)", self.days_left())
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}

fn day(seconds: u64) -> String {
    let moment = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    moment.map_or_else(|| seconds.to_string(), |moment| moment.date().to_string())
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or(v6).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// Whose certificate has these names.
fn peer(names: &[String]) -> Option<PeerRole> {
    if names.iter().any(|name| name == GATEWAY_NAME) {
        return Some(PeerRole::Gateway);
    }
    if !names.iter().any(|name| name == WORKER_NAME) {
        return None;
    }
    let id = |name: &String| {
        let digits = name.strip_suffix(WORKER_NAME)?.replace('.', "");
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        let id = WorkerId::new(String::from_utf8(bytes?).ok()?).ok()?;
        (worker_name(&id) == *name).then_some(PeerRole::Worker(id))
    };
    names.iter().find_map(id)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_worker_and_nothing_else_does() {
        let long = "x".repeat(63);
        for id in ["a", "decode-0", "A_b.c", &long] {
            let role = PeerRole::Worker(WorkerId::new(id).unwrap());
            assert_eq!(peer(&role.names()), Some(role));
        }
        let names =
            |names: &[&str]| peer(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&["gateway.tandem"]), Some(PeerRole::Gateway));
        for odd in [
            &["worker.tandem"][..],
            &["61.worker.tandem"],
            &["worker.tandem", "6g.worker.tandem"],
            &[],
        ] {
            assert_eq!(names(odd), None, "{odd:?}");
        }
    }
}
