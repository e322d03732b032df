//! How a family writes calls, as a list of steps.
//!
//! Each family's syntax is a small table; one runner reads them all.

/// What a character did to the step that it was given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It belongs to the step, which goes on.
    More,
    /// It is the step's last.
    Done,
    /// The step ended before it.
    Before,
    /// The step cannot have it.
    Broken,
}

/// Where to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Go {
    /// At this step.
    To(usize),
    /// At this step, with the character that was just looked at.
    Peek(usize),
    /// The calls are over.
    Leave,
    /// This is no call.
    Break,
}

/// One step of a family's syntax.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Any whitespace.
    Space,
    /// This text.
    Text(&'static str),
    /// One of these texts, of which none begins another; or else the last.
    Branch(&'static [(&'static str, Go)], Go),
    /// A function's name, as long as a function begins so.
    Name,
    /// Kimi's `functions.NAME:NUMBER`, which is the call's id.
    Id,
    /// An id of letters and digits.
    CallId,
    /// The call of the name that was read begins.
    Start,
    /// An object of arguments in JSON.
    Arguments,
    /// A whole call in JSON; its first member is one of these (empty: any).
    Object(&'static [&'static str]),
    /// The arguments follow one by one.
    Open,
    /// An argument's name and this text behind it.
    Key(&'static str),
    /// An argument in plain text, up to the text; `true`: with one line break around it that is not its own.
    Value(&'static str, bool),
    /// An argument as a literal of Python.
    Python,
    /// All arguments have come.
    Close,
    /// The call is complete.
    End,
    /// Go on there.
    Go(usize),
}
