//! How families mark reasoning.
//!
//! Reasoning stands only at the answer's beginning: a marker inside of what follows is content, as is a
//! marker that a user has asked the model to explain.

/// A way to mark reasoning.
#[derive(Debug)]
pub(crate) struct Thinking {
    pub(crate) name: &'static str,
    /// Texts that begin it.
    pub(crate) opens: &'static [&'static str],
    /// Texts that end it.
    pub(crate) closes: &'static [&'static str],
    /// Texts of the answer behind it that are not for the user.
    pub(crate) dropped: &'static [&'static str],
    pub(crate) detect: fn(&str) -> bool,
}

/// In the order in which they are recognised.
pub(crate) static THINKING: &[&Thinking] = &[&MISTRAL, &GRANITE_PROSE, &GRANITE, &THINK];

/// `<think>...</think>`: DeepSeek R1 and V3.1, Qwen3, QwQ, GLM-4.5, Kimi K2 Thinking and others. Many templates
/// write the opening marker themselves.
pub(crate) static THINK: Thinking = Thinking {
    name: "think",
    opens: &["<think>"],
    closes: &["</think>"],
    dropped: &[],
    detect: |template| template.contains("<think>") || template.contains("</think>"),
};

/// `[THINK]...[/THINK]`: Magistral from 2507 on (mistral-common's tokenizers of version 13).
pub(crate) static MISTRAL: Thinking = Thinking {
    name: "mistral",
    opens: &["[THINK]"],
    closes: &["[/THINK]"],
    dropped: &[],
    detect: |template| template.contains("[THINK]"),
};

/// `<think>...</think><response>...</response>`: Granite 3.3.
pub(crate) static GRANITE: Thinking = Thinking {
    name: "granite",
    opens: &["<think>"],
    closes: &["</think>"],
    dropped: &["<response>", "</response>"],
    detect: |template| template.contains("<think>") && template.contains("<response>"),
};

/// In words: Granite 3.2.
pub(crate) static GRANITE_PROSE: Thinking = Thinking {
    name: "granite_prose",
    opens: &["Here is my thought process:", "Here's my thought process:"],
    closes: &["Here is my response:", "Here's my response:"],
    dropped: &[],
    detect: |template| template.contains("Here is my thought process:"),
};
