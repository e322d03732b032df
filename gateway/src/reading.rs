//! Reading requests off the I/O threads: JSON, chat template and tokenizer cost time in proportion
//! to what the client sent.
//!
//! What must hold: no more threads read than were configured, also when clients leave; where there are two
//! or more, one is left for small bodies, whatever large ones come; a prompt that
//! cannot fit the context by its length alone is not tokenised; a constraint is compiled apart from the
//! threads that read, few at a time, so that requests without one never wait for it.

mod threads;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tandem_config::GatewayConfig;
use tandem_constraint::Grammars;
use tandem_dialect::{Dialect, UnknownDialect};
use tandem_text::{TextError, TextModel, served_name};
use tokio::sync::watch;

use crate::api::error::ApiError;
use crate::api::request::{Endpoint, Known, Request};
use crate::door::View;
use threads::Threads;

/// Normalisation may make a text shorter, NFC down to a third of its bytes.
const NORMALISED: usize = 3;
/// Constraints that are compiled at a time, at most: each takes a core.
const COMPILING: usize = 2;
/// Of a model that does not say.
const UNKNOWN_CONTEXT: u32 = u32::MAX;

/// The model's text side, and the threads that may use it.
#[derive(Clone)]
pub(crate) struct Reading {
    text: Arc<TextModel>,
    threads: Threads,
    grammars: Arc<Grammars>,
    compiling: Threads,
    /// Bytes of the longest token.
    longest_token: usize,
    /// The name of the model's file, where the model has none of its own.
    name: String,
    limits: watch::Sender<Limits>,
    dialect: Dialect,
    /// Control tokens that mark something in an answer, with their texts.
    markers: Arc<[(u32, &'static str)]>,
}

/// What the configuration says of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Threads that read.
    pub(crate) threads: usize,
    /// Tokens to generate where a request does not say.
    pub(crate) default_max_tokens: Option<u32>,
    /// Answers that one request may ask for.
    pub(crate) max_choices: usize,
}

impl Limits {
    pub(crate) const fn of(config: &GatewayConfig) -> Self {
        Self {
            threads: config.tokenizer_threads,
            default_max_tokens: config.default_max_tokens,
            max_choices: config.max_choices,
        }
    }
}

impl Reading {
    /// Loads the model's tokenizer and template. Costs about a second: not for an I/O thread.
    pub(crate) fn load(path: &Path, limits: Limits) -> Result<Self, TextError> {
        let text = TextModel::load(path)?;
        let longest = (0..text.vocabulary())
            .map(|token| text.token_bytes(token).len())
            .max();
        let dialect = Dialect::detect(&text.chat_template().unwrap_or_default());
        let name = served_name(path);
        let text = Arc::new(text);
        Ok(Self {
            name,
            longest_token: longest.unwrap_or(1).max(1),
            threads: Threads::new(limits.threads),
            grammars: Arc::new(Grammars::new(Arc::clone(&text))),
            compiling: Threads::new(COMPILING),
            limits: watch::Sender::new(limits),
            markers: markers(dialect, &text),
            dialect,
            text,
        })
    }

    /// The same, where the configuration says how the model marks what it thinks and calls.
    pub(crate) fn with_dialect(
        self,
        tools: Option<&str>,
        reasoning: Option<&str>,
    ) -> Result<Self, UnknownDialect> {
        let mut dialect = self.dialect;
        if let Some(name) = tools {
            dialect = dialect.with_tools(name)?;
        }
        if let Some(name) = reasoning {
            dialect = dialect.with_reasoning(name)?;
        }
        tracing::info!(
            tools = dialect.tools().unwrap_or("none"),
            reasoning = dialect.reasoning().unwrap_or("none"),
            "the model's dialect"
        );
        Ok(Self {
            markers: markers(dialect, &self.text),
            dialect,
            ..self
        })
    }

    /// The model's text side.
    pub(crate) fn text(&self) -> Arc<TextModel> {
        Arc::clone(&self.text)
    }

    /// The model's name while no worker has said it: as workers with the same file do.
    pub(crate) fn model_name(&self) -> &str {
        &self.name
    }

    /// Tokens of prompt and answer together: the workers', once they have said; they may run another
    /// model than the tokenizer comes with.
    pub(crate) fn context(&self, view: &View) -> u32 {
        let theirs = view.served.as_ref().map(|served| served.context_length);
        let own = || self.text.context_length();
        theirs.or_else(own).unwrap_or(UNKNOWN_CONTEXT)
    }

    /// The tokens that end an answer.
    pub(crate) fn end_tokens(&self) -> &[u32] {
        self.text.end_tokens()
    }

    /// Control tokens that mark something in an answer: their texts are part of it.
    pub(crate) fn markers(&self) -> Arc<[(u32, &'static str)]> {
        Arc::clone(&self.markers)
    }

    /// Reads requests by these limits from now on, but for the number of threads.
    pub(crate) fn follow(&self, limits: Limits) {
        self.limits.send_replace(limits);
    }

    /// Reads a request's body.
    pub(crate) async fn read(
        &self,
        endpoint: Endpoint,
        body: Bytes,
        view: &View,
    ) -> Result<Request, ApiError> {
        let request = self.with(view, body.len(), move |text, known| {
            Request::read(endpoint, &body, text, known)
        });
        self.check(request.await?).await
    }

    /// Refuses a request whose answers cannot be held to what it asks for.
    async fn check(&self, request: Request) -> Result<Request, ApiError> {
        if request.drawing.held.is_none() {
            return Ok(request);
        }
        let grammars = Arc::clone(&self.grammars);
        let compile = move || {
            let held = request.drawing.held.as_ref();
            held.map_or(Ok(()), |held| held.check(&grammars))?;
            Ok(request)
        };
        self.compiling.run(0, compile).await
    }

    /// Runs what needs the tokenizer or the template, on one of the threads. It reads `bytes`.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        view: &View,
        bytes: usize,
        read: impl FnOnce(&TextModel, &Known) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let known = self.known(view);
        let text = Arc::clone(&self.text);
        self.threads.run(bytes, move || read(&text, &known)).await
    }

    fn known(&self, view: &View) -> Known {
        let context = self.context(view);
        let limits = *self.limits.borrow();
        let longest_text = (context as usize)
            .saturating_mul(self.longest_token)
            .saturating_mul(NORMALISED);
        Known {
            names: view
                .served
                .iter()
                .map(|served| served.name.clone())
                .collect(),
            context,
            longest_text,
            default_max_tokens: limits.default_max_tokens,
            max_choices: limits.max_choices,
            dialect: self.dialect,
        }
    }
}

fn markers(dialect: Dialect, text: &TextModel) -> Arc<[(u32, &'static str)]> {
    let marker = |word: &'static str| Some((text.special_token(word)?, word));
    dialect.markers().filter_map(marker).collect()
}
