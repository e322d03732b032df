//! A prompt before it is tokens.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};
use tandem_text::{ChatOptions, TextModel};

use super::constraint::Held;
use super::error::ApiError;
use super::params::Params;
use super::request::{Endpoint, Known};
use super::tools::{Parsing, Tools};
use super::{budget, sampling};

/// Where a prompt's tokens come from.
#[derive(Debug)]
pub(crate) enum Prompt {
    /// The chat template's text.
    Rendered(String),
    /// A raw text.
    Text(String),
    /// Tokens already.
    Tokens(Vec<u32>),
}

impl Prompt {
    /// Its tokens: at least one, all of the model's.
    pub(crate) fn tokens(
        self,
        endpoint: Endpoint,
        text: &TextModel,
        known: &Known,
    ) -> Result<Arc<[u32]>, ApiError> {
        let param = endpoint.prompt_param();
        let tokens = match self {
            Self::Rendered(prompt) | Self::Text(prompt) if prompt.len() > known.longest_text => {
                return Err(budget::too_long(param, known.context, None));
            }
            Self::Rendered(prompt) => text.encode_rendered(&prompt),
            Self::Text(prompt) => text.encode(&prompt),
            Self::Tokens(tokens) => tokens,
        };
        let vocabulary = text.vocabulary();
        if let Some(strange) = tokens.iter().find(|token| **token >= vocabulary) {
            return Err(sampling::no_token(param, &strange.to_string(), vocabulary));
        }
        if tokens.is_empty() {
            let message = format!("Invalid '{param}': it holds no token.");
            return Err(ApiError::value(param, message));
        }
        Ok(tokens.into())
    }

    /// What it says, for an answer that repeats it.
    pub(crate) fn words(&self, text: &TextModel) -> String {
        match self {
            Self::Rendered(words) | Self::Text(words) => words.clone(),
            Self::Tokens(tokens) => words_of(tokens, text),
        }
    }
}

/// The text of tokens, as vLLM's `detokenize` gives it; bytes that are no characters are U+FFFD.
pub(crate) fn words_of(tokens: &[u32], text: &TextModel) -> String {
    let bytes: Vec<u8> = tokens
        .iter()
        .flat_map(|token| text.token_bytes(*token))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How a chat is to be rendered, as vLLM's clients say it.
#[derive(Debug)]
pub(crate) struct Rendering {
    pub(crate) tools: Option<Tools>,
    pub(crate) add_generation_prompt: bool,
    /// The last message is the beginning of the answer.
    pub(crate) continue_final_message: bool,
    pub(crate) template_kwargs: Map<String, Value>,
}

impl Rendering {
    /// Without anything special.
    pub(crate) fn plain(tools: Option<Tools>) -> Self {
        Self {
            tools,
            add_generation_prompt: true,
            continue_final_message: false,
            template_kwargs: Map::new(),
        }
    }

    /// Takes vLLM's fields.
    pub(crate) fn read(params: &mut Params, tools: Option<Tools>) -> Result<Self, ApiError> {
        let continue_final_message = params.boolean("continue_final_message")?.unwrap_or(false);
        let add = params.boolean("add_generation_prompt")?;
        if add == Some(true) && continue_final_message {
            let message =
                "'add_generation_prompt' and 'continue_final_message' exclude each other.";
            return Err(ApiError::value("continue_final_message", message));
        }
        let kwargs = params.object("chat_template_kwargs")?;
        Ok(Self {
            tools,
            add_generation_prompt: add.unwrap_or(!continue_final_message),
            continue_final_message,
            template_kwargs: kwargs.map(Params::into_rest).unwrap_or_default(),
        })
    }

    /// Says how hard the model is to think, where its template asks for that.
    pub(crate) fn effort(
        &mut self,
        effort: Option<String>,
        param: &str,
        text: &TextModel,
    ) -> Result<(), ApiError> {
        const VARIABLE: &str = "reasoning_effort";
        let Some(effort) = effort else {
            return Ok(());
        };
        if text.template_uses(VARIABLE) {
            self.template_kwargs
                .insert(VARIABLE.to_owned(), effort.into());
        } else if effort != "none" {
            return Err(ApiError::unsupported(
                param,
                " by this model's chat template",
            ));
        }
        Ok(())
    }

    /// The prompt's tokens, and how answers to it are read. `held` may learn what they must be.
    pub(crate) fn prompt(
        mut self,
        messages: Vec<Value>,
        endpoint: Endpoint,
        text: &TextModel,
        known: &Known,
        held: &mut Option<Held>,
    ) -> Result<(Arc<[u32]>, Option<Parsing>), ApiError> {
        let tools = self.tools.take();
        let definitions = tools.as_ref().map(|tools| tools.definitions.clone());
        let prompt = self.text(messages, definitions, endpoint, text, known)?;
        let parsing = Parsing::of(
            tools.as_ref(),
            (&prompt, endpoint),
            known.dialect,
            text,
            held,
        )?;
        Ok((
            Prompt::Rendered(prompt).tokens(endpoint, text, known)?,
            parsing,
        ))
    }

    /// The prompt's text, from messages as templates know them.
    pub(crate) fn render(
        mut self,
        messages: Vec<Value>,
        endpoint: Endpoint,
        text: &TextModel,
        known: &Known,
    ) -> Result<String, ApiError> {
        let definitions = self.tools.take().map(|tools| tools.definitions);
        self.text(messages, definitions, endpoint, text, known)
    }

    fn text(
        self,
        messages: Vec<Value>,
        tools: Option<Value>,
        endpoint: Endpoint,
        text: &TextModel,
        known: &Known,
    ) -> Result<String, ApiError> {
        let param = endpoint.prompt_param();
        // Each message is a token at least.
        if messages.len() > known.context as usize {
            return Err(budget::too_long(param, known.context, None));
        }
        if known.dialect.tools().is_none() {
            no_calls(&messages, tools.is_some(), param)?;
        }
        let begun = self.begun(&messages)?;
        let options = ChatOptions {
            add_generation_prompt: self.add_generation_prompt,
            tools,
            extra: self.template_kwargs,
            now: Some(SystemTime::now()),
        };
        let rendered = text.render_chat(&Value::Array(messages), options);
        let mut prompt = rendered.map_err(|error| ApiError::template(&error, param))?;
        if let Some(begun) = begun {
            let begun = text.as_rendered(&begun);
            let at = prompt
                .rfind(&*begun)
                .ok_or_else(|| cannot_continue(param))?;
            prompt.truncate(at + begun.len());
        }
        Ok(prompt)
    }

    /// The words that the answer goes on from.
    fn begun(&self, messages: &[Value]) -> Result<Option<String>, ApiError> {
        if !self.continue_final_message {
            return Ok(None);
        }
        let last = messages.last().filter(|last| last["role"] == "assistant");
        let words = last
            .and_then(|last| last["content"].as_str())
            .map(str::trim);
        match words {
            Some(words) if !words.is_empty() => Ok(Some(words.to_owned())),
            _ => Err(cannot_continue("continue_final_message")),
        }
    }
}

/// How a model's family writes calls has to be known, or its answers cannot be read.
fn no_calls(messages: &[Value], tools: bool, param: &str) -> Result<(), ApiError> {
    if tools {
        let why = " (how this model writes calls of tools is not known)";
        return Err(ApiError::unsupported("tools", why));
    }
    let called = |message: &Value| message["role"] == "tool" || message.get("tool_calls").is_some();
    if messages.iter().any(called) {
        return Err(ApiError::unsupported(param, " with calls of tools"));
    }
    Ok(())
}

fn cannot_continue(param: &str) -> ApiError {
    let message =
        "The last message has to be the assistant's, with a text that the answer goes on from.";
    ApiError::value(param, message)
}
