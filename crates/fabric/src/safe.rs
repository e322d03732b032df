//! Owning types over libfabric's objects: each closes its object once, after those that need it.
//!
//! All are used by one thread (`FI_THREAD_DOMAIN`), which `Rc` and raw pointers make the compiler
//! check: none is `Send`.

pub(crate) mod domain;
pub(crate) mod endpoint;
pub(crate) mod hints;
#[cfg(test)]
mod overrun;
pub(crate) mod promises;

use crate::error::{CallError, Errno};

/// Names the call in its error.
pub(crate) fn check(call: &'static str, code: impl Into<i64>) -> Result<usize, CallError> {
    Errno::check(code).map_err(|errno| CallError { call, errno })
}
