//! Constraints on the vocabulary of SmolLM2-135M-Instruct.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod refused;
mod schema;
mod walks;

use std::sync::{Arc, LazyLock};

use tandem_constraint::Grammars;
use tandem_text::TextModel;
use tandem_text::testing::model_file;

/// The real model's tokenizer, which `make test` fetches.
static TEXT: LazyLock<Arc<TextModel>> =
    LazyLock::new(|| Arc::new(TextModel::load(&model_file()).unwrap()));

static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(Arc::clone(&TEXT)));
