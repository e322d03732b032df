//! Which schemas can be held to argument by argument.

use serde_json::{Map, Value, json};

use crate::kind::Kinds;

/// Keywords that constrain nothing.
const NOTES: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "$comment",
];
/// Keywords of a function's parameters that are understood besides [`NOTES`].
const OBJECT: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
    "definitions",
    "$schema",
];

/// An argument.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) name: String,
    /// With the definitions that it may refer to.
    pub(crate) schema: Value,
    pub(crate) required: bool,
    pub(crate) kinds: Kinds,
}

/// A function's arguments, and the first keyword of its schema that says something about several of them together.
pub(crate) fn properties(parameters: &Value) -> (Vec<Property>, Option<&str>) {
    let Some(schema) = parameters.as_object() else {
        return (Vec::new(), None);
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = || properties.into_iter().flatten();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map_or(Vec::new(), |list| {
            list.iter().filter_map(Value::as_str).collect()
        });
    let known = |name: &str| properties().any(|(property, _)| property == name);
    let keyword = match schema.get("additionalProperties") {
        None | Some(Value::Bool(_)) => unknown(schema, OBJECT),
        Some(_) => Some("additionalProperties"),
    };
    let missing = || {
        required
            .iter()
            .any(|name| !known(name))
            .then_some("required")
    };
    let all = properties().map(|(name, property)| Property {
        name: name.clone(),
        schema: with_definitions(property, schema),
        required: required.contains(&name.as_str()),
        kinds: Kinds::of(parameters, name),
    });
    (all.collect(), keyword.or_else(missing))
}

/// A property's schema with what it may refer to.
fn with_definitions(property: &Value, schema: &Map<String, Value>) -> Value {
    let mut property = property.clone();
    if let Some(property) = property.as_object_mut() {
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = schema.get(key) {
                property.insert(key.to_owned(), definitions.clone());
            }
        }
    }
    property
}

fn unknown<'s>(schema: &'s Map<String, Value>, known: &[&str]) -> Option<&'s str> {
    let other = |key: &&String| !known.contains(&key.as_str()) && !NOTES.contains(&key.as_str());
    schema.keys().find(other).map(String::as_str)
}

/// What can be written for an argument in plain text.
#[derive(Debug, PartialEq)]
pub(crate) enum Plain {
    /// Anything.
    Text,
    /// One of these.
    Words(Vec<String>),
    /// JSON of its schema.
    Json,
}

impl Property {
    /// What may be written in plain text so that it reads back as what the schema allows; otherwise the keyword
    /// that cannot be held to.
    pub(crate) fn plain(&self) -> Result<Plain, &str> {
        if !self.kinds.has_text() {
            return Ok(Plain::Json);
        }
        let Some(schema) = self.schema.as_object() else {
            return Ok(Plain::Text);
        };
        let one = schema.get("const").map(std::slice::from_ref);
        let several = schema
            .get("enum")
            .and_then(Value::as_array)
            .map(Vec::as_slice);
        if let Some(values) = one.or(several) {
            let words: Option<Vec<String>> = values
                .iter()
                .map(|value| {
                    value
                        .as_str()
                        .filter(|text| !text.contains('<'))
                        .map(str::to_owned)
                })
                .collect();
            return words.map(Plain::Words).ok_or("enum");
        }
        match constraint(schema, true) {
            None => Ok(Plain::Text),
            Some(keyword) => Err(keyword),
        }
    }

    /// Whether it is true or false and nothing else.
    pub(crate) fn is_boolean(&self) -> bool {
        self.kinds.is_boolean()
            && self
                .schema
                .get("type")
                .is_some_and(|kind| kind == "boolean")
    }
}

/// A keyword that says more than a type.
fn constraint(schema: &Map<String, Value>, top: bool) -> Option<&str> {
    let known: &[&str] = if top {
        &["type", "anyOf", "$defs", "definitions"]
    } else {
        &["type"]
    };
    if let Some(other) = unknown(schema, known) {
        return Some(other);
    }
    let options = schema
        .get("anyOf")
        .filter(|_| top)
        .and_then(Value::as_array)?;
    options
        .iter()
        .find_map(|option| constraint(option.as_object()?, false))
}

/// A schema for llguidance's `%json`: with an end to whitespace. What it cannot hold to is an error with
/// `strict`, otherwise left out.
pub(crate) fn guided(schema: &Value, strict: bool) -> Value {
    let mut schema = match schema {
        Value::Object(_) => schema.clone(),
        Value::Bool(false) => json!({"not": {}}),
        _ => json!({}),
    };
    if let Some(schema) = schema.as_object_mut() {
        let options = json!({"whitespace_pattern": "[ \\t\\r\\n]{1,16}", "lenient": !strict});
        schema.insert("x-guidance".to_owned(), options);
    }
    schema
}
