//! What a parser says.

/// A part of an answer. Texts of the same kind concatenate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text for the user.
    Content(String),
    /// What the model thought.
    Reasoning(String),
    /// A call begins; nothing but its arguments and its end follows until it has ended.
    CallStart {
        /// 0 for the answer's first call.
        index: usize,
        /// The id that the model gave, where its family has ids (Kimi K2, Mistral): the caller uses it
        /// as it is, since such a model's template writes it out again.
        id: Option<String>,
        /// One of the request's functions.
        name: String,
    },
    /// A piece of a call's arguments. All of a complete call's pieces are one JSON object.
    Arguments {
        /// Of which call.
        index: usize,
        /// Some JSON text.
        json: String,
    },
    /// A call is over.
    CallEnd {
        /// Of which call.
        index: usize,
        /// False where the answer ended or went wrong in the middle of the arguments; only with
        /// [`Release::Early`](crate::Release::Early).
        complete: bool,
    },
}

/// Appends `text` to the last content of `out`.
pub(crate) fn content(out: &mut Vec<Delta>, text: &str) {
    if text.is_empty() {
        return;
    }
    match out.last_mut() {
        Some(Delta::Content(last)) => last.push_str(text),
        _ => out.push(Delta::Content(text.to_owned())),
    }
}

/// Appends `text` to the last reasoning of `out`.
pub(crate) fn reasoning(out: &mut Vec<Delta>, text: &str) {
    if text.is_empty() {
        return;
    }
    match out.last_mut() {
        Some(Delta::Reasoning(last)) => last.push_str(text),
        _ => out.push(Delta::Reasoning(text.to_owned())),
    }
}
