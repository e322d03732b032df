//! A bound that llguidance has not: a number that is a multiple of `n` is followed by an automaton of `n`
//! states, and several such keywords that meet make one of their least common multiple.

use serde_json::Value;

use crate::{ConstraintError, Kind};

/// The least common multiple of all of a schema's `multipleOf`, in units of their last decimal place, at
/// most.
const MOST: u128 = 20_000;
/// Decimal places that are looked at.
const PLACES: i32 = 9;
/// What a schema within a grammar stands behind.
const JSON: &str = "%json";

/// Refuses a schema whose `multipleOf` would take too long to follow.
pub(crate) fn check_schema(schema: &Value) -> Result<(), ConstraintError> {
    check(std::slice::from_ref(schema), Kind::JsonSchema)
}

/// The same of all schemas within a grammar. They are read as llguidance's lexer reads them, one JSON
/// value right behind each `%json`: what is no JSON it refuses by itself, where it is no text or comment.
pub(crate) fn check_lark(grammar: &str) -> Result<(), ConstraintError> {
    let schema = |(at, _): (usize, &str)| {
        let behind = &grammar[at + JSON.len()..];
        let mut values = serde_json::Deserializer::from_str(behind).into_iter();
        values.next()?.ok()
    };
    let schemas: Vec<Value> = grammar.match_indices(JSON).filter_map(schema).collect();
    check(&schemas, Kind::Lark)
}

fn check(schemas: &[Value], kind: Kind) -> Result<(), ConstraintError> {
    let mut found = Vec::new();
    schemas
        .iter()
        .for_each(|schema| collect(schema, &mut found));
    let places = (0..=PLACES).find(|p| found.iter().all(|n| whole(*n, *p).is_some()));
    let common = places.and_then(|places| {
        let mut units = found.iter().filter_map(|n| whole(*n, places));
        units.try_fold(1, |all, n| {
            Some(all / divisor(all, n) * n).filter(|all| *all <= MOST)
        })
    });
    common.map(drop).ok_or_else(|| ConstraintError::Refused {
        kind,
        why: format!(
            "its multipleOf have a least common multiple of more than {MOST} units of their last decimal place"
        ),
    })
}

fn collect(value: &Value, found: &mut Vec<f64>) {
    match value {
        Value::Array(values) => values.iter().for_each(|v| collect(v, found)),
        Value::Object(members) => {
            for (name, value) in members {
                let number = value.as_f64().filter(|_| name == "multipleOf");
                found.extend(number);
                collect(value, found);
            }
        }
        _ => {}
    }
}

/// So many units of the given decimal place, where it is a whole number of them.
fn whole(number: f64, places: i32) -> Option<u128> {
    let units = number * 10f64.powi(places);
    let whole = units.round();
    let near = (units - whole).abs() <= 1e-6 && (1.0..1e15).contains(&whole);
    near.then_some(whole as u128)
}

fn divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn multiples_are_bounded_alone_and_together() {
        let of = |values: &[f64]| {
            let all: Vec<_> = values.iter().map(|v| json!({ "multipleOf": v })).collect();
            check_schema(&json!({ "allOf": all })).is_ok()
        };
        assert!(of(&[]) && of(&[5.0]) && of(&[0.01, 5.0, 100.0]) && of(&[0.25]));
        assert!(of(&[20_000.0]) && !of(&[20_001.0]));
        assert!(!of(&[1_000_003.0]) && !of(&[9973.0, 9967.0]) && !of(&[1e300]));
        assert!(!of(&[0.0]) && !of(&[-3.0]) && !of(&[1.0 / 3.0]));
    }

    #[test]
    fn schemas_in_a_grammar_are_bounded_together() {
        assert!(check_lark("start: \"multipleOf\" \"%json\"").is_ok());
        assert!(check_lark("start: %json {\"type\":\"null\"}").is_ok());
        assert!(check_lark("start: %json {\"multipleOf\":7} # %json").is_ok());
        assert!(check_lark("start: %json\n{\"multiple\\u004ff\":1000003}").is_err());
        let two = "start: %json {\"multipleOf\":9973} %json{\"multipleOf\":9967}";
        assert!(check_lark(two).is_err());
        assert!(check_lark(&two.replace("9967", "1")).is_ok());
    }
}
