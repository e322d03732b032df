//! What a client asks for.

use serde_json::{Map, Value, json};
use tandem_text::TextModel;
use tandem_wire::proto;

use super::items;
use super::object::ResponseForm;
use crate::api::constraint::{self, Held};
use crate::api::error::ApiError;
use crate::api::form::Form;
use crate::api::openai::streaming::no_obfuscation;
use crate::api::params::Params;
use crate::api::prompt::Rendering;
use crate::api::request::{Drawing, Endpoint, Known, OutputLength, Request};
use crate::api::sampling::{self, max_tokens};
use crate::api::tools::{self, Tools};
use crate::api::unsupported;

/// Reads a response whose model is known.
pub(crate) fn read(
    mut params: Params,
    text: &TextModel,
    known: &Known,
) -> Result<Request, ApiError> {
    let stream = streaming(&mut params)?;
    let asked = max_tokens(&mut params, "max_output_tokens")?;
    let mut repeated = repeated(&params, asked);
    let sampling = sampling::temperature(&mut params, 2.0)?;
    let mut held = text_format(&mut params)?;
    let routing = sampling::routing(&mut params)?;
    let mut messages = Vec::new();
    if let Some(instructions) = params.text("instructions")? {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    items::read(&mut params, &mut messages)?;
    let tools = tools(&mut params, &mut repeated)?;
    let effort = reasoning(&mut params)?;
    params.finish(unsupported::RESPONSES)?;
    let mut rendering = Rendering::plain(tools);
    rendering.effort(effort, "reasoning.effort", text)?;
    let (prompt, parsing) =
        rendering.prompt(messages, Endpoint::Responses, text, known, &mut held)?;
    Ok(Request {
        prompts: vec![prompt],
        drawing: Drawing {
            answers: 1,
            sampling,
            held,
            seed: None,
            stop: proto::Stop::default(),
        },
        output: OutputLength {
            asked,
            param: "max_output_tokens",
            default: known.default_max_tokens,
        },
        stream,
        form: Form::Responses(Box::new(ResponseForm(repeated))),
        parsing,
        routing,
    })
}

/// What the response says again of its request, as far as that is checked by others.
fn repeated(params: &Params, asked: Option<u64>) -> Map<String, Value> {
    let defaults = json!({
        "instructions": null,
        "metadata": {},
        "reasoning": {"effort": null, "summary": null},
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "top_p": 1.0,
        "user": null,
        "safety_identifier": null,
        "prompt_cache_key": null,
    });
    let mut repeated = Map::new();
    let Value::Object(defaults) = defaults else {
        return repeated;
    };
    for (field, default) in defaults {
        match params.peek(&field) {
            Some(value) => repeated.insert(field, value.clone()),
            // A member that may not be null.
            None if field == "user" => None,
            None => repeated.insert(field, default),
        };
    }
    repeated.insert("max_output_tokens".to_owned(), json!(asked));
    repeated
}

fn streaming(params: &mut Params) -> Result<bool, ApiError> {
    let stream = params.boolean("stream")?.unwrap_or(false);
    if let Some(mut options) = params.object("stream_options")? {
        no_obfuscation(&mut options)?;
        options.finish(&[])?;
        if !stream {
            let message =
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
            return Err(ApiError::value("stream_options", message));
        }
    }
    Ok(stream)
}

fn text_format(params: &mut Params) -> Result<Option<Held>, ApiError> {
    let Some(mut text) = params.object("text")? else {
        return Ok(None);
    };
    let format = text.object("format")?;
    text.finish(&[("verbosity", unsupported::never)])?;
    Ok(format.map(constraint::text_format).transpose()?.flatten())
}

/// How hard the model is to think. There are no summaries of it.
fn reasoning(params: &mut Params) -> Result<Option<String>, ApiError> {
    let Some(mut reasoning) = params.object("reasoning")? else {
        return Ok(None);
    };
    let effort = reasoning.text("effort")?;
    reasoning.finish(&[
        ("summary", unsupported::never),
        ("generate_summary", unsupported::never),
    ])?;
    Ok(effort)
}

fn tools(
    params: &mut Params,
    repeated: &mut Map<String, Value>,
) -> Result<Option<Tools>, ApiError> {
    let definitions = tools::definitions(params, |mut tool| {
        if tool.needed_text("type")? != "function" {
            return Err(ApiError::unsupported(
                tool.name("type"),
                " other than 'function'",
            ));
        }
        let definition = tools::definition(&mut tool, "parameters")?;
        tool.finish(&[])?;
        Ok(definition)
    })?;
    let choice = params.take("tool_choice");
    let parallel = params.boolean("parallel_tool_calls")?;
    let shown = definitions
        .as_array()
        .map(|tools| tools.iter().map(shown).collect::<Vec<_>>());
    let mut set = |name: &str, value: Value| repeated.insert(name.to_owned(), value);
    set("tools", shown.into());
    set(
        "tool_choice",
        choice.clone().unwrap_or_else(|| "auto".into()),
    );
    set("parallel_tool_calls", parallel.unwrap_or(true).into());
    let choice = choice.map(self::choice).transpose()?;
    Tools::new(definitions, choice.unwrap_or_default(), parallel)
}

/// A tool as responses define it.
fn shown(definition: &Value) -> Value {
    let function = &definition["function"];
    json!({
        "type": "function",
        "name": function["name"],
        "description": function["description"],
        "parameters": function["parameters"],
        "strict": function["strict"],
    })
}

/// A function's name stands beside its type here.
fn choice(choice: Value) -> Result<Value, ApiError> {
    if !choice.is_object() {
        return Ok(choice);
    }
    let mut choice = Params::within("tool_choice", choice)?;
    if choice.needed_text("type")? != "function" {
        return Err(ApiError::unsupported(
            choice.name("type"),
            " other than 'function'",
        ));
    }
    let name = choice.needed_text("name")?;
    choice.finish(&[])?;
    Ok(json!({"type": "function", "function": {"name": name}}))
}
