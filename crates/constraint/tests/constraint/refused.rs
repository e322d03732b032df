//! Constraints that are wrong or made to do harm: an answer in seconds, and a line that helps.

use std::fmt::Write;
use std::time::{Duration, Instant};

use tandem_constraint::{Constraint, MAX_BYTES, MAX_DEPTH};

use crate::GRAMMARS;

const DEADLINE: Duration = Duration::from_secs(10);

/// What is said of it, or nothing where it can be used: then its first steps are bounded too.
fn check(constraint: &Constraint) -> Option<String> {
    let start = Instant::now();
    let said = match GRAMMARS.compile(constraint) {
        Err(error) => Some(error.to_string()),
        Ok(mut matching) => {
            for _ in 0..8 {
                let Ok(allowed) = matching.allowed() else {
                    break;
                };
                let Some(token) = (3..40_000).find(|t| allowed.allows(*t)) else {
                    break;
                };
                if matching.take(&[token]).is_err() {
                    break;
                }
            }
            None
        }
    };
    let took = start.elapsed();
    assert!(took < DEADLINE, "{took:?} for {:.80}", constraint.text());
    if let Some(said) = &said {
        assert!(!said.contains('\n') && said.len() < 1000, "{said}");
    }
    said
}

fn refused(constraint: &Constraint, why: &str) {
    let said = check(constraint).unwrap_or_else(|| panic!("{:.80} was taken", constraint.text()));
    assert!(said.contains(why), "{said}");
}

fn schema(text: impl Into<String>) -> Constraint {
    Constraint::JsonSchema(text.into())
}

fn lark(text: impl Into<String>) -> Constraint {
    Constraint::Lark(text.into())
}

fn regex(text: impl Into<String>) -> Constraint {
    Constraint::Regex(text.into())
}

#[test]
fn length_and_depth_are_allowed_up_to_their_bounds() {
    let deep = |depth| {
        lark(format!(
            "start: {}\"a\"{}",
            "(".repeat(depth),
            ")".repeat(depth)
        ))
    };
    assert_eq!(deep(MAX_DEPTH).check_size(), Ok(()));
    let said = deep(MAX_DEPTH + 1).check_size().unwrap_err().to_string();
    assert_eq!(
        said,
        "the grammar is nested 101 brackets deep; at most 100 are allowed"
    );
    assert_eq!(regex("a".repeat(MAX_BYTES)).check_size(), Ok(()));
    assert!(regex("a".repeat(MAX_BYTES + 1)).check_size().is_err());
}

#[test]
fn what_is_wrong_with_a_schema_is_named() {
    refused(&lark("start: start"), "no answer can begin by it");
    refused(&schema("{\"type\": "), "not valid JSON: EOF while parsing");
    refused(
        &schema("[1]"),
        "is an array; it must be an object or a boolean",
    );
    refused(&schema("false"), "no document is valid");
    refused(&schema("{\"type\":\"text\"}"), "text");
    refused(&schema("{\"not\":{\"type\":\"null\"}}"), "not");
    refused(&schema("{\"if\":{},\"then\":{}}"), "if");
    refused(&schema("{\"$ref\":\"#/$defs/none\"}"), "none");
    refused(
        &schema("{\"$ref\":\"https://example.org/s.json\"}"),
        "example.org",
    );
    refused(
        &schema("{\"type\":\"string\",\"pattern\":\"(\"}"),
        "unclosed group",
    );
    let contradiction = "{\"type\":\"integer\",\"minimum\":5,\"maximum\":3}";
    refused(&schema(contradiction), "minimum");
    assert_eq!(check(&schema("true")), None);
    assert_eq!(check(&schema("{}")), None);
}

#[test]
fn what_is_wrong_with_an_expression_or_a_grammar_is_named() {
    refused(&regex("a(b"), "unclosed group");
    refused(&regex("a(?=b)"), "look-around");
    refused(&lark("begin: \"a\""), "start");
    refused(&lark("start: other"), "other");
    refused(&lark("start: \"a"), "grammar cannot be used");
    refused(&lark(""), "grammar cannot be used");
}

#[test]
fn five_megabytes_are_refused_unread() {
    let start = Instant::now();
    let mut long = "{\"enum\":[\"".to_owned();
    long.push_str(&"a".repeat(5 << 20));
    long.push_str("\"]}");
    refused(&schema(long), "5242893 bytes long; at most 262144");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn deep_nesting_is_refused() {
    refused(
        &schema("[".repeat(MAX_BYTES)),
        "nested 262144 brackets deep",
    );
    refused(
        &lark(format!(
            "start: {}\"a\"{}",
            "(".repeat(50_000),
            ")".repeat(50_000)
        )),
        "deep",
    );
    refused(
        &regex(format!("{}a{}", "(".repeat(9000), ")".repeat(9000))),
        "deep",
    );
    let schema_of = |depth: usize| {
        let open = "{\"type\":\"array\",\"items\":".repeat(depth);
        schema(format!("{open}{{}}{}", "}".repeat(depth)))
    };
    refused(&schema_of(101), "deep");
    assert_eq!(check(&schema_of(60)), None);
}

#[test]
fn a_chain_of_many_rules_breaks_nothing() {
    let mut chain = "start: r0\n".to_owned();
    for rule in 0.. {
        if chain.len() > MAX_BYTES - 100 {
            writeln!(chain, "r{rule}: \"a\"").unwrap();
            break;
        }
        writeln!(chain, "r{rule}: r{}", rule + 1).unwrap();
    }
    check(&lark(chain.clone()));
    let tokens = chain.replace('r', "R").replace("staRt", "start");
    check(&lark(tokens));
    // Each rule twice as long as the one before.
    let mut doubling = "start: r0\n".to_owned();
    for rule in 0..60 {
        writeln!(doubling, "r{rule}: r{0} r{0}", rule + 1).unwrap();
    }
    doubling.push_str("r60: \"a\"\n");
    check(&lark(doubling.clone()));
    check(&lark(doubling.replace('r', "R").replace("staRt", "start")));
}

#[test]
fn references_without_an_end_are_bounded() {
    check(&schema("{\"$ref\":\"#\"}"));
    check(&schema(
        "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\
        \"$ref\":\"#/$defs/a\"}",
    ));
    check(&schema(
        "{\"allOf\":[{\"$ref\":\"#\"},{\"type\":\"object\"}]}",
    ));
    check(&schema(
        "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1}",
    ));
    check(&lark("start: start\n"));
    check(&lark("start: \"a\" start\n"));
    check(&lark("start: start start | \"a\"\n"));
}

#[test]
fn expressions_that_grow_without_bound_are_bounded() {
    for text in [
        "((((a{1,100}){1,100}){1,100}){1,100}){1,100}",
        "(a|aa)+b{0,20000}c",
        "(.*a.*b.*c.*d.*e.*f.*g){50}",
        "([a-z]*[0-9]*){1,5000}",
        ".*a.{400}.*b.{400}",
        "(a?){5000}a{5000}",
        "\\p{L}{1,9999}\\p{N}{1,9999}",
    ] {
        check(&regex(text));
        let pattern = serde_json::json!({ "type": "string", "pattern": text });
        check(&schema(pattern.to_string()));
    }
}

#[test]
fn schemas_that_multiply_are_bounded() {
    let all: Vec<_> = (0..40)
        .map(|n| serde_json::json!({"anyOf": [{"required": [format!("a{n}")]}, {"required": [format!("b{n}")]}]}))
        .collect();
    check(&schema(serde_json::json!({ "allOf": all }).to_string()));
    check(&schema(
        "{\"type\":\"array\",\"minItems\":1000000,\"maxItems\":2000000}",
    ));
    check(&schema(
        "{\"type\":\"string\",\"minLength\":1000000,\"maxLength\":2000000}",
    ));
    refused(
        &schema("{\"type\":\"integer\",\"multipleOf\":1000003}"),
        "multipleOf",
    );
    check(&schema("{\"type\":\"integer\",\"multipleOf\":19997}"));
    let hidden = "start: %json {\"type\":\"integer\",\"multipleOf\":1000003}";
    refused(&lark(hidden), "multipleOf");
    check(&schema(
        "{\"type\":\"number\",\"minimum\":-1e300,\"maximum\":1e300}",
    ));
    let properties: serde_json::Map<_, _> = (0..2000)
        .map(|n| {
            (
                format!("property{n}"),
                serde_json::json!({ "type": "string" }),
            )
        })
        .collect();
    check(&schema(
        serde_json::json!({"type": "object", "properties": properties}).to_string(),
    ));
    let words: Vec<String> = (0..15_000).map(|n| format!("word{}", n * n)).collect();
    check(&schema(serde_json::json!({ "enum": words }).to_string()));
}
