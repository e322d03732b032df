//! What a client asks for, read from its request and checked; nothing of a worker is known here.

use serde_json::Value;
use tandem_text::TextModel;
use tandem_wire::proto;

use super::error::ApiError;
use super::params::Params;
use super::{chat, completions, unsupported};

/// Stop texts that one request may have.
const MAX_STOPS: usize = 4;

/// Which endpoint, and so which shape of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

impl Endpoint {
    /// In metrics and logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
        }
    }

    /// The field that holds the prompt.
    pub(crate) const fn prompt_param(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completions => "prompt",
        }
    }
}

/// A checked and tokenised request.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) tokens: Vec<u32>,
    pub(crate) output: OutputLength,
    pub(crate) sampling: proto::Sampling,
    pub(crate) stops: Vec<String>,
    pub(crate) ignore_eos: bool,
    /// vLLM's: among the caller's requests of a class a lower number is served first.
    pub(crate) priority: i32,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
}

/// How many tokens the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLength {
    pub(crate) asked: Option<u64>,
    /// The field it came from, or would have.
    pub(crate) param: &'static str,
    /// Where the client does not say; `None`: the rest of the context.
    pub(crate) default: Option<u32>,
}

/// What the gateway knows of the model that a request may name.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The names under which it is served; empty while that is not known.
    pub(crate) names: Vec<String>,
    /// Tokens of prompt and answer together.
    pub(crate) context: u32,
    /// The longest text, in bytes, that may fit the context; a longer one is not tokenised.
    pub(crate) longest_text: usize,
    /// `default_max_tokens` of the configuration.
    pub(crate) default_max_tokens: Option<u32>,
}

impl Ask {
    /// Reads a body. Costs time in proportion to it: not for an I/O thread.
    pub(crate) fn read(
        endpoint: Endpoint,
        body: &[u8],
        text: &TextModel,
        known: &Known,
    ) -> Result<Self, ApiError> {
        let mut params = Params::parse(body)?;
        check_model(&mut params, known)?;
        let (stream, include_usage) = streaming(&mut params)?;
        let stops = stops(&mut params)?;
        let ignore_eos = params.boolean("ignore_eos")?.unwrap_or(false);
        let mut sampling = sampling(&mut params)?;
        hints(&mut params)?;
        let priority = priority(&mut params)?;
        let (output, prompt, neutral) = match endpoint {
            Endpoint::Chat => {
                sampling.logprobs = chat::logprobs(&mut params)?;
                let output = chat::output_length(&mut params, known)?;
                (
                    output,
                    Prompt::Rendered(chat::render(&mut params, text)?),
                    unsupported::CHAT,
                )
            }
            Endpoint::Completions => {
                sampling.logprobs = completions::logprobs(&mut params)?;
                let output = completions::output_length(&mut params)?;
                (
                    output,
                    completions::prompt(&mut params)?,
                    unsupported::COMPLETIONS,
                )
            }
        };
        params.finish(neutral)?;
        let tokens = prompt.tokens(endpoint, text, known)?;
        Ok(Self {
            tokens,
            output,
            sampling,
            stops,
            ignore_eos,
            priority,
            stream,
            include_usage,
        })
    }
}

/// A prompt before it is tokenised.
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
    fn tokens(
        self,
        endpoint: Endpoint,
        text: &TextModel,
        known: &Known,
    ) -> Result<Vec<u32>, ApiError> {
        let tokens = match self {
            Self::Rendered(prompt) | Self::Text(prompt) if prompt.len() > known.longest_text => {
                return Err(super::budget::too_long(endpoint, known.context, None));
            }
            Self::Rendered(prompt) => text.encode_rendered(&prompt),
            Self::Text(prompt) => text.encode(&prompt),
            Self::Tokens(tokens) => tokens,
        };
        if let Some(strange) = tokens.iter().find(|token| **token >= text.vocabulary()) {
            let most = text.vocabulary();
            let message = format!("Invalid 'prompt': the model has {most} tokens, no {strange}.");
            return Err(ApiError::value("prompt", message));
        }
        if tokens.is_empty() {
            return Err(ApiError::value(
                "prompt",
                "Invalid 'prompt': it holds no token.",
            ));
        }
        Ok(tokens)
    }
}

fn check_model(params: &mut Params, known: &Known) -> Result<(), ApiError> {
    let model = params
        .text("model")?
        .ok_or_else(|| ApiError::missing("model"))?;
    if known.names.is_empty() || known.names.contains(&model) {
        return Ok(());
    }
    Err(ApiError::no_model(&model))
}

fn streaming(params: &mut Params) -> Result<(bool, bool), ApiError> {
    let stream = params.boolean("stream")?.unwrap_or(false);
    let Some(options) = params.take("stream_options") else {
        return Ok((stream, false));
    };
    let mut options = Params::within("stream_options", options)?;
    let include_usage = options.boolean("include_usage")?.unwrap_or(false);
    options.finish(unsupported::STREAM_OPTIONS)?;
    if !stream {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(ApiError::value("stream_options", message));
    }
    Ok((stream, include_usage))
}

fn stops(params: &mut Params) -> Result<Vec<String>, ApiError> {
    let entries = match params.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(text @ Value::String(_)) => vec![text],
        Some(other) => return Err(ApiError::kind_of("stop", "a string or an array", &other)),
    };
    if entries.len() > MAX_STOPS {
        let found = entries.len();
        let message = format!("Invalid 'stop': at most {MAX_STOPS} texts, but got {found}.");
        return Err(ApiError::value("stop", message));
    }
    let text = |entry| match entry {
        Value::String(text) if text.is_empty() => Err(ApiError::value(
            "stop",
            "Invalid 'stop': an empty text is everywhere.",
        )),
        Value::String(text) => Ok(text),
        other => Err(ApiError::kind_of(
            "stop",
            "a string or an array of strings",
            &other,
        )),
    };
    entries.into_iter().map(text).collect()
}

fn sampling(params: &mut Params) -> Result<proto::Sampling, ApiError> {
    let top_p = params.number("top_p", 0.0..=1.0)?.unwrap_or(1.0);
    if top_p <= 0.0 {
        let message = "Invalid 'top_p': expected a value > 0, but got 0 instead.";
        return Err(ApiError::value("top_p", message));
    }
    // -1 is vLLM's word for no limit.
    let top_k = params
        .integer("top_k", -1..=i64::from(u32::MAX))?
        .unwrap_or(0);
    let seed = params.integer("seed", i64::MIN..=i64::MAX)?;
    Ok(proto::Sampling {
        temperature: params.number("temperature", 0.0..=2.0)?.unwrap_or(1.0),
        top_p,
        top_k: u32::try_from(top_k).unwrap_or(0),
        seed: seed.map_or_else(rand::random, i64::cast_unsigned),
        logprobs: None,
        ..proto::Sampling::default()
    })
}

fn priority(params: &mut Params) -> Result<i32, ApiError> {
    let whole = i64::from(i32::MIN)..=i64::from(i32::MAX);
    let priority = params.integer("priority", whole)?.unwrap_or(0);
    Ok(i32::try_from(priority).unwrap_or(0))
}

/// Fields that say who asks and why. They change no answer.
fn hints(params: &mut Params) -> Result<(), ApiError> {
    for field in ["user", "safety_identifier", "prompt_cache_key"] {
        params.text(field)?;
    }
    match params.take("metadata") {
        None | Some(Value::Object(_)) => Ok(()),
        Some(other) => Err(ApiError::kind_of("metadata", "an object", &other)),
    }
}
