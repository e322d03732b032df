//! vLLM's `/tokenize` and `/detokenize`.

use serde_json::{Value, json};
use tandem_text::TextModel;

use super::budget;
use super::error::ApiError;
use super::openai::{chat, messages};
use super::params::Params;
use super::prompt::words_of;
use super::request::{Endpoint, Known};
use super::sampling::token_ids;

/// Tokens of a text or of a chat.
pub(crate) fn tokenize(body: &[u8], text: &TextModel, known: &Known) -> Result<Value, ApiError> {
    let mut params = Params::parse(body)?;
    model(&mut params, known)?;
    let strings = params.boolean("return_token_strs")?.unwrap_or(false);
    let special = params.boolean("add_special_tokens")?;
    type Encode = fn(&TextModel, &str) -> Vec<u32>;
    let (words, param, encode): (_, _, Encode) = match (params.text("prompt")?, special) {
        (Some(prompt), special) => {
            params.finish(&[])?;
            let encode = match special {
                None | Some(true) => TextModel::encode,
                Some(false) => TextModel::encode_bare,
            };
            (prompt, "prompt", encode)
        }
        (None, special) => {
            let encode = match special {
                Some(true) => TextModel::encode_rendered_begun,
                None | Some(false) => TextModel::encode_rendered,
            };
            (rendered(params, text, known)?, "messages", encode)
        }
    };
    if words.len() > known.longest_text {
        return Err(budget::too_long(param, known.context, None));
    }
    let tokens = encode(text, &words);
    let shown = |token: &u32| words_of(&[*token], text);
    let strings = strings.then(|| tokens.iter().map(shown).collect::<Vec<_>>());
    Ok(json!({
        "count": tokens.len(),
        "max_model_len": known.context,
        "tokens": tokens,
        "token_strs": strings,
    }))
}

/// The text of tokens.
pub(crate) fn detokenize(body: &[u8], text: &TextModel, known: &Known) -> Result<Value, ApiError> {
    let mut params = Params::parse(body)?;
    model(&mut params, known)?;
    if params.peek("tokens").is_none() {
        return Err(ApiError::missing("tokens"));
    }
    let most = known.context as usize;
    let tokens = token_ids(&mut params, "tokens", most, text.vocabulary())?;
    params.finish(&[])?;
    Ok(json!({"prompt": words_of(&tokens, text)}))
}

/// Only one is served, so it need not be named.
fn model(params: &mut Params, known: &Known) -> Result<(), ApiError> {
    match params.text("model")? {
        Some(model) => known.check(&model),
        None => Ok(()),
    }
}

fn rendered(mut params: Params, text: &TextModel, known: &Known) -> Result<String, ApiError> {
    if params.peek("messages").is_none() {
        return Err(ApiError::missing("prompt"));
    }
    let messages = messages::read(&mut params)?;
    let rendering = chat::rendering(&mut params, text)?;
    params.finish(&[])?;
    let prompt = rendering.render(messages, Endpoint::Chat, text, known)?;
    Ok(prompt)
}
