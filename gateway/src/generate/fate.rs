//! How a request with all its answers ends, for the journals of all of them.

use std::sync::OnceLock;

use crate::api::error::ApiError;

/// Shared by what belongs to one request.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    status: OnceLock<u16>,
    error: OnceLock<String>,
}

impl Fate {
    /// The reply's status line is out.
    pub(crate) fn replied(&self, status: u16) {
        let _ = self.status.set(status);
    }

    /// It failed. Only the first reason counts: what follows comes of it.
    pub(crate) fn failed(&self, error: &ApiError) {
        let _ = self.status.set(error.status.as_u16());
        let _ = self.error.set(error.code.clone());
    }

    /// The reply's status, where one was sent.
    pub(crate) fn status(&self) -> Option<u16> {
        self.status.get().copied()
    }

    /// The code of the error that it failed with.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }
}
