//! Which family a model is of.

use thiserror::Error;

use crate::family::{Family, TOOLS};
use crate::thinking::{THINKING, Thinking};

/// How a model marks its reasoning and its calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dialect {
    family: Option<&'static Family>,
    thinking: Option<&'static Thinking>,
}

/// A name that is no dialect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{name}\" is no {kind} dialect; known are {known} and none")]
pub struct UnknownDialect {
    /// `tool` or `reasoning`.
    pub kind: &'static str,
    /// What was asked for.
    pub name: String,
    /// All that there are.
    pub known: String,
}

impl Dialect {
    /// Recognises the family by what a model's chat template contains. A template that shows no known
    /// markers has neither calls nor reasoning, such as SmolLM2-Instruct's.
    #[must_use]
    pub fn detect(chat_template: &str) -> Self {
        Self {
            family: TOOLS
                .iter()
                .copied()
                .find(|family| (family.detect)(chat_template)),
            thinking: THINKING
                .iter()
                .copied()
                .find(|thinking| (thinking.detect)(chat_template)),
        }
    }

    /// The same with calls as in the family of this name; `none`: without calls.
    ///
    /// # Errors
    ///
    /// [`UnknownDialect`], with the names that there are.
    pub fn with_tools(self, name: &str) -> Result<Self, UnknownDialect> {
        let family = match name {
            "none" => None,
            _ => Some(known("tool", name, TOOLS, |family| family.name)?),
        };
        Ok(Self { family, ..self })
    }

    /// The same with reasoning as in the family of this name; `none`: without reasoning.
    ///
    /// # Errors
    ///
    /// [`UnknownDialect`], with the names that there are.
    pub fn with_reasoning(self, name: &str) -> Result<Self, UnknownDialect> {
        let thinking = match name {
            "none" => None,
            _ => Some(known("reasoning", name, THINKING, |thinking| {
                thinking.name
            })?),
        };
        Ok(Self { thinking, ..self })
    }

    /// The family's name as [`with_tools`](Self::with_tools) takes it, where there are calls.
    #[must_use]
    pub fn tools(&self) -> Option<&'static str> {
        self.family.map(|family| family.name)
    }

    /// The family's name as [`with_reasoning`](Self::with_reasoning) takes it, where there is reasoning.
    #[must_use]
    pub fn reasoning(&self) -> Option<&'static str> {
        self.thinking.map(|thinking| thinking.name)
    }

    /// Texts that a parser has to see. Where one of them is a token of its own whose text a detokenizer
    /// leaves out, its text has to be put back.
    pub fn markers(&self) -> impl Iterator<Item = &'static str> {
        let tools = self.family.map_or(&[][..], |family| family.markers);
        let reasoning = self.thinking.into_iter().flat_map(|thinking| {
            let texts = [thinking.opens, thinking.closes, thinking.dropped];
            texts.into_iter().flatten()
        });
        tools.iter().chain(reasoning).copied()
    }

    /// Whether an answer to this prompt begins inside reasoning: the template has written the opening marker.
    #[must_use]
    pub fn opens_reasoning(&self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        self.thinking
            .is_some_and(|thinking| thinking.opens.iter().any(|open| prompt.ends_with(open)))
    }

    /// Whether the template has ended the reasoning already, so that an answer to this prompt begins behind it.
    #[must_use]
    pub fn closes_reasoning(&self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        self.thinking.is_some_and(|thinking| {
            let mut closes = thinking.closes.iter();
            closes.any(|close| prompt.ends_with(close))
        })
    }

    /// The names that [`with_tools`](Self::with_tools) takes besides `none`.
    pub fn tool_names() -> impl Iterator<Item = &'static str> {
        TOOLS.iter().map(|family| family.name)
    }

    /// The names that [`with_reasoning`](Self::with_reasoning) takes besides `none`.
    pub fn reasoning_names() -> impl Iterator<Item = &'static str> {
        THINKING.iter().map(|thinking| thinking.name)
    }

    pub(crate) fn family(&self) -> Option<&'static Family> {
        self.family
    }

    pub(crate) fn thinking(&self) -> Option<&'static Thinking> {
        self.thinking
    }
}

fn known<T>(
    kind: &'static str,
    name: &str,
    all: &[&'static T],
    named: fn(&T) -> &'static str,
) -> Result<&'static T, UnknownDialect> {
    let found = all.iter().copied().find(|&one| named(one) == name);
    found.ok_or_else(|| UnknownDialect {
        kind,
        name: name.chars().take(64).collect(),
        known: all
            .iter()
            .map(|one| named(one))
            .collect::<Vec<_>>()
            .join(", "),
    })
}
