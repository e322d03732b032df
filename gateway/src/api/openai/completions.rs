//! `/v1/completions`.

use serde_json::Value;
use tandem_text::TextModel;

use super::chunks::ChunkForm;
use super::streaming::Streaming;
use crate::api::error::ApiError;
use crate::api::form::Form;
use crate::api::params::Params;
use crate::api::prompt::Prompt;
use crate::api::request::{Drawing, Endpoint, Known, OutputLength, Request};
use crate::api::sampling::{self, max_tokens};
use crate::api::unsupported;

/// OpenAI's default.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// Reads a completion whose model is known.
pub(crate) fn read(
    mut params: Params,
    text: &TextModel,
    known: &Known,
) -> Result<Request, ApiError> {
    let streaming = Streaming::read(&mut params)?;
    let mut drawing = sampling::drawing(&mut params, text, known)?;
    best_of(&mut params, &drawing)?;
    drawing.sampling.logprobs = logprobs(&mut params)?;
    let output = output_length(&mut params)?;
    sampling::check_least(&drawing.stop, output)?;
    let routing = sampling::routing(&mut params)?;
    let prompts = prompts(&mut params, drawing.answers, known)?;
    let echo = params.boolean("echo")?.unwrap_or(false);
    if echo && drawing.sampling.logprobs.is_some() {
        return Err(ApiError::unsupported("echo", " together with 'logprobs'"));
    }
    params.finish(unsupported::COMPLETIONS)?;
    let form = ChunkForm {
        logprobs: drawing.sampling.logprobs.is_some(),
        include_usage: streaming.include_usage,
        continuous: streaming.continuous,
    };
    let words = |prompt: &Prompt| prompt.words(text);
    let echoes = prompts.iter().filter(|_| echo).map(words).collect();
    let tokens = |prompt: Prompt| prompt.tokens(Endpoint::Completions, text, known);
    Ok(Request {
        prompts: prompts.into_iter().map(tokens).collect::<Result<_, _>>()?,
        drawing,
        output,
        stream: streaming.stream,
        form: Form::Completions(form, echoes),
        parsing: None,
        routing,
    })
}

/// All drawn answers are given: there is no better one to pick.
fn best_of(params: &mut Params, drawing: &Drawing) -> Result<(), ApiError> {
    let Some(best_of) = params.integer("best_of", 1..=i64::MAX)? else {
        return Ok(());
    };
    match usize::try_from(best_of)
        .unwrap_or(usize::MAX)
        .cmp(&drawing.answers)
    {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => {
            let n = drawing.answers;
            let message = format!("Invalid 'best_of': {best_of} is less than 'n', which is {n}.");
            Err(ApiError::value("best_of", message))
        }
        std::cmp::Ordering::Greater => Err(ApiError::unsupported("best_of", " over 'n'")),
    }
}

/// `prompt`: a text, tokens, or a list of either.
fn prompts(params: &mut Params, answers: usize, known: &Known) -> Result<Vec<Prompt>, ApiError> {
    const FIELD: &str = "prompt";
    let prompt = params.take(FIELD).ok_or_else(|| ApiError::missing(FIELD))?;
    let entries = match prompt {
        Value::String(text) => return Ok(vec![Prompt::Text(text)]),
        Value::Array(entries) => entries,
        other => return Err(ApiError::kind_of(FIELD, "a string or an array", &other)),
    };
    match entries.first() {
        None => {
            return Err(ApiError::value(
                FIELD,
                "Invalid 'prompt': it holds no token.",
            ));
        }
        Some(Value::Number(_)) => return Ok(vec![Prompt::Tokens(tokens(&entries)?)]),
        Some(_) => {}
    }
    let most = known.max_choices;
    if entries.len().saturating_mul(answers) > most {
        let found = entries.len();
        let message = format!(
            "Invalid 'prompt': {found} prompts with {answers} answers each are over the limit of \
             {most} answers for one request."
        );
        return Err(ApiError::value(FIELD, message));
    }
    let texts = entries[0].is_string();
    let prompt = |entry| match entry {
        Value::String(text) if texts => Ok(Prompt::Text(text)),
        Value::Array(inner) if !texts => tokens(&inner).map(Prompt::Tokens),
        other => Err(ApiError::kind_of(
            FIELD,
            "an array of strings or of token lists",
            &other,
        )),
    };
    entries.into_iter().map(prompt).collect()
}

fn tokens(entries: &[Value]) -> Result<Vec<u32>, ApiError> {
    let token = |entry: &Value| match entry.as_u64().map(u32::try_from) {
        Some(Ok(token)) => Ok(token),
        _ => Err(ApiError::kind_of("prompt", "an array of token ids", entry)),
    };
    entries.iter().map(token).collect()
}

/// How many alternatives are wanted for each token; `None`: no log probabilities at all.
fn logprobs(params: &mut Params) -> Result<Option<u32>, ApiError> {
    let count = params.integer("logprobs", 0..=5)?;
    Ok(count.and_then(|count| u32::try_from(count).ok()))
}

fn output_length(params: &mut Params) -> Result<OutputLength, ApiError> {
    Ok(OutputLength {
        asked: max_tokens(params, "max_tokens")?,
        param: "max_tokens",
        default: Some(DEFAULT_MAX_TOKENS),
    })
}
