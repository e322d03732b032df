//! Of which JSON types an argument may be, for the families that write arguments as plain text.

use serde_json::Value;

use crate::json::{is_value, quote};

/// How many references of a schema are followed.
const MAX_REFERENCES: usize = 16;
/// How many schemas are looked at for one argument.
const MAX_SCHEMAS: usize = 256;

/// The types that a schema lets an argument have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u8);

const TEXT: u8 = 1;
const NUMBER: u8 = 2;
const BOOLEAN: u8 = 4;
const NULL: u8 = 8;
const ARRAY: u8 = 16;
const OBJECT: u8 = 32;
const ANY: u8 = 63;

impl Kinds {
    /// Of the argument of this name of a function with these parameters.
    pub(crate) fn of(parameters: &Value, argument: &str) -> Self {
        let mut budget = MAX_SCHEMAS;
        match parameters
            .get("properties")
            .and_then(|all| all.get(argument))
        {
            Some(schema) => Self(bits(parameters, schema, MAX_REFERENCES, &mut budget)),
            None => Self(ANY),
        }
    }

    /// Whether it can be a string only, so that its text can be passed on as it comes.
    pub(crate) fn is_text(self) -> bool {
        self.0 == TEXT
    }

    /// Whether it may be a string.
    pub(crate) fn has_text(self) -> bool {
        self.0 & TEXT != 0
    }

    /// Whether it can be true or false only.
    pub(crate) fn is_boolean(self) -> bool {
        self.0 == BOOLEAN
    }

    /// Appends the JSON of the argument that was written as `text`: the value that it reads as where the
    /// schema allows that type, otherwise a string.
    pub(crate) fn convert(self, text: &str, out: &mut String) {
        let bare = match text.trim() {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            bare => bare,
        };
        // Not by reading it: a number may be larger than any that could be held.
        let bit = match bare.as_bytes().first() {
            _ if !is_value(bare) => 0,
            Some(b'{') => OBJECT,
            Some(b'[') => ARRAY,
            Some(b't' | b'f') => BOOLEAN,
            Some(b'n') => NULL,
            Some(b'-' | b'0'..=b'9') => NUMBER,
            _ => 0,
        };
        if self.0 & bit == 0 {
            quote(out, text);
        } else {
            out.push_str(bare);
        }
    }
}

fn bits(root: &Value, schema: &Value, references: usize, budget: &mut usize) -> u8 {
    if *budget == 0 {
        return ANY;
    }
    *budget -= 1;
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = reference
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        return match target {
            Some(target) if references > 0 => bits(root, target, references - 1, budget),
            _ => ANY,
        };
    }
    let mut all = |list: &Value| {
        let list = list.as_array().into_iter().flatten();
        list.fold(0, |found, schema| {
            found | bits(root, schema, references, budget)
        })
    };
    if let Some(union) = schema.get("anyOf").or_else(|| schema.get("oneOf")) {
        return all(union);
    }
    if let Some(value) = schema.get("const") {
        return of_value(value);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values
            .iter()
            .fold(0, |found, value| found | of_value(value));
    }
    match schema.get("type") {
        Some(Value::String(name)) => of_name(name),
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .fold(0, |found, name| found | of_name(name)),
        _ => ANY,
    }
}

fn of_name(name: &str) -> u8 {
    match name {
        "string" => TEXT,
        "number" | "integer" => NUMBER,
        "boolean" => BOOLEAN,
        "null" => NULL,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => ANY,
    }
}

fn of_value(value: &Value) -> u8 {
    match value {
        Value::String(_) => TEXT,
        Value::Number(_) => NUMBER,
        Value::Bool(_) => BOOLEAN,
        Value::Null => NULL,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn convert(schema: &Value, text: &str) -> String {
        let parameters = json!({"type": "object", "properties": {"a": schema}, "$defs": {"n": {"type": "number"}}});
        let mut out = String::new();
        Kinds::of(&parameters, "a").convert(text, &mut out);
        out
    }

    #[test]
    fn the_schema_decides_the_type() {
        for (schema, text, json) in [
            (json!({"type": "string"}), "5", r#""5""#),
            (json!({"type": "integer"}), "5", "5"),
            (json!({"type": "integer"}), " 5\n", "5"),
            (json!({"type": "integer"}), "five", r#""five""#),
            (json!({"type": "boolean"}), "True", "true"),
            (json!({"type": ["string", "null"]}), "null", "null"),
            (json!({"type": ["string", "null"]}), "5", r#""5""#),
            (
                json!({"anyOf": [{"type": "string"}, {"type": "number"}]}),
                "5",
                "5",
            ),
            (json!({"enum": ["1", "2"]}), "1", r#""1""#),
            (json!({"const": 1}), "1", "1"),
            (json!({"$ref": "#/$defs/n"}), "1.5", "1.5"),
            (json!({"$ref": "#/nowhere"}), "x", r#""x""#),
            (json!({"type": "number"}), "1E1838", "1E1838"),
            (json!({}), "", r#""""#),
            (json!({"type": "object"}), r#"{"a": 1}"#, r#"{"a": 1}"#),
            (json!({}), "[1]", "[1]"),
            (json!({}), r#""a""#, r#""\"a\"""#),
            (
                json!({"type": "number"}),
                "123456789012345678901234567890",
                "123456789012345678901234567890",
            ),
        ] {
            assert_eq!(convert(&schema, text), json, "{schema} {text}");
        }
    }

    #[test]
    fn schemas_that_refer_to_themselves_end() {
        let own = json!({"$ref": "#/properties/a"});
        assert_eq!(convert(&own, "x"), r#""x""#);
        let wide = json!({"anyOf": vec![json!({"$ref": "#/properties/a"}); 50]});
        assert_eq!(convert(&wide, "x"), r#""x""#);
    }
}
