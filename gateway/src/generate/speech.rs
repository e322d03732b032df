//! One answer's text on its way to the pieces that a client is told.

use std::sync::Arc;

use tandem_dialect::{Delta, Parser};

use crate::api::tools::Parsing;

/// Reads one answer's text.
pub(crate) enum Speech {
    /// All of it is for the client to read.
    Plain,
    /// Parts of it are marked.
    Marked {
        parser: Box<Parser>,
        /// Control tokens that are such marks; the worker gives them no text.
        markers: Arc<[(u32, &'static str)]>,
        /// The latest piece was a thought.
        thinking: bool,
    },
}

impl Speech {
    /// Nothing is said yet.
    pub(crate) fn new(parsing: Option<&Parsing>, markers: &Arc<[(u32, &'static str)]>) -> Self {
        match parsing {
            None => Self::Plain,
            Some(Parsing { dialect, options }) => Self::Marked {
                thinking: options.reasoning,
                parser: Box::new(Parser::new(*dialect, options.clone())),
                markers: Arc::clone(markers),
            },
        }
    }

    /// The pieces that a token's text completes, and whether the token was for thinking.
    pub(crate) fn token(&mut self, token: u32, mut text: String) -> (Vec<Delta>, bool) {
        match self {
            Self::Plain => (vec![Delta::Content(text)], false),
            Self::Marked {
                parser,
                markers,
                thinking,
            } => {
                if let Some((_, mark)) = markers.iter().find(|(id, _)| *id == token) {
                    text.push_str(mark);
                }
                let deltas = parser.push(&text);
                let is_thought = |delta: &Delta| matches!(delta, Delta::Reasoning(_));
                let Some(last) = deltas.last() else {
                    return (deltas, *thinking);
                };
                *thinking = is_thought(last);
                let thought = deltas.iter().any(is_thought);
                (deltas, thought)
            }
        }
    }

    /// Whether nothing that would still come is for the client: the only call that it wants is complete.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Marked { parser, .. } => parser.is_done(),
        }
    }

    /// The last pieces.
    pub(crate) fn finish(&mut self, text: String) -> Vec<Delta> {
        match self {
            Self::Plain => vec![Delta::Content(text)],
            Self::Marked { parser, .. } => {
                let mut deltas = parser.push(&text);
                deltas.extend(parser.finish());
                deltas
            }
        }
    }
}
