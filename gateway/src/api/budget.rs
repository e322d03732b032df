//! How many tokens a request may generate.

use super::error::ApiError;
use super::request::{Endpoint, OutputLength};

/// What there is room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Tokens of prompt and answer together.
    pub(crate) context: u32,
    /// Tokens whose KV entries the largest decode worker's pages hold; `None` without a worker.
    pub(crate) pages: Option<u64>,
}

/// The most tokens to generate for a prompt of `prompt` tokens.
///
/// What the client asks for is granted or refused, never changed. Where it does not say, the default
/// is cut to the context and to the largest decode worker's pages. Those hold one token less than the
/// request has: the last one generated is never computed on.
pub(crate) fn new_tokens(
    endpoint: Endpoint,
    prompt: u32,
    output: OutputLength,
    room: Room,
) -> Result<u32, ApiError> {
    let context = room.context;
    if prompt >= context {
        return Err(too_long(endpoint.prompt_param(), context, Some(prompt)));
    }
    if let Some(pages) = room.pages.filter(|pages| u64::from(prompt) > *pages) {
        let message = format!(
            "The prompt has {prompt} tokens, more than the {pages} that any decode worker has KV \
             pages for. Please reduce the length of the prompt."
        );
        return Err(ApiError::bad("request_too_large", message).with_param(endpoint.prompt_param()));
    }
    let rest = context - prompt;
    if let Some(asked) = output.asked {
        if let Some(asked) = u32::try_from(asked).ok().filter(|asked| *asked <= rest) {
            return Ok(asked);
        }
        let total = u64::from(prompt).saturating_add(asked);
        let message = format!(
            "This model's maximum context length is {context} tokens. However, you requested \
             {total} tokens ({prompt} in the prompt, {asked} in the completion). Please reduce \
             '{}' or the prompt.",
            output.param
        );
        return Err(ApiError::bad("context_length_exceeded", message).with_param(output.param));
    }
    let wanted = output.default.map_or(rest, |default| default.min(rest));
    let Some(pages) = room.pages else {
        return Ok(wanted);
    };
    let fits = (pages + 1).saturating_sub(u64::from(prompt));
    Ok(wanted.min(u32::try_from(fits).unwrap_or(u32::MAX)))
}

/// The prompt alone is over the context, or fills it. `prompt` is `None` where the text is so long
/// that its tokens were not counted.
pub(crate) fn too_long(param: &str, context: u32, prompt: Option<u32>) -> ApiError {
    let found = prompt.map_or_else(
        || format!("more than {context}"),
        |prompt| prompt.to_string(),
    );
    let message = format!(
        "This model's maximum context length is {context} tokens. However, your prompt has {found} \
         tokens, which leaves no room for an answer. Please reduce the length of the prompt."
    );
    ApiError::bad("context_length_exceeded", message).with_param(param)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        context: 100,
        pages: Some(64),
    };

    fn new_tokens(prompt: u32, output: OutputLength, room: Room) -> Result<u32, ApiError> {
        super::new_tokens(Endpoint::Chat, prompt, output, room)
    }

    fn output(asked: Option<u64>, default: Option<u32>) -> OutputLength {
        OutputLength {
            asked,
            param: "max_tokens",
            default,
        }
    }

    #[test]
    fn what_is_asked_for_is_granted_or_refused() {
        let room = Room {
            pages: None,
            ..ROOM
        };
        assert_eq!(new_tokens(90, output(Some(10), None), room), Ok(10));
        let error = new_tokens(90, output(Some(11), None), room).unwrap_err();
        assert_eq!(error.code, "context_length_exceeded");
        assert_eq!(error.param.as_deref(), Some("max_tokens"));
        let error = new_tokens(1, output(Some(1 << 40), None), room).unwrap_err();
        assert!(error.message.contains("1099511627776 in the completion"));
    }

    #[test]
    fn a_prompt_that_leaves_no_room_is_refused_with_both_figures() {
        let error = new_tokens(100, output(None, None), ROOM).unwrap_err();
        let text =
            "This model's maximum context length is 100 tokens. However, your prompt has 100";
        assert!(error.message.starts_with(text), "{}", error.message);
        assert_eq!(
            new_tokens(
                99,
                output(None, None),
                Room {
                    pages: None,
                    ..ROOM
                }
            ),
            Ok(1)
        );
    }

    #[test]
    fn a_default_is_cut_to_the_context_and_to_the_largest_workers_pages() {
        // 64 tokens have room; the 65th is generated and not computed on.
        assert_eq!(new_tokens(10, output(None, None), ROOM), Ok(55));
        assert_eq!(new_tokens(10, output(None, Some(16)), ROOM), Ok(16));
        assert_eq!(
            new_tokens(
                90,
                output(None, Some(16)),
                Room {
                    pages: None,
                    ..ROOM
                }
            ),
            Ok(10)
        );
        assert_eq!(
            new_tokens(
                10,
                output(None, None),
                Room {
                    pages: None,
                    ..ROOM
                }
            ),
            Ok(90)
        );
        assert_eq!(new_tokens(64, output(None, None), ROOM), Ok(1));
    }

    #[test]
    fn a_prompt_that_no_worker_holds_is_the_prompts_fault() {
        for output in [output(None, None), output(Some(1), None)] {
            let error = new_tokens(65, output, ROOM).unwrap_err();
            assert_eq!(error.code, "request_too_large");
            assert_eq!(error.param.as_deref(), Some("messages"));
            assert!(error.message.contains("65 tokens, more than the 64"));
        }
    }
}
