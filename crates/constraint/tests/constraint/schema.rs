//! Whether a document is one of a schema: the keywords that the tests use, by their definitions. Strings'
//! `pattern` and `format` are for the tests themselves.

use serde_json::Value;

pub(crate) fn holds(root: &Value, schema: &Value, value: &Value) -> bool {
    let Some(keywords) = schema.as_object() else {
        return schema != false;
    };
    let keyword = |(name, given): (&String, &Value)| keyword(root, schema, (name, given), value);
    keywords.iter().all(keyword)
}

fn keyword(root: &Value, schema: &Value, (name, given): (&str, &Value), value: &Value) -> bool {
    let number = |v: &Value| v.as_f64().unwrap();
    let count = |v: &Value| v.as_u64().unwrap() as usize;
    let list = |v: &Value| v.as_array().unwrap().clone();
    let by = |schema: &Value| holds(root, schema, value);
    match name {
        "type" => kind(value, given.as_str().unwrap()),
        "enum" => list(given).contains(value),
        "const" => given == value,
        "anyOf" => list(given).iter().any(by),
        "oneOf" => list(given).iter().filter(|s| by(s)).count() == 1,
        "allOf" => list(given).iter().all(by),
        "$ref" => {
            let path = given.as_str().unwrap().trim_start_matches('#');
            by(root.pointer(path).unwrap())
        }
        "minimum" => value.as_f64().is_none_or(|v| v >= number(given)),
        "maximum" => value.as_f64().is_none_or(|v| v <= number(given)),
        "multipleOf" => value
            .as_i64()
            .is_none_or(|v| v % given.as_i64().unwrap() == 0),
        "minLength" => value
            .as_str()
            .is_none_or(|v| v.chars().count() >= count(given)),
        "maxLength" => value
            .as_str()
            .is_none_or(|v| v.chars().count() <= count(given)),
        "minItems" => value.as_array().is_none_or(|v| v.len() >= count(given)),
        "maxItems" => value.as_array().is_none_or(|v| v.len() <= count(given)),
        "minProperties" => value.as_object().is_none_or(|v| v.len() >= count(given)),
        "maxProperties" => value.as_object().is_none_or(|v| v.len() <= count(given)),
        "prefixItems" => value.as_array().is_none_or(|v| {
            let given = list(given);
            given.iter().zip(v).all(|(s, v)| holds(root, s, v))
        }),
        "items" => value.as_array().is_none_or(|v| {
            let before = schema.get("prefixItems").map_or(0, |p| list(p).len());
            v.iter().skip(before).all(|v| holds(root, given, v))
        }),
        "required" => value.as_object().is_none_or(|v| {
            let given = list(given);
            given
                .iter()
                .all(|name| v.contains_key(name.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|v| {
            let mut given = given.as_object().unwrap().iter();
            given.all(|(name, s)| v.get(name).is_none_or(|v| holds(root, s, v)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|v| {
            let known = |name: &String| schema["properties"].get(name).is_some();
            let patterned = schema.get("patternProperties").is_some();
            patterned
                || v.iter()
                    .all(|(name, v)| known(name) || holds(root, given, v))
        }),
        "pattern" | "format" | "patternProperties" | "$defs" => true,
        other => panic!("the tests know no {other}"),
    }
}

fn kind(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.as_f64().is_some_and(|v| v.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type is called {other}"),
    }
}
