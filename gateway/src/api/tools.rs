//! Tools that a client offers to the model, and what is made of answers that may call them.
//!
//! How a model's family writes calls is `tandem_dialect`'s to know, and what a definition must look
//! like too; here stands what that means for a request.

use serde_json::{Map, Value, json};
use tandem_dialect::{
    CannotConstrain, Decoding, Dialect, Must, Options, Release, ToolChoice, ToolsError,
};
use tandem_text::TextModel;

use super::constraint::Held;
use super::error::ApiError;
use super::params::Params;
use super::request::Endpoint;

/// The tools of a request: at least one, which may be called.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    /// As OpenAI's chats define them, which is what templates know.
    pub(crate) definitions: Value,
    choice: ToolChoice,
    /// Whether one answer may hold several calls.
    parallel: bool,
}

/// How the answers of one request are read.
#[derive(Clone, Debug)]
pub(crate) struct Parsing {
    pub(crate) dialect: Dialect,
    pub(crate) options: Options,
}

impl Tools {
    /// Joins what a request says of its tools, in the form of OpenAI's chats; `None` where there is
    /// none that the model may call.
    pub(crate) fn new(
        definitions: Value,
        choice: Value,
        parallel: Option<bool>,
    ) -> Result<Option<Self>, ApiError> {
        let tools = tandem_dialect::Tools::check(&definitions).map_err(wrong)?;
        // Without tools to choose from, that means none.
        let choice = if tools.is_empty() && choice == "auto" {
            Value::Null
        } else {
            choice
        };
        // A named function is called once, unless the client says otherwise: clients that name one take
        // a second call for a fault.
        let named = choice["type"] == "function";
        let choice = ToolChoice::check(&choice, &tools).map_err(wrong)?;
        // As in vLLM the model does not hear of tools that it may not call.
        Ok((choice.must() != Must::Never).then(|| Self {
            definitions,
            choice,
            parallel: parallel.unwrap_or(!named),
        }))
    }
}

impl Tools {
    /// The schema of each function that may be called, with its field.
    fn schemas(&self, endpoint: Endpoint) -> Vec<(String, Value)> {
        let field = endpoint.parameters_field();
        let all = self.definitions.as_array().into_iter().flatten();
        let named = |(index, definition): (usize, &Value)| {
            let tool = self
                .choice
                .tools()
                .get(definition["function"]["name"].as_str()?)?;
            Some((format!("tools[{index}].{field}"), tool.guided_parameters()))
        };
        all.enumerate().filter_map(named).collect()
    }
}

fn wrong(error: ToolsError) -> ApiError {
    let ToolsError { path, problem } = error;
    let message = format!("Invalid '{path}': {problem}.");
    ApiError::value(path, message)
}

impl Parsing {
    /// Of answers to `prompt`, at `endpoint`; `None` where they are nothing but text. Holds them to
    /// calls where the client says that there must be some. What they are held to begins behind the
    /// model's reasoning.
    pub(crate) fn of(
        tools: Option<&Tools>,
        (prompt, endpoint): (&str, Endpoint),
        dialect: Dialect,
        text: &TextModel,
        held: &mut Option<Held>,
    ) -> Result<Option<Self>, ApiError> {
        let reasoning = dialect.opens_reasoning(prompt);
        let decoding = Decoding {
            reasoning,
            parallel: tools.is_none_or(|tools| tools.parallel),
            special: &|word| text.special_token(word),
        };
        let mut options = Options {
            tools: tandem_dialect::Tools::default(),
            parallel: true,
            release: Release::Whole,
            reasoning,
        };
        let own = held.is_some();
        if !dialect.closes_reasoning(prompt) {
            *held = held
                .take()
                .map(|held| held.behind_reasoning(dialect, &decoding));
        }
        let Some(tools) = tools else {
            let marked = dialect.reasoning().is_some();
            return Ok(marked.then_some(Self { dialect, options }));
        };
        options.tools = tools.choice.tools().clone();
        options.parallel = tools.parallel;
        let grammar = dialect
            .grammar(&tools.choice, &decoding)
            .map_err(|error| cannot(&error))?;
        if let Some(grammar) = grammar {
            if own {
                let message =
                    "'tool_choice' and another parameter both say what the answer must be.";
                return Err(ApiError::value("tool_choice", message));
            }
            options.release = Release::Early;
            let functions = tools.schemas(endpoint);
            *held = Some(Held::to_calls(grammar.into_lark(), functions));
        }
        Ok(Some(Self { dialect, options }))
    }
}

fn cannot(error: &CannotConstrain) -> ApiError {
    let param = match error {
        CannotConstrain::NoCalls => "tool_choice",
        CannotConstrain::StrictAuto { .. } | CannotConstrain::Schema { .. } => "tools",
    };
    ApiError::unsupported(param, &format!(" ({error})"))
}

/// A tool of another API as OpenAI's chats define it.
pub(crate) fn definition(fields: &mut Params, parameters: &str) -> Result<Value, ApiError> {
    let mut function = Map::new();
    function.insert("name".to_owned(), fields.needed_text("name")?.into());
    if let Some(description) = fields.text("description")? {
        function.insert("description".to_owned(), description.into());
    }
    if let Some(parameters) = fields.take(parameters) {
        function.insert("parameters".to_owned(), parameters);
    }
    if let Some(strict) = fields.boolean("strict")? {
        function.insert("strict".to_owned(), strict.into());
    }
    Ok(json!({"type": "function", "function": function}))
}

/// The tools of another API, each as OpenAI's chats define it.
pub(crate) fn definitions(
    params: &mut Params,
    tool: impl Fn(Params) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    let entries = params.array("tools")?.unwrap_or_default();
    let read = |(index, entry)| tool(Params::within(&format!("tools[{index}]"), entry)?);
    let definitions: Result<Vec<Value>, ApiError> =
        entries.into_iter().enumerate().map(read).collect();
    Ok(Value::Array(definitions?))
}
