//! The functions that a request offers, checked.
//!
//! Reads OpenAI's `tools` and refuses what it is not, with the path of what is wrong. What it lets
//! through is bounded in number and size.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::kind::Kinds;

/// How many functions a request may offer (OpenAI's own limit).
pub const MAX_TOOLS: usize = 128;
/// The longest name of a function (OpenAI's own limit).
pub const MAX_NAME: usize = 64;
/// The longest description of a function, in bytes.
pub const MAX_DESCRIPTION: usize = 32 * 1024;
/// The longest JSON text of all parameters of a request, in bytes.
pub const MAX_PARAMETERS: usize = 1024 * 1024;

/// What is wrong with `tools`, `tool_choice` or one of their members.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path}: {problem}")]
pub struct ToolsError {
    /// Such as `tools[2].function.name`: OpenAI's `param`.
    pub path: String,
    /// What was found and what is allowed.
    pub problem: String,
}

impl ToolsError {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
        }
    }
}

/// A function that a model may call.
#[derive(Debug, Clone)]
pub struct Tool {
    name: String,
    parameters: Value,
    strict: bool,
}

impl Tool {
    /// `[a-zA-Z0-9_-]{1,64}`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The JSON schema of its arguments; an object schema.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }

    /// The schema as constrained decoding follows it: with `strict` to the letter, otherwise without keywords that
    /// cannot be held to.
    #[must_use]
    pub fn guided_parameters(&self) -> Value {
        crate::schema::guided(&self.parameters, self.strict)
    }

    /// Whether the client asked that arguments match the schema exactly.
    #[must_use]
    pub fn strict(&self) -> bool {
        self.strict
    }

    /// What an argument may be.
    pub(crate) fn kinds(&self, argument: &str) -> Kinds {
        Kinds::of(&self.parameters, argument)
    }
}

/// All functions of a request; never two of one name.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    tools: Vec<Tool>,
}

impl Tools {
    /// Checks OpenAI's `tools` (`null` is none).
    ///
    /// # Errors
    ///
    /// [`ToolsError`] with the path of the first thing that is wrong.
    pub fn check(tools: &Value) -> Result<Self, ToolsError> {
        let list = match tools {
            Value::Null => return Ok(Self::default()),
            Value::Array(list) => list,
            _ => return Err(ToolsError::new("tools", "must be an array")),
        };
        if list.len() > MAX_TOOLS {
            let problem = format!("{} functions; at most {MAX_TOOLS} are allowed", list.len());
            return Err(ToolsError::new("tools", problem));
        }
        let mut checked = Self::default();
        let mut bytes = 0;
        for (index, tool) in list.iter().enumerate() {
            let tool = check_one(index, tool)?;
            bytes += tool.parameters.to_string().len();
            if bytes > MAX_PARAMETERS {
                let problem = format!(
                    "the parameters of all functions are longer than {MAX_PARAMETERS} bytes"
                );
                return Err(ToolsError::new(
                    format!("tools[{index}].function.parameters"),
                    problem,
                ));
            }
            if checked.get(&tool.name).is_some() {
                let problem = format!("\"{}\" is the name of an earlier function", tool.name);
                return Err(ToolsError::new(
                    format!("tools[{index}].function.name"),
                    problem,
                ));
            }
            checked.tools.push(tool);
        }
        Ok(checked)
    }

    /// The function of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Whether a function's name begins so.
    pub(crate) fn begins(&self, start: &str) -> bool {
        self.tools.iter().any(|tool| tool.name.starts_with(start))
    }

    /// In the request's order.
    pub fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Those that `keep` holds for.
    pub(crate) fn only(&self, keep: impl Fn(&Tool) -> bool) -> Self {
        let tools = self.tools.iter().filter(|tool| keep(tool));
        Self {
            tools: tools.cloned().collect(),
        }
    }
}

fn check_one(index: usize, tool: &Value) -> Result<Tool, ToolsError> {
    let path = format!("tools[{index}]");
    let wrong =
        |member: &str, problem: &str| Err(ToolsError::new(format!("{path}{member}"), problem));
    let Some(tool) = tool.as_object() else {
        return wrong("", "must be an object");
    };
    match tool.get("type").and_then(Value::as_str) {
        Some("function") => {}
        Some(other) => {
            return wrong(
                ".type",
                &format!("\"{other}\" is not supported; only \"function\" is"),
            );
        }
        None => return wrong(".type", "must be \"function\""),
    }
    let Some(function) = tool.get("function").and_then(Value::as_object) else {
        return wrong(".function", "must be an object");
    };
    let strict = match function.get("strict") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(strict)) => *strict,
        Some(_) => return wrong(".function.strict", "must be true or false"),
    };
    match function.get("description") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) if text.len() <= MAX_DESCRIPTION => {}
        Some(Value::String(text)) => {
            let problem = format!(
                "{} bytes; at most {MAX_DESCRIPTION} are allowed",
                text.len()
            );
            return wrong(".function.description", &problem);
        }
        Some(_) => return wrong(".function.description", "must be a string"),
    }
    Ok(Tool {
        name: check_name(&format!("{path}.function.name"), function.get("name"))?,
        parameters: check_parameters(&path, function.get("parameters"))?,
        strict,
    })
}

fn check_name(path: &str, name: Option<&Value>) -> Result<String, ToolsError> {
    let Some(name) = name.and_then(Value::as_str) else {
        return Err(ToolsError::new(path, "must be a string"));
    };
    if is_name(name) {
        return Ok(name.to_owned());
    }
    let shown: String = name.chars().take(MAX_NAME).collect();
    let problem =
        format!("\"{shown}\" is no name: 1 to {MAX_NAME} of a-z, A-Z, 0-9, '_' and '-' are");
    Err(ToolsError::new(path, problem))
}

/// Whether `name` is `[a-zA-Z0-9_-]{1,64}`.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_name_char)
}

pub(crate) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A function without parameters takes an empty object.
fn check_parameters(path: &str, parameters: Option<&Value>) -> Result<Value, ToolsError> {
    let wrong = |member: &str, problem: &str| {
        let path = format!("{path}.function.parameters{member}");
        Err(ToolsError::new(path, problem))
    };
    let schema = match parameters {
        None | Some(Value::Null) => return Ok(no_parameters()),
        Some(Value::Object(schema)) if schema.is_empty() => return Ok(no_parameters()),
        Some(Value::Object(schema)) => schema,
        Some(_) => return wrong("", "must be a JSON schema of type \"object\""),
    };
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => {}
        Some(found) => {
            return wrong(
                ".type",
                &format!("{found} is not supported; only \"object\" is"),
            );
        }
        None => {}
    }
    if schema
        .get("properties")
        .is_some_and(|properties| !properties.is_object())
    {
        return wrong(".properties", "must be an object");
    }
    if schema
        .get("required")
        .is_some_and(|required| !is_list_of_strings(required))
    {
        return wrong(".required", "must be an array of strings");
    }
    let mut schema = schema.clone();
    schema.insert("type".to_owned(), "object".into());
    Ok(Value::Object(schema))
}

fn is_list_of_strings(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| list.iter().all(Value::is_string))
}

fn no_parameters() -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), Map::new().into());
    schema.insert("additionalProperties".to_owned(), false.into());
    schema.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(tools: &Value) -> String {
        Tools::check(tools).expect_err("is refused").to_string()
    }

    fn function(function: Value) -> Value {
        json!([{"type": "function", "function": function}])
    }

    #[test]
    fn as_many_functions_as_openai_takes() {
        let functions = |count: usize| -> Value {
            let function = |n| json!({"type": "function", "function": {"name": format!("f{n}")}});
            (0..count).map(function).collect()
        };
        assert!(Tools::check(&functions(MAX_TOOLS)).is_ok());
        let problem = problem(&functions(MAX_TOOLS + 1));
        assert_eq!(problem, "tools: 129 functions; at most 128 are allowed");
    }

    #[test]
    fn openais_shape_is_taken() {
        let tools = Tools::check(&json!([
            {"type": "function", "function": {"name": "f", "description": null, "strict": true,
             "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}},
            {"type": "function", "function": {"name": "g-2", "parameters": {}}},
        ]));
        let tools = tools.expect("is well");
        assert_eq!(tools.len(), 2);
        assert!(tools.get("f").is_some_and(Tool::strict));
        assert_eq!(
            tools
                .get("g-2")
                .map(|tool| tool.parameters()["type"].clone()),
            Some(json!("object"))
        );
        assert!(tools.get("h").is_none());
        assert!(Tools::check(&Value::Null).is_ok_and(|tools| tools.is_empty()));
    }

    #[test]
    fn an_error_names_the_path() {
        for (tools, path) in [
            (json!({}), "tools: "),
            (json!([1]), "tools[0]: "),
            (json!([{"type": "custom"}]), "tools[0].type: \"custom\""),
            (json!([{}]), "tools[0].type: "),
            (json!([{"type": "function"}]), "tools[0].function: "),
            (function(json!({})), "tools[0].function.name: "),
            (function(json!({"name": ""})), "tools[0].function.name: "),
            (
                function(json!({"name": "a b"})),
                "tools[0].function.name: \"a b\"",
            ),
            (
                function(json!({"name": "a".repeat(65)})),
                "tools[0].function.name: ",
            ),
            (
                function(json!({"name": "a", "strict": 1})),
                "tools[0].function.strict: ",
            ),
            (
                function(json!({"name": "a", "description": 1})),
                "tools[0].function.description: ",
            ),
            (
                function(json!({"name": "a", "parameters": 1})),
                "tools[0].function.parameters: ",
            ),
            (
                function(json!({"name": "a", "parameters": {"type": "array"}})),
                "tools[0].function.parameters.type: ",
            ),
            (
                function(json!({"name": "a", "parameters": {"type": "object", "properties": []}})),
                "tools[0].function.parameters.properties: ",
            ),
            (
                function(json!({"name": "a", "parameters": {"type": "object", "required": [1]}})),
                "tools[0].function.parameters.required: ",
            ),
        ] {
            let problem = problem(&tools);
            assert!(problem.starts_with(path), "{problem}");
        }
    }

    #[test]
    fn names_are_given_once_and_sizes_are_bounded() {
        let one = json!({"type": "function", "function": {"name": "f"}});
        let twice = json!([one, one]);
        assert!(problem(&twice).starts_with("tools[1].function.name: \"f\" is the name"));
        let many: Vec<Value> = (0..129)
            .map(|n| json!({"type": "function", "function": {"name": format!("f{n}")}}))
            .collect();
        assert!(problem(&many.into()).starts_with("tools: 129 functions; at most 128"));
        let long = "x".repeat(MAX_PARAMETERS);
        let schema = json!({"type": "object", "title": long});
        let problem = problem(&function(json!({"name": "f", "parameters": schema})));
        assert!(
            problem.starts_with("tools[0].function.parameters: "),
            "{problem}"
        );
    }
}
