//! Answers that draw any token that may come next.

use serde_json::{Value, json};
use tandem_constraint::{Allowed, Constraint, Matching};

use crate::schema::holds;
use crate::{GRAMMARS, TEXT};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

fn tokens(allowed: &Allowed) -> Vec<u32> {
    (0..TEXT.vocabulary())
        .filter(|t| allowed.allows(*t))
        .collect()
}

/// Draws until the answer ends, or has so many tokens: its tokens, and whether it ended.
fn walk(matching: &mut Matching, random: &mut Random, most: usize) -> (Vec<u32>, bool) {
    let mut answer = Vec::new();
    while answer.len() < most {
        if matching.is_complete() {
            return (answer, true);
        }
        let may_end = matching.may_end().unwrap();
        let allowed = tokens(&matching.allowed().unwrap());
        let ends = TEXT.end_tokens();
        assert_eq!(allowed.iter().any(|t| ends.contains(t)), may_end);
        if may_end && (random.below(3) == 0) {
            return (answer, true);
        }
        let go_on: Vec<u32> = allowed.into_iter().filter(|t| !ends.contains(t)).collect();
        let token = go_on[random.below(go_on.len())];
        assert!(!TEXT.is_special(token), "token {token}");
        matching.take(&[token]).unwrap();
        answer.push(token);
    }
    (answer, false)
}

fn text(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| TEXT.token_bytes(*t)).collect();
    String::from_utf8(bytes).unwrap()
}

/// Two letters, a dash, three digits, in quotes.
fn is_a_number_plate(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 8
        && bytes[1..3].iter().all(u8::is_ascii_uppercase)
        && bytes[3] == b'-'
        && bytes[4..7].iter().all(u8::is_ascii_digit)
}

fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "integer", "minimum": -7, "maximum": 120}),
        json!({"enum": ["red", "grün", 7, null, {"a": [1]}]}),
        json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
        json!({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4}),
        json!({
            "type": "object",
            "properties": {"id": {"type": "integer"}, "tag": {"enum": ["x", "y"]}},
            "required": ["id"],
            "additionalProperties": false,
        }),
        json!({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 5}]}),
        json!({
            "$defs": {"tree": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer", "minimum": 0, "maximum": 9},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
                },
                "required": ["v", "kids"],
                "additionalProperties": false,
            }},
            "$ref": "#/$defs/tree",
        }),
    ]
}

#[test]
fn any_walk_through_a_schema_is_a_document_of_it() {
    let mut ended = 0;
    for (number, schema) in (1..).zip(schemas()) {
        let start = GRAMMARS.compile(&Constraint::JsonSchema(schema.to_string()));
        let start = start.unwrap();
        for seed in 0..12 {
            let mut random = Random(seed * 1000 + number);
            let (answer, end) = walk(&mut start.clone(), &mut random, 120);
            if end {
                ended += 1;
                let text = text(&answer);
                let document: Value = serde_json::from_str(&text).unwrap();
                assert!(holds(&schema, &schema, &document), "{text} by {schema}");
                if schema.get("pattern").is_some() {
                    assert!(is_a_number_plate(&text), "{text}");
                }
            }
        }
    }
    assert!(ended > 60, "{ended} of 84 ended");
}

#[test]
fn a_regular_expression_matches_the_whole_answer() {
    let regex = Constraint::Regex("(ab|c){3}é?".to_owned());
    let start = GRAMMARS.compile(&regex).unwrap();
    for seed in 0..30 {
        let (answer, end) = walk(&mut start.clone(), &mut Random(seed), 40);
        let text = text(&answer);
        assert!(end, "{text}");
        let rest = text.strip_suffix('é').unwrap_or(&text);
        let parts = rest.replace("ab", "c");
        assert_eq!(parts, "ccc", "{text}");
    }
}

#[test]
fn a_grammar_in_lark_is_followed() {
    let lark = "start: \"let \" NAME \" = \" sum\nsum: NUMBER (\" + \" NUMBER){0,2}\n\
        NAME: /[a-z]{1,4}/\nNUMBER: /[0-9]{1,3}/\n";
    let start = GRAMMARS
        .compile(&Constraint::Lark(lark.to_owned()))
        .unwrap();
    for seed in 0..20 {
        let (answer, end) = walk(&mut start.clone(), &mut Random(seed), 40);
        let text = text(&answer);
        assert!(end && text.starts_with("let "), "{text}");
        let (name, sum) = text[4..].split_once(" = ").unwrap();
        assert!((1..=4).contains(&name.len()), "{text}");
        assert!(
            sum.split(" + ")
                .all(|n| n.parse::<u16>().is_ok_and(|n| n < 1000)),
            "{text}"
        );
    }
}

#[test]
fn an_answer_led_through_what_was_said_elsewhere_may_go_on_in_the_same_way() {
    for schema in schemas() {
        let start = GRAMMARS.compile(&Constraint::JsonSchema(schema.to_string()));
        let mut first = start.unwrap();
        let mut random = Random(3);
        let (begun, _) = walk(&mut first, &mut random, 9);
        // Compiled by another engine, which has computed nothing of it.
        let elsewhere = tandem_constraint::Grammars::new(TEXT.clone());
        let constraint = Constraint::JsonSchema(schema.to_string());
        let mut second = elsewhere.compile(&constraint).unwrap();
        second.take(&begun).unwrap();
        assert_eq!(first.is_complete(), second.is_complete(), "{schema}");
        if !first.is_complete() {
            let next = |m: &mut Matching| tokens(&m.allowed().unwrap());
            assert_eq!(next(&mut first), next(&mut second), "{schema}");
        }
    }
}

#[test]
fn a_token_that_may_not_come_next_is_refused() {
    let constraint = Constraint::JsonSchema("{\"type\":\"object\"}".to_owned());
    let mut matching = GRAMMARS.compile(&constraint).unwrap();
    let error = matching.take(&TEXT.encode("Sure!")).unwrap_err();
    assert!(error.to_string().contains("cannot go on"), "{error}");
    assert!(matching.allowed().is_err());
}

#[test]
fn barred_tokens_are_impossible_and_those_beyond_the_vocabulary_too() {
    let mut matching = GRAMMARS
        .compile(&Constraint::Regex("yes|no".to_owned()))
        .unwrap();
    let allowed = matching.allowed().unwrap();
    let mut logits = vec![1.0; TEXT.vocabulary() as usize + 70];
    allowed.bar_others(&mut logits);
    for (token, logit) in (0..).zip(&logits) {
        assert_eq!(*logit == 1.0, allowed.allows(token), "token {token}");
    }
    assert!(logits.contains(&1.0));
}
