//! Tokenizer and chat template from a directory as Hugging Face lays it out.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

use crate::error::TextError;
use crate::model::Parts;
use crate::pieces::{MAX_VOCABULARY, Pieces, byte_level, sentence_piece};
use crate::template::{ChatTemplate, TemplateSources};

/// Reads a directory.
pub(crate) fn load(directory: &Path) -> Result<Parts, TextError> {
    let path = directory.join("tokenizer.json");
    let bytes = std::fs::read(&path).map_err(|source| TextError::Read {
        path: path.clone(),
        source,
    })?;
    let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(|error| damaged(&path, error))?;
    check_model(&path, &tokenizer)?;
    // A prompt is never cut or padded: too long a prompt is the gateway's to refuse.
    tokenizer
        .with_truncation(None)
        .map_err(|error| damaged(&path, error))?
        .with_padding(None);
    let pieces = pieces(&path, &tokenizer)?;

    let settings = json(directory.join("tokenizer_config.json"))?;
    let generation = json(directory.join("generation_config.json"))?;
    let config = json(directory.join("config.json"))?;
    let begin_text = token_text(&settings["bos_token"]);
    let end_text = token_text(&settings["eos_token"]);
    let id = |text: &Option<String>| text.as_ref().and_then(|text| tokenizer.token_to_id(text));

    let mut end: Vec<u32> = id(&end_text).into_iter().collect();
    end.extend(token_ids(&generation["eos_token_id"]));
    end.extend(token_ids(&config["eos_token_id"]));
    end.sort_unstable();
    end.dedup();

    let begin = id(&begin_text);
    let mut sources = templates(directory, &settings)?;
    sources.begin = begin_text;
    sources.end = end_text;
    Ok(Parts {
        begin,
        end,
        template: ChatTemplate::compile(sources).map_err(|reason| TextError::Template {
            path: directory.to_owned(),
            reason,
        })?,
        context_length: config["max_position_embeddings"]
            .as_u64()
            .and_then(|length| u32::try_from(length).ok()),
        tokenizer,
        pieces,
    })
}

fn damaged(path: &Path, reason: impl ToString) -> TextError {
    TextError::Damaged {
        path: path.to_owned(),
        reason: reason.to_string().replace('\n', " "),
    }
}

fn unsupported(path: &Path, what: impl Into<String>) -> TextError {
    TextError::Unsupported {
        path: path.to_owned(),
        what: what.into(),
    }
}

/// Admits only what encodes every text, and the same text always alike.
fn check_model(path: &Path, tokenizer: &Tokenizer) -> Result<(), TextError> {
    let kind = match tokenizer.get_model() {
        ModelWrapper::BPE(model) => {
            if model.dropout.is_some_and(|dropout| dropout > 0.0) {
                return Err(unsupported(path, "tokenizer: BPE with dropout"));
            }
            if let Some(unknown) = &model.unk_token
                && tokenizer.token_to_id(unknown).is_none()
            {
                return Err(damaged(path, format!("unk_token '{unknown}' has no id")));
            }
            return Ok(());
        }
        ModelWrapper::WordPiece(_) => "WordPiece",
        ModelWrapper::WordLevel(_) => "WordLevel",
        ModelWrapper::Unigram(_) => "Unigram",
    };
    Err(unsupported(
        path,
        format!("tokenizer kind '{kind}' (only 'BPE' is known)"),
    ))
}

/// Each token's bytes, by the rule that the decoder names.
fn pieces(path: &Path, tokenizer: &Tokenizer) -> Result<Pieces, TextError> {
    let decoder = serde_json::to_value(tokenizer.get_decoder())
        .map_err(|error| damaged(path, error))?
        .to_string();
    let bytes_of = if decoder.contains(r#""ByteLevel""#) {
        byte_level
    } else if decoder.contains(r#""ByteFallback""#) {
        sentence_piece
    } else {
        return Err(unsupported(path, format!("decoder {decoder}")));
    };
    let mut texts = Vec::new();
    for (text, id) in tokenizer.get_vocab(true) {
        if id >= MAX_VOCABULARY {
            return Err(damaged(path, format!("token id {id} is too large")));
        }
        let index = id as usize;
        if texts.len() <= index {
            texts.resize(index + 1, None);
        }
        texts[index] = Some(text);
    }
    let added = tokenizer.get_added_tokens_decoder();
    let mut pieces = Pieces::default();
    for (id, text) in (0..).zip(&texts) {
        match (added.get(&id), text) {
            (Some(token), _) => pieces.push(token.content.as_bytes(), token.special),
            (None, Some(text)) => pieces.push(&bytes_of(text), false),
            (None, None) => pieces.push(&[], true),
        }
    }
    Ok(pieces)
}

/// A file's text; none where there is no such file.
fn text(path: &Path) -> Result<Option<String>, TextError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// A JSON file; null where there is no such file.
fn json(path: PathBuf) -> Result<Value, TextError> {
    match text(&path)? {
        None => Ok(Value::Null),
        Some(text) => serde_json::from_str(&text).map_err(|error| damaged(&path, error)),
    }
}

/// The templates: a file of their own, or a string or a list of named ones in the settings.
fn templates(directory: &Path, settings: &Value) -> Result<TemplateSources, TextError> {
    let own = |value: &Value| value.as_str().map(str::to_owned);
    let named = |name: &str| {
        let list = settings["chat_template"].as_array()?;
        let entry = list.iter().find(|entry| entry["name"] == name)?;
        own(&entry["template"])
    };
    let file = text(&directory.join("chat_template.jinja"))?;
    Ok(TemplateSources {
        tool_use: if file.is_some() {
            None
        } else {
            named("tool_use")
        },
        chat: file
            .or_else(|| own(&settings["chat_template"]))
            .or_else(|| named("default")),
        ..TemplateSources::default()
    })
}

/// A token is named by its text, or described by an object.
fn token_text(value: &Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value["content"].as_str())
        .map(str::to_owned)
}

/// One id, or a list of them.
fn token_ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value.as_array() {
        Some(list) => list.iter().filter_map(id).collect(),
        None => id(value).into_iter().collect(),
    }
}
