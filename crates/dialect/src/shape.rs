//! Answers of a shape that a client has asked for, of a model that reasons before it answers.

use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::grammar::{Decoding, Grammar};
use crate::lark::{Rules, pattern};

/// Between a document's tokens, where its schema does not say: at most a blank, or a new line and an indentation.
const WHITESPACE: &str = r" |\n[ \t]{0,32}";

/// What a client says that an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape<'a> {
    /// A document of this JSON schema.
    Json(&'a str),
    /// A text that this regular expression matches as a whole.
    Regex(&'a str),
    /// A text of this grammar, in llguidance's dialect of Lark.
    Lark(&'a str),
}

impl Dialect {
    /// The grammar of an answer that must be of this shape behind its reasoning, which is free: it is there where
    /// the prompt has begun it, and otherwise where the model begins with it. `None`: the model marks no reasoning.
    ///
    /// The shape has to be right in itself: here its text only is put where its grammar refers to it.
    #[must_use]
    pub fn behind_reasoning(&self, shape: Shape<'_>, decoding: &Decoding<'_>) -> Option<Grammar> {
        let thinking = self.thinking()?;
        let mut rules = Rules::new(decoding);
        let reasoning = rules.reasoning(Some(thinking));
        let shape = match shape {
            Shape::Json(schema) => format!("%json {}", spaced(schema)),
            Shape::Regex(regex) => pattern(regex),
            Shape::Lark(grammar) => format!("%lark {{\n{grammar}\n}}"),
        };
        rules.rule("answer", &shape);
        rules.rule("start", &format!("{reasoning} answer"));
        Some(Grammar(rules.into_text()))
    }
}

fn spaced(schema: &str) -> String {
    match serde_json::from_str(schema) {
        Ok(Value::Object(mut schema)) => {
            let options = json!({"whitespace_pattern": WHITESPACE});
            schema.entry("x-guidance").or_insert(options);
            Value::Object(schema).to_string()
        }
        _ => schema.to_owned(),
    }
}
