//! The cluster's private authority, and the certificates that it makes.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use time::OffsetDateTime;

use super::{CA_CERT, Certificate, IdentityError, PeerRole, content, file};

const CA_KEY: &str = "ca.key";
const DAY: u64 = 86_400;
/// Clocks may differ by so many seconds: a certificate is valid from a little before it was made.
const EARLIER: u64 = 3600;
/// Of an authority and of certificates that were made without a word about it.
const CA_DAYS: u32 = 7300;
const DAYS: u32 = 3650;

/// The cluster's private authority: whoever holds its key can let processes in.
#[derive(Debug)]
pub struct Authority {
    directory: PathBuf,
    certificate: String,
    /// Seconds since 1970 at which it ends, and with it all that it signed.
    until: u64,
    issuer: Issuer<'static, KeyPair>,
}

/// What a certificate shall say beside its role and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// For how long it is valid; cut to what is left of the authority's own time.
    pub days: u32,
    /// Further names or addresses.
    pub names: Vec<String>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            days: DAYS,
            names: Vec::new(),
        }
    }
}

impl Authority {
    /// Makes an authority in `directory`, where there is none.
    pub fn create(directory: &Path, days: u32) -> Result<Self, IdentityError> {
        let (cert_path, key_path) = (directory.join(CA_CERT), directory.join(CA_KEY));
        fs::create_dir_all(directory).map_err(|e| file(directory, e))?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params
            .distinguished_name
            .push(DnType::CommonName, "Tandem cluster authority");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        date(&mut params, now() + u64::from(days) * DAY)?;
        let certificate = params.self_signed(&key)?;
        refuse_existing(&[&cert_path, &key_path])?;
        write_private(&key_path, &key.serialize_pem())?;
        write_public(&cert_path, &certificate.pem())?;
        Self::open(directory)
    }

    /// Opens the authority in `directory`.
    pub fn open(directory: &Path) -> Result<Self, IdentityError> {
        let (cert_path, key_path) = (directory.join(CA_CERT), directory.join(CA_KEY));
        if !cert_path.exists() {
            return Err(content(&cert_path, "there is no authority in this folder"));
        }
        let certificate = fs::read_to_string(&cert_path).map_err(|e| file(&cert_path, e))?;
        let key = fs::read_to_string(&key_path).map_err(|e| file(&key_path, e))?;
        let key = KeyPair::from_pem(&key).map_err(|e| content(&key_path, e))?;
        let issuer =
            Issuer::from_ca_cert_pem(&certificate, key).map_err(|e| content(&cert_path, e))?;
        Ok(Self {
            directory: directory.to_owned(),
            until: Certificate::read(&cert_path)?.not_after,
            certificate,
            issuer,
        })
    }

    /// Opens the authority in `directory`, or makes one there.
    pub fn open_or_create(directory: &Path) -> Result<Self, IdentityError> {
        if directory.join(CA_CERT).exists() {
            Self::open(directory)
        } else {
            Self::create(directory, CA_DAYS)
        }
    }

    /// Makes a certificate for `role` and writes `<name>.pem` and `<name>.key` beside the
    /// authority's own, over older ones.
    pub fn issue(&self, role: &PeerRole) -> Result<(), IdentityError> {
        let stem = role.file_stem();
        self.write(stem, role.names(), DAYS, &KeyPair::generate()?, true)
    }

    /// Makes a certificate for `role` and writes `<stem>.pem` and `<stem>.key` beside the authority's
    /// own, where there are none. A worker's stem is its id.
    pub fn issue_new(
        &self,
        stem: &str,
        role: &PeerRole,
        terms: &Terms,
    ) -> Result<(), IdentityError> {
        let [cert_path, key_path] = self.paths(stem)?;
        refuse_existing(&[&cert_path, &key_path])?;
        let mut names = role.names();
        for name in &terms.names {
            if !is_name(name) {
                let reason = format!("want a host's name or an IP address, got {name:?}");
                return Err(content(&cert_path, reason));
            }
            names.push(name.clone());
        }
        self.write(stem, names, terms.days, &KeyPair::generate()?, true)
    }

    /// Makes the certificate of those files anew, for the same role and names, with the same key or
    /// with another; for as long as the last one was valid, where `days` does not say.
    pub fn renew(&self, stem: &str, days: Option<u32>, new_key: bool) -> Result<(), IdentityError> {
        let [cert_path, key_path] = self.paths(stem)?;
        let old = Certificate::read(&cert_path)?;
        if old.peer.is_none() {
            return Err(content(
                &cert_path,
                "is no gateway's and no worker's certificate",
            ));
        }
        let key = if new_key {
            KeyPair::generate()?
        } else {
            let pem = fs::read_to_string(&key_path).map_err(|e| file(&key_path, e))?;
            KeyPair::from_pem(&pem).map_err(|e| content(&key_path, e))?
        };
        let days = days.unwrap_or_else(|| old.days());
        self.write(stem, old.names, days, &key, new_key)
    }

    fn paths(&self, stem: &str) -> Result<[PathBuf; 2], IdentityError> {
        let path = |ending| self.directory.join(format!("{stem}.{ending}"));
        if stem.is_empty() || stem.contains('/') || stem == "ca" {
            return Err(content(
                &path("pem"),
                "want a name that is not \"ca\" and holds no \"/\"",
            ));
        }
        Ok([path("pem"), path("key")])
    }

    fn write(
        &self,
        stem: &str,
        names: Vec<String>,
        days: u32,
        key: &KeyPair,
        with_key: bool,
    ) -> Result<(), IdentityError> {
        let [cert_path, key_path] = self.paths(stem)?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, stem);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        date(&mut params, (now() + u64::from(days) * DAY).min(self.until))?;
        let certificate = params.signed_by(key, &self.issuer)?;
        if with_key {
            write_private(&key_path, &key.serialize_pem())?;
        }
        write_public(&cert_path, &(certificate.pem() + &self.certificate))
    }
}

/// Whether a certificate can hold it: an address, or a host's name (RFC 1123), the first part of which may be
/// `*`.
fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(known)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let host = name.strip_prefix("*.").unwrap_or(name);
    name.parse::<IpAddr>().is_ok() || name.len() <= 253 && host.split('.').all(label)
}

/// From now until then, under a number of its own: two certificates of one key differ in it.
fn date(params: &mut CertificateParams, until: u64) -> Result<(), IdentityError> {
    let moment = |seconds: u64| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(seconds)
            .map_err(|error| IdentityError::Tls(error.to_string()))
    };
    params.not_before = moment(now() - EARLIER)?;
    params.not_after = moment(until)?;
    let mut number = [0; 16];
    let filled = SystemRandom::new().fill(&mut number);
    filled.map_err(|_| IdentityError::Tls("no random numbers".to_owned()))?;
    // Positive, and of full length.
    number[0] = number[0] & 0x3f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&number));
    Ok(())
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(EARLIER, |time| time.as_secs().max(EARLIER))
}

fn refuse_existing(paths: &[&Path]) -> Result<(), IdentityError> {
    match paths.iter().find(|path| path.exists()) {
        Some(path) => Err(IdentityError::Exists {
            path: (*path).to_owned(),
        }),
        None => Ok(()),
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), IdentityError> {
    write(path, text, 0o600)
}

fn write_public(path: &Path, text: &str) -> Result<(), IdentityError> {
    write(path, text, 0o644)
}

/// Writes beside and renames, so that a reader never sees half a key.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), IdentityError> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|e| file(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tandem_core::WorkerId;

    #[test]
    fn keys_are_private_and_an_authority_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = Authority::open_or_create(folder.path()).unwrap();
        let again = Authority::open_or_create(folder.path()).unwrap();
        assert_eq!(first.certificate, again.certificate);
        let mode = |name: &str| {
            let data = fs::metadata(folder.path().join(name)).unwrap();
            data.permissions().mode() & 0o777
        };
        assert_eq!(mode(CA_KEY), 0o600);
        let twice = Authority::create(folder.path(), 1).unwrap_err();
        assert!(
            twice.to_string().contains("ca.pem is there already"),
            "{twice}"
        );
        first.issue(&PeerRole::Gateway).unwrap();
        assert_eq!(mode("gateway.key"), 0o600);
    }

    #[test]
    fn a_new_certificate_takes_no_others_place_and_a_renewed_one_says_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), 100).unwrap();
        let worker = PeerRole::Worker(WorkerId::new("decode_0.x").unwrap());
        let terms = Terms {
            days: 10,
            names: vec!["node7.example".into(), "10.0.0.7".into()],
        };
        authority.issue_new("decode_0.x", &worker, &terms).unwrap();
        let twice = authority
            .issue_new("decode_0.x", &worker, &terms)
            .unwrap_err();
        assert!(matches!(twice, IdentityError::Exists { .. }), "{twice}");
        let path = |ending: &str| folder.path().join(format!("decode_0.x.{ending}"));
        let read = || {
            (
                Certificate::read(&path("pem")).unwrap(),
                fs::read(path("key")).unwrap(),
            )
        };
        let (first, first_key) = read();
        assert_eq!(first.peer, Some(worker));
        assert!(
            first.names.contains(&"node7.example".to_owned()),
            "{first:?}"
        );
        assert!(first.names.contains(&"10.0.0.7".to_owned()), "{first:?}");
        assert!(first.not_after.abs_diff(now() + 10 * DAY) < 60);

        authority.renew("decode_0.x", Some(20), false).unwrap();
        let (second, second_key) = read();
        assert_eq!((&second.names, &second.peer), (&first.names, &first.peer));
        assert_eq!(second_key, first_key);
        assert!(second.not_after > first.not_after && second.serial != first.serial);
        // As long as the one before.
        authority.renew("decode_0.x", None, false).unwrap();
        assert!(read().0.not_after.abs_diff(now() + 20 * DAY) < 60);
        // Longer than the authority's own time.
        authority.renew("decode_0.x", Some(1000), true).unwrap();
        let (third, third_key) = read();
        assert_ne!(third_key, first_key);
        assert!(third.not_after.abs_diff(now() + 100 * DAY) < 60);
        for odd in ["ca", "a/b", "", "nobody"] {
            assert!(authority.renew(odd, Some(1), false).is_err(), "{odd}");
        }
    }

    #[test]
    fn names_that_no_host_has_are_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), 100).unwrap();
        for odd in [
            "",
            "a b",
            "http://a",
            "a:1",
            "a..b",
            "-a",
            "1.2.3.4/8",
            "é",
            "a.*",
        ] {
            let terms = Terms {
                days: 1,
                names: vec![odd.to_owned()],
            };
            let refused = authority
                .issue_new("g", &PeerRole::Gateway, &terms)
                .unwrap_err();
            assert!(
                refused.to_string().contains(&format!("{odd:?}")),
                "{refused}"
            );
        }
        for name in ["a", "*.example", "node_7.example", "::1", "10.0.0.7"] {
            assert!(is_name(name), "{name}");
        }
        assert!(!folder.path().join("g.pem").exists());
    }

    #[test]
    fn a_folder_without_an_authority_is_said_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Authority::open(&folder.path().join("no")).unwrap_err();
        let end = "no/ca.pem: there is no authority in this folder";
        assert!(refused.to_string().ends_with(end), "{refused}");
    }
}
