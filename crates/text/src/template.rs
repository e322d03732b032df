//! The chat template, in the environment that Hugging Face's templates expect.
//!
//! As `transformers` sets it up (`utils/chat_template_utils.py`): blocks trimmed, `break` and
//! `continue`, `raise_exception`, `strftime_now`, a `tojson` that prints as Python does, the
//! methods of Python's strings, lists and dicts; `None`, `True` and `False` print as in Python.
//! A template's steps are bounded.

use std::fmt;
use std::time::SystemTime;

use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use serde_json::Map;

use crate::error::TemplateError;
use crate::spoken::Spoken;
use crate::{messages, python_json, strftime};

/// Instructions a template may run: about a second's worth. A message costs some dozens.
const FUEL: u64 = 20_000_000;

/// Names of the template's variables that a client may not set.
const RESERVED: [&str; 7] = [
    "messages",
    "tools",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "raise_exception",
    "strftime_now",
];

/// How to render a chat.
#[derive(Clone, Debug, Default)]
pub struct ChatOptions {
    /// End with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// OpenAI's `tools`.
    pub tools: Option<serde_json::Value>,
    /// `chat_template_kwargs`: further variables of the template.
    pub extra: Map<String, serde_json::Value>,
    /// The time, for templates that print the date (in UTC).
    pub now: Option<SystemTime>,
}

/// What to compile.
#[derive(Default)]
pub(crate) struct TemplateSources {
    pub(crate) chat: Option<String>,
    /// Used instead of `chat` where there are tools.
    pub(crate) tool_use: Option<String>,
    /// Text of the begin token.
    pub(crate) begin: Option<String>,
    /// Text of the end token.
    pub(crate) end: Option<String>,
}

/// A compiled template.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    has_tool_use: bool,
    tokens: Vec<(&'static str, String)>,
}

/// What `raise_exception` said.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// `strftime_now` was called, and nobody said what time it is.
#[derive(Debug)]
struct NoTime;

impl fmt::Display for NoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no time was given")
    }
}

impl std::error::Error for NoTime {}

impl ChatTemplate {
    /// None where there is no template. The error says where it does not compile, in one line.
    pub(crate) fn compile(sources: TemplateSources) -> Result<Option<Self>, String> {
        let Some(chat) = sources.chat else {
            return Ok(None);
        };
        let mut environment = environment();
        let mut add = |name, source: String| {
            environment
                .add_template_owned(name, without_generation_blocks(&source))
                .map_err(|error| error.to_string())
        };
        add("chat", chat)?;
        let has_tool_use = sources.tool_use.is_some();
        if let Some(source) = sources.tool_use {
            add("tool_use", source)?;
        }
        let tokens = [("bos_token", sources.begin), ("eos_token", sources.end)]
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)))
            .collect();
        Ok(Some(Self {
            environment,
            has_tool_use,
            tokens,
        }))
    }

    /// The text that is rendered where there are tools.
    pub(crate) fn source(&self) -> Option<String> {
        let name = if self.has_tool_use {
            "tool_use"
        } else {
            "chat"
        };
        let template = self.environment.get_template(name).ok()?;
        Some(template.source().to_owned())
    }

    pub(crate) fn uses(&self, variable: &str) -> bool {
        let template = self.environment.get_template("chat");
        template.is_ok_and(|template| template.undeclared_variables(false).contains(variable))
    }

    pub(crate) fn render(
        &self,
        messages: &serde_json::Value,
        mut options: ChatOptions,
        spoken: Option<&Spoken>,
    ) -> Result<String, TemplateError> {
        let mut messages = messages::flatten(messages)?;
        if let Some(spoken) = spoken {
            // After parts were joined: a word may lie across their border.
            let said = messages.iter_mut().chain(&mut options.tools);
            said.for_each(|said| spoken.mark_all(said));
            spoken.mark_map(&mut options.extra);
        }
        let tools = options.tools.filter(|tools| !tools.is_null());
        let name = if self.has_tool_use && tools.is_some() {
            "tool_use"
        } else {
            "chat"
        };
        let mut variables = Vec::with_capacity(options.extra.len() + 8);
        for (key, value) in options.extra {
            if RESERVED.contains(&key.as_str()) {
                return Err(TemplateError::Reserved(key));
            }
            variables.push((key, Value::from_serialize(value)));
        }
        let mut set = |name: &str, value: Value| variables.push((name.to_owned(), value));
        for (name, text) in &self.tokens {
            set(name, Value::from(text.as_str()));
        }
        set("messages", Value::from_serialize(messages));
        set("tools", tools.map_or(().into(), Value::from_serialize));
        let prompt = options.add_generation_prompt;
        set("add_generation_prompt", Value::from(prompt));
        let now = options.now;
        let strftime = move |format: String| strftime_now(now, &format);
        set("strftime_now", Value::from_function(strftime));
        self.environment
            .get_template(name)
            .and_then(|template| template.render(Value::from_iter(variables)))
            .map_err(|error| explain(&error))
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(print_like_python);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", python_json::tojson);
    environment.add_function("raise_exception", |message: String| {
        Err::<Value, _>(
            Error::new(ErrorKind::InvalidOperation, "raise_exception")
                .with_source(Refusal(message)),
        )
    });
    environment
}

fn strftime_now(now: Option<SystemTime>, format: &str) -> Result<String, Error> {
    let failed = |reason: &str| Error::new(ErrorKind::InvalidOperation, reason.to_owned());
    match now {
        None => Err(failed("strftime_now").with_source(NoTime)),
        Some(now) => strftime::format(now, format).map_err(|reason| failed(&reason)),
    }
}

fn print_like_python(
    out: &mut Output<'_>,
    state: &State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    let word = match value.kind() {
        ValueKind::None => "None",
        ValueKind::Bool if value.is_true() => "True",
        ValueKind::Bool => "False",
        _ => return minijinja::escape_formatter(out, state, value),
    };
    out.write_str(word).map_err(Error::from)
}

/// `{% generation %}` marks the assistant's words for training and prints nothing; minijinja does
/// not know it.
fn without_generation_blocks(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let tag = &rest[start + 2..];
        let inner = tag.trim_start_matches(['-', '+']).trim_start();
        let spaces = tag.len() - inner.len();
        let (word, instead) = if inner.starts_with("endgeneration") {
            ("endgeneration", "endif")
        } else {
            ("generation", "if true")
        };
        let after = inner.strip_prefix(word).map(str::trim_start);
        result.push_str(&rest[..start + 2 + spaces]);
        rest = inner;
        if after.is_some_and(|after| after.starts_with(['%', '-', '+'])) {
            result.push_str(instead);
            rest = &inner[word.len()..];
        }
    }
    result.push_str(rest);
    result
}

fn explain(error: &Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Refusal(message)) = current.downcast_ref() {
            return TemplateError::Refused(message.clone());
        }
        if current.is::<NoTime>() {
            return TemplateError::TimeNotGiven;
        }
        if let Some(error) = current.downcast_ref::<Error>()
            && error.kind() == ErrorKind::OutOfFuel
        {
            return TemplateError::OutOfFuel;
        }
        cause = current.source();
    }
    TemplateError::Failed(error.to_string())
}
