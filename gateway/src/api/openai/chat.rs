//! `/v1/chat/completions`.

use tandem_text::TextModel;

use super::chunks::ChunkForm;
use super::messages;
use super::streaming::Streaming;
use crate::api::error::ApiError;
use crate::api::form::Form;
use crate::api::params::Params;
use crate::api::prompt::Rendering;
use crate::api::request::{Endpoint, Known, OutputLength, Request};
use crate::api::sampling::{self, max_tokens};
use crate::api::tools::Tools;
use crate::api::unsupported;

/// Reads a chat whose model is known.
pub(crate) fn read(
    mut params: Params,
    text: &TextModel,
    known: &Known,
) -> Result<Request, ApiError> {
    let streaming = Streaming::read(&mut params)?;
    let mut drawing = sampling::drawing(&mut params, text, known)?;
    drawing.sampling.logprobs = logprobs(&mut params)?;
    let output = output_length(&mut params, known)?;
    sampling::check_least(&drawing.stop, output)?;
    let routing = sampling::routing(&mut params)?;
    let messages = messages::read(&mut params)?;
    let rendering = rendering(&mut params, text)?;
    params.finish(unsupported::CHAT)?;
    let form = ChunkForm {
        logprobs: drawing.sampling.logprobs.is_some(),
        include_usage: streaming.include_usage,
        continuous: streaming.continuous,
    };
    let (prompt, parsing) =
        rendering.prompt(messages, Endpoint::Chat, text, known, &mut drawing.held)?;
    Ok(Request {
        prompts: vec![prompt],
        drawing,
        output,
        stream: streaming.stream,
        form: Form::Chat(form),
        parsing,
        routing,
    })
}

/// How the template is run.
pub(crate) fn rendering(params: &mut Params, text: &TextModel) -> Result<Rendering, ApiError> {
    let tools = tools(params)?;
    let mut rendering = Rendering::read(params, tools)?;
    let effort = params.text("reasoning_effort")?;
    rendering.effort(effort, "reasoning_effort", text)?;
    Ok(rendering)
}

/// Takes all that is said about tools.
fn tools(params: &mut Params) -> Result<Option<Tools>, ApiError> {
    let definitions = params.take("tools").unwrap_or_default();
    let choice = params.take("tool_choice").unwrap_or_default();
    let parallel = params.boolean("parallel_tool_calls")?;
    Tools::new(definitions, choice, parallel)
}

/// How many alternatives are wanted for each token; `None`: no log probabilities at all.
fn logprobs(params: &mut Params) -> Result<Option<u32>, ApiError> {
    let wanted = params.boolean("logprobs")?.unwrap_or(false);
    let top = params.integer("top_logprobs", 0..=20)?;
    match (wanted, top) {
        (false, Some(1..)) => {
            let message = "The 'top_logprobs' parameter needs 'logprobs' to be true.";
            Err(ApiError::value("top_logprobs", message))
        }
        (false, _) => Ok(None),
        (true, top) => Ok(Some(u32::try_from(top.unwrap_or(0)).unwrap_or(0))),
    }
}

/// `max_completion_tokens`, or its older name.
fn output_length(params: &mut Params, known: &Known) -> Result<OutputLength, ApiError> {
    let newer = max_tokens(params, "max_completion_tokens")?;
    let older = max_tokens(params, "max_tokens")?;
    if newer.is_some() && older.is_some() && newer != older {
        let message = "'max_tokens' and 'max_completion_tokens' differ: set one of them.";
        return Err(ApiError::value("max_tokens", message));
    }
    let param = if newer.is_some() {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    Ok(OutputLength {
        asked: newer.or(older),
        param,
        default: known.default_max_tokens,
    })
}
