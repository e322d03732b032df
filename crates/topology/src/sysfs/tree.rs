//! Bounded reading below one root, whatever the links in it say.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::ReadError;

/// Bytes of one attribute: the kernel gives at most a page.
const MAX_TEXT: usize = 4096;

/// Entries of one folder: more than Linux has cpus, and more functions than a server has.
const MAX_ENTRIES: usize = 16_384;

/// A tree of which nothing outside is read. Paths are relative to its root, or below it.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(crate) fn open(root: &Path) -> Result<Self, ReadError> {
        let canonical = fs::canonicalize(root).map_err(|source| ReadError::Io {
            path: root.to_owned(),
            source,
        })?;
        Ok(Self { root: canonical })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where a path leads once all links are followed; `None` where nothing is there, as when a
    /// device has just been unplugged.
    pub(crate) fn resolve(&self, path: &Path) -> Result<Option<PathBuf>, ReadError> {
        let path = self.root.join(path);
        match fs::canonicalize(&path) {
            Ok(canonical) if canonical.starts_with(&self.root) => Ok(Some(canonical)),
            Ok(_) => Err(ReadError::Outside {
                path,
                root: self.root.clone(),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ReadError::Io { path, source }),
        }
    }

    /// A resolved path as the kernel writes it, without the root.
    pub(crate) fn below<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }

    /// The names in a folder, sorted; none where there is no such folder.
    pub(crate) fn names(&self, folder: &Path) -> Result<Vec<String>, ReadError> {
        let Some(path) = self.resolve(folder)? else {
            return Ok(Vec::new());
        };
        let failed = |source| ReadError::Io {
            path: path.clone(),
            source,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            if names.len() == MAX_ENTRIES {
                return Err(ReadError::TooMuch {
                    path,
                    limit: MAX_ENTRIES,
                    what: "entries",
                });
            }
            let name = entry.map_err(failed)?.file_name();
            names.push(name.into_string().map_err(|name| ReadError::Content {
                path: path.clone(),
                content: name.to_string_lossy().into_owned(),
                want: "names in UTF-8",
            })?);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// An attribute without the white space around it; `None` where there is none.
    pub(crate) fn text(&self, path: &Path) -> Result<Option<String>, ReadError> {
        let Some(path) = self.resolve(path)? else {
            return Ok(None);
        };
        let failed = |source| ReadError::Io {
            path: path.clone(),
            source,
        };
        // Opening a pipe would wait for its other end.
        if !fs::metadata(&path).map_err(failed)?.is_file() {
            return Err(ReadError::NotAFile { path });
        }
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(failed)?;
        let mut bounded = file.take(MAX_TEXT as u64 + 1);
        bounded.read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > MAX_TEXT {
            return Err(ReadError::TooMuch {
                path,
                limit: MAX_TEXT,
                what: "bytes",
            });
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) => Err(ReadError::Content {
                path,
                content: String::from_utf8_lossy(error.as_bytes()).into_owned(),
                want: "text in UTF-8",
            }),
        }
    }

    /// An attribute as `parse` reads it; `None` where there is none.
    pub(crate) fn parsed<T>(
        &self,
        path: &Path,
        want: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        let Some(content) = self.text(path)? else {
            return Ok(None);
        };
        match parse(&content) {
            Some(value) => Ok(Some(value)),
            None => Err(ReadError::Content {
                path: self.root.join(path),
                content,
                want,
            }),
        }
    }
}
