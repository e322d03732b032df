//! Tokenizer and chat template from a GGUF file's metadata.
//!
//! Keys are those of ggml's docs/gguf.md. Only byte-level BPE (`tokenizer.ggml.model = gpt2`) is
//! known; other kinds are refused by name.

mod metadata;
mod vocabulary;

use std::path::Path;

use tokenizers::Tokenizer;
use tokenizers::models::bpe::{BPE, Merges};
use tokenizers::processors::template::{TemplateProcessing, TemplateProcessingBuilderError};

use crate::error::TextError;
use crate::model::Parts;
use crate::pre_tokenizer::PreTokenizer;
use crate::template::{ChatTemplate, TemplateSources};
use metadata::Metadata;
use vocabulary::Tokens;

/// Reads a GGUF file.
pub(crate) fn load(path: &Path) -> Result<Parts, TextError> {
    let metadata = Metadata::read(path)?;
    match metadata.text("tokenizer.ggml.model")? {
        Some("gpt2") => {}
        Some(kind) => {
            let what = format!("tokenizer kind '{kind}' (only 'gpt2', byte-level BPE, is known)");
            return Err(metadata.unsupported(what));
        }
        None => return Err(metadata.damaged("'tokenizer.ggml.model' is missing")),
    }
    let tokens = Tokens::read(&metadata)?;
    let begin = tokens.role(&metadata, "bos")?;
    let eos = tokens.role(&metadata, "eos")?;

    let architecture = metadata.text("general.architecture")?.unwrap_or_default();
    let sources = TemplateSources {
        chat: metadata.text("tokenizer.chat_template")?.map(str::to_owned),
        tool_use: metadata
            .text("tokenizer.chat_template.tool_use")?
            .map(str::to_owned),
        begin: tokens.text(begin).map(str::to_owned),
        end: tokens.text(eos).map(str::to_owned),
    };
    Ok(Parts {
        tokenizer: tokenizer(&metadata, &tokens, begin)?,
        pieces: tokens.pieces(),
        begin,
        end: tokens.ends(&metadata)?,
        template: ChatTemplate::compile(sources).map_err(|reason| TextError::Template {
            path: path.to_owned(),
            reason,
        })?,
        context_length: metadata.number(&format!("{architecture}.context_length"))?,
    })
}

fn tokenizer(
    metadata: &Metadata,
    tokens: &Tokens<'_>,
    begin: Option<u32>,
) -> Result<Tokenizer, TextError> {
    let name = metadata
        .text("tokenizer.ggml.pre")?
        .ok_or_else(|| metadata.unsupported("tokenizer: 'tokenizer.ggml.pre' is missing".into()))?;
    let pre = PreTokenizer::named(name)
        .ok_or_else(|| metadata.unsupported(format!("pre-tokenizer '{name}'")))?;
    let bpe = BPE::builder()
        .vocab_and_merges(tokens.ids(), merges(metadata)?)
        .ignore_merges(pre.ignores_merges())
        .build()
        .map_err(|error| metadata.damaged(error))?;

    let mut tokenizer = Tokenizer::new(bpe);
    tokenizer
        .with_normalizer(pre.normalizer())
        .map_err(|error| metadata.damaged(error))?;
    tokenizer.with_pre_tokenizer(Some(pre.build().map_err(|error| metadata.damaged(error))?));
    tokenizer
        .add_tokens(tokens.added())
        .map_err(|error| metadata.damaged(error))?;
    let adds_begin = metadata
        .flag("tokenizer.ggml.add_bos_token")?
        .unwrap_or(pre.adds_begin());
    if adds_begin {
        let id = begin.ok_or_else(|| metadata.damaged("add_bos_token without bos_token_id"))?;
        tokenizer.with_post_processor(Some(
            begin_first(id).map_err(|error| metadata.damaged(error))?,
        ));
    }
    Ok(tokenizer)
}

fn merges(metadata: &Metadata) -> Result<Merges, TextError> {
    let pair = |merge: &str| {
        let (left, right) = merge
            .split_once(' ')
            .ok_or_else(|| metadata.damaged(format!("merge '{merge}' is not a pair")))?;
        Ok((left.to_owned(), right.to_owned()))
    };
    metadata
        .texts("tokenizer.ggml.merges")?
        .into_iter()
        .map(pair)
        .collect()
}

/// Puts the begin token before every text.
fn begin_first(id: u32) -> Result<TemplateProcessing, TemplateProcessingBuilderError> {
    let name = "begin".to_owned();
    let pieces = vec![name.clone(), "$A".to_owned()];
    TemplateProcessing::builder()
        .try_single(pieces)
        .map_err(TemplateProcessingBuilderError::ValidationError)?
        .special_tokens(vec![(name, id)])
        .build()
}
