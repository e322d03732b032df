//! What a family's calls look like when they are written, for grammars.

/// A part of the text around calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    /// Exactly this.
    Text(&'static str),
    /// This, which may be a token of its own.
    Marker(&'static str),
    /// The function's name.
    Name,
    /// Up to three digits.
    Number,
    /// The arguments.
    Arguments,
}

/// How a family writes arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arguments {
    /// As one JSON object.
    Json,
    /// As `name=literal`, with commas between.
    Python,
    /// One by one in tags: what stands before the name, between name and value, between a value that is no free
    /// text and the closing tag, that tag, and what stands behind it.
    Tags {
        before: &'static [Piece],
        between: &'static [Piece],
        inside: &'static str,
        closing: Piece,
        behind: &'static str,
    },
}

/// The text of a run of calls.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) before: &'static [Piece],
    pub(crate) call: &'static [Piece],
    /// Between two calls; nothing: only one can be written.
    pub(crate) between: Option<&'static str>,
    pub(crate) after: &'static [Piece],
    pub(crate) arguments: Arguments,
}

impl Frame {
    /// The marker that begins calls, where there is one.
    pub(crate) fn trigger(&self) -> Option<&'static str> {
        match self.before.iter().chain(self.call).next() {
            Some(Piece::Marker(marker)) => Some(marker),
            _ => None,
        }
    }
}
