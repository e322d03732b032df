//! `stream` and `stream_options`.

use crate::api::error::ApiError;
use crate::api::params::Params;

/// Padding of events against guesses from their lengths: there is none, so whoever asks for it is refused.
pub(crate) fn no_obfuscation(options: &mut Params) -> Result<(), ApiError> {
    match options.boolean("include_obfuscation")? {
        Some(true) => Err(ApiError::value(
            options.name("include_obfuscation"),
            "Events are not padded here: want false, or nothing.",
        )),
        Some(false) | None => Ok(()),
    }
}

/// How an answer is to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streaming {
    /// Event by event.
    pub(crate) stream: bool,
    /// With the usage in a last event.
    pub(crate) include_usage: bool,
    /// And in every other one, as vLLM has it.
    pub(crate) continuous: bool,
}

impl Streaming {
    /// Takes both fields.
    pub(crate) fn read(params: &mut Params) -> Result<Self, ApiError> {
        let stream = params.boolean("stream")?.unwrap_or(false);
        let Some(mut options) = params.object("stream_options")? else {
            return Ok(Self {
                stream,
                ..Self::default()
            });
        };
        let include_usage = options.boolean("include_usage")?.unwrap_or(false);
        let continuous = options.boolean("continuous_usage_stats")?.unwrap_or(false);
        no_obfuscation(&mut options)?;
        options.finish(&[])?;
        if !stream {
            let message =
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
            return Err(ApiError::value("stream_options", message));
        }
        if continuous && !include_usage {
            let name = "stream_options.continuous_usage_stats";
            let message = format!("'{name}' needs 'include_usage'.");
            return Err(ApiError::value(name, message));
        }
        Ok(Self {
            stream,
            include_usage,
            continuous,
        })
    }
}
