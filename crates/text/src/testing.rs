//! The real model, for tests.

use std::path::PathBuf;

/// The file that `make test` fetches, or that `TANDEM_TEST_MODEL` names. Panics where it is not there.
#[must_use]
pub fn model_file() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cached = home.unwrap_or_default();
    let cached = cached.join(".cache/tandem/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("TANDEM_TEST_MODEL").map_or(cached, PathBuf::from);
    assert!(
        path.exists(),
        "test model {} is missing: run `make test`, which fetches it, or set TANDEM_TEST_MODEL",
        path.display()
    );
    path
}
