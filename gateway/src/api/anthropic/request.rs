//! `/v1/messages`, and the counting of its tokens.

use std::sync::Arc;

use serde_json::{Value, json};
use tandem_text::TextModel;
use tandem_wire::proto;

use super::content;
use crate::api::constraint::{self, Held};
use crate::api::error::ApiError;
use crate::api::form::Form;
use crate::api::params::Params;
use crate::api::prompt::Rendering;
use crate::api::request::{Drawing, Endpoint, Known, OutputLength, Request, Routing};
use crate::api::sampling::{self, max_tokens};
use crate::api::tools::{self, Parsing, Tools};
use crate::api::unsupported;

/// Stop texts that one request may have.
const MAX_STOPS: usize = 16;
/// The variable by which templates are told whether the model is to think.
const THINKING: &str = "enable_thinking";

/// Reads a message whose model is known.
pub(crate) fn read(
    mut params: Params,
    text: &TextModel,
    known: &Known,
) -> Result<Request, ApiError> {
    let asked = max_tokens(&mut params, "max_tokens")?;
    let asked = asked.ok_or_else(|| ApiError::missing("max_tokens"))?;
    let stream = params.boolean("stream")?.unwrap_or(false);
    let mut drawing = Drawing {
        answers: 1,
        sampling: sampling::temperature(&mut params, 1.0)?,
        held: None,
        seed: None,
        stop: proto::Stop {
            texts: sampling::stop_texts(&mut params, "stop_sequences", MAX_STOPS)?,
            ..proto::Stop::default()
        },
    };
    let routing = routing(&mut params)?;
    let (tokens, parsing) = prompt(params, text, known, &mut drawing.held)?;
    Ok(Request {
        prompts: vec![tokens],
        drawing,
        output: OutputLength {
            asked: Some(asked),
            param: "max_tokens",
            default: None,
        },
        stream,
        form: Form::Messages,
        parsing,
        routing,
    })
}

/// The tokens of `/v1/messages/count_tokens`.
pub(crate) fn count(body: &[u8], text: &TextModel, known: &Known) -> Result<usize, ApiError> {
    let mut params = Params::parse(body)?;
    known.check_named(&mut params)?;
    Ok(prompt(params, text, known, &mut None)?.0.len())
}

/// What both endpoints have: all that becomes the prompt. Nothing else may be left.
fn prompt(
    mut params: Params,
    text: &TextModel,
    known: &Known,
    held: &mut Option<Held>,
) -> Result<(Arc<[u32]>, Option<Parsing>), ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = params.take("system") {
        messages.push(content::system(system)?);
    }
    content::messages(&mut params, &mut messages)?;
    *held = output(&mut params)?;
    let mut rendering = Rendering::plain(tools(&mut params)?);
    if let Some(thinks) = thinking(&mut params, known)?
        && text.template_uses(THINKING)
    {
        rendering
            .template_kwargs
            .insert(THINKING.to_owned(), thinks.into());
    }
    params.finish(unsupported::MESSAGES)?;
    if messages
        .last()
        .is_some_and(|last| last["role"] == "assistant")
    {
        rendering.add_generation_prompt = false;
        rendering.continue_final_message = true;
    }
    rendering.prompt(messages, Endpoint::Messages, text, known, held)
}

/// What the answer must be.
fn output(params: &mut Params) -> Result<Option<Held>, ApiError> {
    let Some(mut output) = params.object("output_config")? else {
        return Ok(None);
    };
    let format = output.object("format")?;
    output.finish(&[("effort", unsupported::never)])?;
    format.map(constraint::output_format).transpose()
}

fn routing(params: &mut Params) -> Result<Routing, ApiError> {
    let mut affinity = None;
    if let Some(mut metadata) = params.object("metadata")? {
        affinity = metadata.text("user_id")?;
        metadata.finish(&[])?;
    }
    Ok(Routing {
        priority: 0,
        affinity: affinity.map(Into::into),
    })
}

/// Whether the model is to think. Only one whose thoughts can be told from its answer may; for how
/// long it does is its own affair.
fn thinking(params: &mut Params, known: &Known) -> Result<Option<bool>, ApiError> {
    let Some(mut thinking) = params.object("thinking")? else {
        return Ok(None);
    };
    let name = thinking.name("type");
    let thinks = match thinking.needed_text("type")?.as_str() {
        "disabled" => false,
        "enabled" | "adaptive" if known.dialect.reasoning().is_some() => true,
        _ => return Err(ApiError::unsupported(name, " other than 'disabled'")),
    };
    thinking.integer("budget_tokens", 1024..=i64::MAX)?;
    thinking.finish(&[])?;
    Ok(Some(thinks))
}

fn tools(params: &mut Params) -> Result<Option<Tools>, ApiError> {
    let definitions = tools::definitions(params, |mut tool| {
        let kind = tool.text("type")?;
        if kind.is_some_and(|kind| kind != "custom") {
            return Err(ApiError::unsupported(
                tool.name("type"),
                " other than 'custom'",
            ));
        }
        if tool.peek("input_schema").is_none() {
            return Err(ApiError::missing(&tool.name("input_schema")));
        }
        let definition = tools::definition(&mut tool, "input_schema")?;
        tool.finish(unsupported::TEXT_PART)?;
        Ok(definition)
    })?;
    let Some(mut choice) = params.object("tool_choice")? else {
        return Tools::new(definitions, Value::Null, None);
    };
    let name = choice.name("type");
    let kind = match choice.needed_text("type")?.as_str() {
        "auto" => json!("auto"),
        "none" => json!("none"),
        "any" => json!("required"),
        "tool" => {
            let name = choice.needed_text("name")?;
            json!({"type": "function", "function": {"name": name}})
        }
        _ => {
            let message = format!("Invalid '{name}': expected auto, any, tool or none.");
            return Err(ApiError::value(name, message));
        }
    };
    let serial = choice.boolean("disable_parallel_tool_use")?;
    choice.finish(&[])?;
    Tools::new(definitions, kind, serial.map(|serial| !serial))
}
