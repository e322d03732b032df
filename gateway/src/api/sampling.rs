//! How tokens are chosen and where answers end: the parameters that OpenAI's APIs and vLLM share.

use serde_json::Value;
use tandem_text::TextModel;
use tandem_wire::proto;

use super::constraint;
use super::error::ApiError;
use super::params::Params;
use super::request::{Drawing, Known, OutputLength, Routing};

/// Stop texts that one request may have.
const MAX_STOPS: usize = 4;
/// Bytes of a stop text.
const MAX_STOP_BYTES: usize = 4096;
/// Tokens that a request may push up or down, and that may end its answers.
const MAX_BIASES: usize = 1024;
const MAX_STOP_TOKENS: usize = 64;
/// Entries of `metadata`, and characters of each one's key and text.
const MAX_METADATA: usize = 16;
const MAX_METADATA_KEY: usize = 64;
const MAX_METADATA_TEXT: usize = 512;

/// Takes all that says how answers are drawn. `logprobs` is set by who knows its endpoint's form.
pub(crate) fn drawing(
    params: &mut Params,
    text: &TextModel,
    known: &Known,
) -> Result<Drawing, ApiError> {
    let vocabulary = text.vocabulary();
    let stop = proto::Stop {
        max_tokens: 0,
        texts: stop_texts(params, "stop", MAX_STOPS)?,
        ignore_eos: params.boolean("ignore_eos")?.unwrap_or(false),
        min_tokens: count(params, "min_tokens")?,
        token_ids: token_ids(params, "stop_token_ids", MAX_STOP_TOKENS, vocabulary)?,
    };
    let answers = params.integer(
        "n",
        1..=i64::try_from(known.max_choices).unwrap_or(i64::MAX),
    )?;
    let held = constraint::read(params)?;
    let sampling = proto::Sampling {
        logit_bias: logit_bias(params, vocabulary)?,
        min_p: params.number("min_p", 0.0..=1.0)?.unwrap_or(0.0),
        presence_penalty: params
            .number("presence_penalty", -2.0..=2.0)?
            .unwrap_or(0.0),
        frequency_penalty: params
            .number("frequency_penalty", -2.0..=2.0)?
            .unwrap_or(0.0),
        repetition_penalty: positive(params, "repetition_penalty", 10.0)?,
        ..temperature(params, 2.0)?
    };
    Ok(Drawing {
        answers: answers.and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
        sampling,
        held,
        seed: seed(params)?,
        stop,
    })
}

/// Temperature, `top_p` and `top_k`.
pub(crate) fn temperature(params: &mut Params, most: f64) -> Result<proto::Sampling, ApiError> {
    // -1 is vLLM's word for no limit.
    let top_k = params.integer("top_k", -1..=i64::from(u32::MAX))?;
    Ok(proto::Sampling {
        temperature: params.number("temperature", 0.0..=most)?.unwrap_or(1.0),
        // 0 leaves the likeliest token, as any share does that it alone exceeds.
        top_p: params
            .number("top_p", 0.0..=1.0)?
            .unwrap_or(1.0)
            .max(f32::MIN_POSITIVE),
        top_k: top_k.and_then(|k| u32::try_from(k).ok()).unwrap_or(0),
        ..proto::Sampling::default()
    })
}

/// Any number of 64 bits, signed or not.
fn seed(params: &mut Params) -> Result<Option<u64>, ApiError> {
    const WANT: &str = "a whole number of 64 bits";
    let Some(value) = params.take("seed") else {
        return Ok(None);
    };
    if let Some(seed) = value.as_i64().map(i64::cast_unsigned).or(value.as_u64()) {
        return Ok(Some(seed));
    }
    if !value.is_number() {
        return Err(ApiError::kind_of("seed", WANT, &value));
    }
    let message = format!("Invalid 'seed': expected {WANT}, but got {value} instead.");
    Err(ApiError::value("seed", message))
}

fn positive(params: &mut Params, field: &str, most: f64) -> Result<Option<f32>, ApiError> {
    let number = params.number(field, 0.0..=most)?;
    if number.is_some_and(|number| number <= 0.0) {
        let name = params.name(field);
        let message = format!("Invalid '{name}': expected a value > 0, but got 0 instead.");
        return Err(ApiError::value(name, message));
    }
    Ok(number)
}

fn count(params: &mut Params, field: &str) -> Result<u32, ApiError> {
    let number = params.integer(field, 0..=i64::from(u32::MAX))?;
    Ok(number.and_then(|n| u32::try_from(n).ok()).unwrap_or(0))
}

/// Words of the client's own, within OpenAI's bounds. They change nothing.
fn metadata(params: &mut Params) -> Result<(), ApiError> {
    let Some(metadata) = params.object("metadata")? else {
        return Ok(());
    };
    let entries = metadata.into_rest();
    if entries.len() > MAX_METADATA {
        let found = entries.len();
        let message =
            format!("Invalid 'metadata': at most {MAX_METADATA} entries, but got {found}.");
        return Err(ApiError::value("metadata", message));
    }
    for (key, value) in &entries {
        let name = format!("metadata.{key}");
        let Value::String(text) = value else {
            return Err(ApiError::kind_of(name, "a string", value));
        };
        let (key, text) = (key.chars().count(), text.chars().count());
        if key > MAX_METADATA_KEY || text > MAX_METADATA_TEXT {
            let message = format!(
                "Invalid 'metadata': keys have at most {MAX_METADATA_KEY} characters and texts \
                 {MAX_METADATA_TEXT}, but got {key} and {text}."
            );
            return Err(ApiError::value("metadata", message));
        }
    }
    Ok(())
}

/// A count of tokens to generate.
pub(crate) fn max_tokens(params: &mut Params, field: &str) -> Result<Option<u64>, ApiError> {
    let count = params.integer(field, 1..=i64::MAX)?;
    // What is over the context is refused where the context is known.
    Ok(count.map(i64::unsigned_abs))
}

/// No answer can be shorter than it may be long.
pub(crate) fn check_least(stop: &proto::Stop, output: OutputLength) -> Result<(), ApiError> {
    let least = u64::from(stop.min_tokens);
    match output.asked {
        Some(most) if least > most => Err(too_few(least, most)),
        _ => Ok(()),
    }
}

/// `min_tokens` is over what may be generated.
pub(crate) fn too_few(least: u64, most: u64) -> ApiError {
    let message =
        format!("Invalid 'min_tokens': {least} is more than the {most} that may be generated.");
    ApiError::value("min_tokens", message)
}

/// Texts that end an answer: one, or an array of at most `most`.
pub(crate) fn stop_texts(
    params: &mut Params,
    field: &str,
    most: usize,
) -> Result<Vec<String>, ApiError> {
    let want = "a string or an array of strings";
    let entries = match params.take(field) {
        None => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(text @ Value::String(_)) => vec![text],
        Some(other) => return Err(ApiError::kind_of(field, want, &other)),
    };
    let invalid = |what: String| ApiError::value(field, format!("Invalid '{field}': {what}."));
    if entries.len() > most {
        let found = entries.len();
        return Err(invalid(format!("at most {most} texts, but got {found}")));
    }
    let text = |entry| match entry {
        Value::String(text) if text.is_empty() => {
            Err(invalid("an empty text is everywhere".to_owned()))
        }
        Value::String(text) if text.len() > MAX_STOP_BYTES => {
            let found = text.len();
            Err(invalid(format!(
                "at most {MAX_STOP_BYTES} bytes, but got {found}"
            )))
        }
        Value::String(text) => Ok(text),
        other => Err(ApiError::kind_of(field, want, &other)),
    };
    entries.into_iter().map(text).collect()
}

/// A list of at most `most` tokens of the model.
pub(crate) fn token_ids(
    params: &mut Params,
    field: &str,
    most: usize,
    vocabulary: u32,
) -> Result<Vec<u32>, ApiError> {
    let Some(entries) = params.array(field)? else {
        return Ok(Vec::new());
    };
    let name = params.name(field);
    if entries.len() > most {
        let found = entries.len();
        let message = format!("Invalid '{name}': at most {most} tokens, but got {found}.");
        return Err(ApiError::value(name, message));
    }
    let token = |entry: &Value| {
        let token = entry.as_u64();
        let token =
            token.ok_or_else(|| ApiError::kind_of(&*name, "an array of token ids", entry))?;
        match u32::try_from(token) {
            Ok(token) if token < vocabulary => Ok(token),
            _ => Err(no_token(&name, &token.to_string(), vocabulary)),
        }
    };
    entries.iter().map(token).collect()
}

/// The model has no such token.
pub(crate) fn no_token(field: &str, token: &str, vocabulary: u32) -> ApiError {
    let shown: String = token.chars().take(32).collect();
    let message = format!("Invalid '{field}': the model has {vocabulary} tokens, no {shown}.");
    ApiError::value(field, message)
}

fn logit_bias(params: &mut Params, vocabulary: u32) -> Result<Vec<proto::LogitBias>, ApiError> {
    const FIELD: &str = "logit_bias";
    let Some(biases) = params.object(FIELD)? else {
        return Ok(Vec::new());
    };
    let biases = biases.into_rest();
    if biases.len() > MAX_BIASES {
        let found = biases.len();
        let message = format!("Invalid '{FIELD}': at most {MAX_BIASES} tokens, but got {found}.");
        return Err(ApiError::value(FIELD, message));
    }
    let entry = |(token, bias): (String, Value)| {
        // Written as JSON writes numbers, so that no token stands there twice.
        let plain = |id: &u32| *id < vocabulary && id.to_string() == token;
        let id = token.parse::<u32>().ok().filter(plain);
        let id = id.ok_or_else(|| no_token(FIELD, &token, vocabulary))?;
        let number = bias.as_f64();
        let number = number.ok_or_else(|| ApiError::kind_of(FIELD, "numbers", &bias))?;
        if !(-100.0..=100.0).contains(&number) {
            let message =
                format!("Invalid '{FIELD}': expected values from -100 to 100, but got {number}.");
            return Err(ApiError::value(FIELD, message));
        }
        Ok(proto::LogitBias {
            token: id,
            bias: number as f32,
        })
    };
    biases.into_iter().map(entry).collect()
}

/// Fields that say who asks and why. They change no answer.
pub(crate) fn routing(params: &mut Params) -> Result<Routing, ApiError> {
    let mut affinity = None;
    for field in ["prompt_cache_key", "safety_identifier", "user"] {
        let text = params.text(field)?;
        affinity = affinity.or(text);
    }
    metadata(params)?;
    let priority = params.integer("priority", i64::from(i32::MIN)..=i64::from(i32::MAX))?;
    Ok(Routing {
        priority: priority.and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
        affinity: affinity.map(Into::into),
    })
}
