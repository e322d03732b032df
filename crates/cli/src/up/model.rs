//! Which model `up` serves.

use std::env;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The one that was named, or the one that the environment names, or the one that was fetched.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let named = named
        .map(Path::to_owned)
        .or_else(|| variable("TANDEM_MODEL"));
    let (path, hint) = match named {
        Some(path) => (path, ""),
        None => (
            fetched()?,
            ": `make model` fetches it, or name another with --model",
        ),
    };
    if path.exists() {
        std::path::absolute(&path)
            .map_err(|e| Failure::mendable(format!("{}: {e}", path.display())))
    } else {
        Err(Failure::mendable(format!(
            "no model at {}{hint}",
            path.display()
        )))
    }
}

/// Where `scripts/fetch-model` leaves it.
fn fetched() -> Result<PathBuf, Failure> {
    let cache = variable("TANDEM_CACHE")
        .or_else(|| variable("HOME").map(|home| home.join(".cache/tandem")))
        .ok_or_else(|| Failure::mendable("HOME is not set: name a model with --model"))?;
    Ok(cache.join("models").join(FILE))
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
