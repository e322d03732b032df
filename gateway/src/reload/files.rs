//! The files that a configuration is made of, and whether they have changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ring::digest;
use tandem_config::{AuthConfig, GatewayConfig};

/// A file's path, and SHA-256 of what is in it, in hexadecimal; `None` where it cannot be read.
pub(crate) type Digest = (PathBuf, Option<String>);

/// What tells one state of a file from another without reading it.
type Stamp = Option<[i64; 6]>;

/// The files in the state in which they were last taken.
#[derive(Debug)]
pub(crate) struct Files {
    /// The configuration file is the first.
    digests: Vec<Digest>,
    taken: Vec<Stamp>,
    /// A later state, seen by the latest look.
    seen: Option<Vec<Stamp>>,
}

impl Files {
    /// The configuration file and all that it names and a reload reads.
    pub(crate) fn of(file: &Path, config: &GatewayConfig) -> Self {
        let mut paths = vec![file.to_owned()];
        if let AuthConfig::Keys(required) = &config.auth {
            paths.extend(required.keys.clone());
            paths.extend(required.jwt.as_ref().map(|jwt| jwt.jwks.clone()));
        }
        let taken = paths.iter().map(|path| stamp(path)).collect();
        let digests = paths.into_iter().map(|path| {
            let digest = fs::read(&path).ok().map(|bytes| hex(&bytes));
            (path, digest)
        });
        Self {
            digests: digests.collect(),
            taken,
            seen: None,
        }
    }

    pub(crate) fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// One look: whether they have changed and have not changed further since the look before.
    pub(crate) fn have_settled(&mut self) -> bool {
        let now = self.stamps();
        if now == self.taken {
            self.seen = None;
            return false;
        }
        let settled = self.seen.as_ref() == Some(&now);
        self.seen = Some(now);
        settled
    }

    /// Takes note of the files as they are, though what is in them is not used: only another change is
    /// worth another try.
    pub(crate) fn note(&mut self) {
        self.taken = self.stamps();
        self.seen = None;
    }

    /// Files beside the first that say something else in `new`.
    pub(crate) fn changed_beside(&self, new: &Self) -> Vec<PathBuf> {
        let known = |digest: &&Digest| !self.digests.contains(digest);
        let beside = new.digests.iter().skip(1);
        beside.filter(known).map(|(path, _)| path.clone()).collect()
    }

    fn stamps(&self) -> Vec<Stamp> {
        self.digests.iter().map(|(path, _)| stamp(path)).collect()
    }
}

fn stamp(path: &Path) -> Stamp {
    let data = fs::metadata(path).ok()?;
    let numbers = |n: u64| i64::from_ne_bytes(n.to_ne_bytes());
    Some([
        data.mtime(),
        data.mtime_nsec(),
        // A change of the contents always moves it, also where a program sets the other one back.
        data.ctime(),
        data.ctime_nsec(),
        numbers(data.ino()),
        numbers(data.len()),
    ])
}

fn hex(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &Path) -> Files {
        Files {
            digests: vec![(path.to_owned(), None)],
            taken: vec![stamp(path)],
            seen: None,
        }
    }

    #[test]
    fn a_change_is_taken_once_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "1").unwrap();
        let mut files = files(&path);
        assert!(!files.have_settled());
        fs::write(&path, "12").unwrap();
        assert!(!files.have_settled(), "it may go on");
        fs::write(&path, "123").unwrap();
        assert!(!files.have_settled(), "it went on");
        assert!(files.have_settled());
        files.note();
        assert!(!files.have_settled());
        assert!(
            !files.have_settled(),
            "what was of no use once is of none again"
        );
        fs::remove_file(&path).unwrap();
        assert!(!files.have_settled());
        assert!(files.have_settled());
    }

    #[test]
    fn a_file_put_in_the_places_of_another_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("f"), folder.path().join("g"));
        fs::write(&path, "1").unwrap();
        let mut files = files(&path);
        fs::write(&other, "2").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!files.have_settled());
        assert!(files.have_settled());
    }

    #[test]
    fn digests_are_those_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(b""), empty);
    }
}
