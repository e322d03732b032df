//! OpenAI's `tool_choice`, checked against the functions that it chooses from.

use serde_json::Value;

use crate::tools::{Tools, ToolsError};

/// Whether a model has to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Must {
    /// It must not: the functions are not even shown to it, and its text is not searched for calls.
    Never,
    /// It may.
    May,
    /// It has to call at least once.
    Call,
}

/// Which functions may or must be called.
#[derive(Debug, Clone)]
pub struct ToolChoice {
    must: Must,
    tools: Tools,
}

impl ToolChoice {
    /// Checks OpenAI's `tool_choice`; `null` is `"auto"` where there are functions and `"none"` where there
    /// are not.
    ///
    /// # Errors
    ///
    /// [`ToolsError`] with the path of what is wrong.
    pub fn check(choice: &Value, tools: &Tools) -> Result<Self, ToolsError> {
        let found = |must| {
            Ok(Self {
                must,
                tools: tools.clone(),
            })
        };
        match choice {
            Value::Null if tools.is_empty() => found(Must::Never),
            Value::Null => found(Must::May),
            Value::String(text) if text == "none" => found(Must::Never),
            Value::String(_) | Value::Object(_) if tools.is_empty() => Err(ToolsError::new(
                "tool_choice",
                "is allowed only with 'tools'",
            )),
            Value::String(text) if text == "auto" => found(Must::May),
            Value::String(text) if text == "required" => found(Must::Call),
            Value::Object(_) => chosen(choice, tools),
            _ => {
                let problem = format!(
                    "{choice} is not one of \"none\", \"auto\", \"required\" and an object"
                );
                Err(ToolsError::new("tool_choice", problem))
            }
        }
    }

    /// Whether the model has to call.
    #[must_use]
    pub fn must(&self) -> Must {
        self.must
    }

    /// The functions that it may call.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        &self.tools
    }
}

fn chosen(choice: &Value, tools: &Tools) -> Result<ToolChoice, ToolsError> {
    match choice["type"].as_str() {
        Some("function") => {
            let name = named("tool_choice", choice, tools)?;
            Ok(ToolChoice {
                must: Must::Call,
                tools: tools.only(|tool| tool.name() == name),
            })
        }
        Some("allowed_tools") => allowed(&choice["allowed_tools"], tools),
        Some(other) => {
            let problem =
                format!("\"{other}\" is not supported; \"function\" and \"allowed_tools\" are");
            Err(ToolsError::new("tool_choice.type", problem))
        }
        None => Err(ToolsError::new("tool_choice.type", "must be a string")),
    }
}

fn allowed(allowed: &Value, tools: &Tools) -> Result<ToolChoice, ToolsError> {
    const PATH: &str = "tool_choice.allowed_tools";
    let must = match allowed["mode"].as_str() {
        Some("auto") => Must::May,
        Some("required") => Must::Call,
        _ => {
            return Err(ToolsError::new(
                format!("{PATH}.mode"),
                "must be \"auto\" or \"required\"",
            ));
        }
    };
    let list = allowed["tools"].as_array().filter(|list| !list.is_empty());
    let Some(list) = list else {
        return Err(ToolsError::new(
            format!("{PATH}.tools"),
            "must be an array of at least one function",
        ));
    };
    let names: Result<Vec<&str>, ToolsError> = list
        .iter()
        .enumerate()
        .map(|(index, tool)| named(&format!("{PATH}.tools[{index}]"), tool, tools))
        .collect();
    let names = names?;
    Ok(ToolChoice {
        must,
        tools: tools.only(|tool| names.contains(&tool.name())),
    })
}

/// The name of a function of `tools` in `{"type": "function", "function": {"name": ...}}`.
fn named<'a>(path: &str, choice: &'a Value, tools: &Tools) -> Result<&'a str, ToolsError> {
    if choice["type"] != "function" {
        return Err(ToolsError::new(
            format!("{path}.type"),
            "must be \"function\"",
        ));
    }
    let path = format!("{path}.function.name");
    let Some(name) = choice["function"]["name"].as_str() else {
        return Err(ToolsError::new(path, "must be a string"));
    };
    if tools.get(name).is_none() {
        let shown: String = name.chars().take(64).collect();
        let known: Vec<&str> = tools.iter().map(|tool| tool.name()).take(8).collect();
        let problem = format!("\"{shown}\" is not in 'tools' ({})", known.join(", "));
        return Err(ToolsError::new(path, problem));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Tools {
        Tools::check(&json!([
            {"type": "function", "function": {"name": "f"}},
            {"type": "function", "function": {"name": "g"}},
        ]))
        .expect("is well")
    }

    fn check(choice: &Value) -> Result<(Must, Vec<String>), String> {
        let choice = ToolChoice::check(choice, &tools()).map_err(|error| error.to_string())?;
        let names = choice.tools().iter().map(|tool| tool.name().to_owned());
        Ok((choice.must(), names.collect()))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn every_form_is_read() {
        for (choice, must, tools) in [
            (json!(null), Must::May, &["f", "g"][..]),
            (json!("auto"), Must::May, &["f", "g"]),
            (json!("none"), Must::Never, &["f", "g"]),
            (json!("required"), Must::Call, &["f", "g"]),
            (
                json!({"type": "function", "function": {"name": "g"}}),
                Must::Call,
                &["g"],
            ),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
                    {"type": "function", "function": {"name": "f"}}]}}),
                Must::May,
                &["f"],
            ),
        ] {
            assert_eq!(check(&choice), Ok((must, names(tools))), "{choice}");
        }
    }

    #[test]
    fn an_error_names_the_path() {
        for (choice, path) in [
            (json!("any"), "tool_choice: \"any\" is not one of"),
            (json!(1), "tool_choice: "),
            (json!({}), "tool_choice.type: "),
            (json!({"type": "custom"}), "tool_choice.type: \"custom\""),
            (json!({"type": "function"}), "tool_choice.function.name: "),
            (
                json!({"type": "function", "function": {"name": "h"}}),
                "tool_choice.function.name: \"h\" is not in 'tools' (f, g)",
            ),
            (
                json!({"type": "allowed_tools"}),
                "tool_choice.allowed_tools.mode: ",
            ),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}),
                "tool_choice.allowed_tools.tools: ",
            ),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{}]}}),
                "tool_choice.allowed_tools.tools[0].type: ",
            ),
        ] {
            let problem = check(&choice).expect_err("is refused");
            assert!(problem.starts_with(path), "{problem}");
        }
    }

    #[test]
    fn without_functions_there_is_nothing_to_choose() {
        let none = Tools::default();
        let choice = ToolChoice::check(&Value::Null, &none).expect("is well");
        assert_eq!(choice.must(), Must::Never);
        assert!(ToolChoice::check(&json!("required"), &none).is_err());
        assert!(ToolChoice::check(&json!("none"), &none).is_ok());
    }
}
