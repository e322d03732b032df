//! A bound that llguidance has not: a number that is a multiple of `n` is followed by an automaton of `n`
//! states, and several such keywords that meet make one of their least common multiple.

use serde_json::Value;

use crate::{ConstraintError, Kind};

/// The least common multiple of all of a schema's `multipleOf`, in units of their last decimal place, at
/// most.
const MOST: u128 = 20_000;
/// Decimal places that are looked at.
const PLACES: i32 = 9;

/// Refuses a schema whose `multipleOf` would take too long to follow.
pub(crate) fn check_schema(schema: &Value) -> Result<(), ConstraintError> {
    let mut found = Vec::new();
    collect(schema, &mut found);
    let places = (0..=PLACES).find(|p| found.iter().all(|n| whole(*n, *p).is_some()));
    let common = places.and_then(|places| {
        let mut units = found.iter().filter_map(|n| whole(*n, places));
        units.try_fold(1, |all, n| {
            Some(all / divisor(all, n) * n).filter(|all| *all <= MOST)
        })
    });
    common.map(drop).ok_or_else(|| ConstraintError::Refused {
        kind: Kind::JsonSchema,
        why: format!(
            "its multipleOf have a least common multiple of more than {MOST} units of their last decimal place"
        ),
    })
}

/// Schemas within a grammar are not looked into: none of them may have the keyword, however it is
/// written.
pub(crate) fn check_lark(grammar: &str) -> Result<(), ConstraintError> {
    let schemas = grammar.contains("%json");
    if schemas && (grammar.contains("multipleOf") || grammar.contains("\\u")) {
        return Err(ConstraintError::Refused {
            kind: Kind::Lark,
            why: "beside %json it must have neither multipleOf nor \\u".to_owned(),
        });
    }
    Ok(())
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
        assert!(!of(&[1_000_003.0]) && !of(&[9973.0, 9967.0]) && !of(&[1e300]));
        assert!(!of(&[0.0]) && !of(&[-3.0]) && !of(&[1.0 / 3.0]));
    }

    #[test]
    fn a_schema_in_a_grammar_has_none() {
        assert!(check_lark("start: \"multipleOf\"").is_ok());
        assert!(check_lark("start: %json {\"type\":\"null\"}").is_ok());
        assert!(check_lark("start: %json {\"multipleOf\":7}").is_err());
        assert!(check_lark("start: %json {\"multiple\\u004ff\":7}").is_err());
    }
}
