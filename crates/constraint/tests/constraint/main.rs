//! Constraints on the vocabulary of SmolLM2-135M-Instruct.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod refused;
mod schema;
mod walks;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use tandem_constraint::Grammars;
use tandem_text::TextModel;

/// The real model's tokenizer, which `make test` fetches.
static TEXT: LazyLock<Arc<TextModel>> = LazyLock::new(|| {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cached = home
        .unwrap_or_default()
        .join(".cache/tandem/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("TANDEM_TEST_MODEL").map_or(cached, PathBuf::from);
    assert!(
        path.exists(),
        "test model {} is missing: run `make test`, which fetches it, or set TANDEM_TEST_MODEL",
        path.display()
    );
    Arc::new(TextModel::load(&path).unwrap())
});

static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(Arc::clone(&TEXT)));
