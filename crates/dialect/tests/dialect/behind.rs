//! What a client says of an answer, behind the reasoning of a model that marks it.

use tandem_dialect::{Decoding, Dialect, Shape};

use crate::vocabulary::Vocabulary;

fn dialect(name: &str) -> Dialect {
    Dialect::default()
        .with_reasoning(name)
        .expect("a known name")
}

/// How each family opens its reasoning, ends it, and what stands in between.
const REASONING: [(&str, &str, &str); 4] = [
    ("think", "<think>", "</think>"),
    ("mistral", "[THINK]", "[/THINK]"),
    ("granite", "<think>", "</think>"),
    (
        "granite_prose",
        "Here is my thought process:",
        "Here is my response:",
    ),
];

/// The grammar with marks that are special tokens, and that without.
fn grammars(name: &str, shape: Shape<'_>, reasoning: bool) -> Vec<(Vocabulary, String)> {
    let dialect = dialect(name);
    let vocabularies = [
        Vocabulary::new(dialect.markers().collect()),
        Vocabulary::new(Vec::new()),
    ];
    let grammar = |vocabulary: Vocabulary| {
        let decoding = Decoding {
            reasoning,
            parallel: true,
            special: &|text| vocabulary.special(text),
        };
        let grammar = dialect.behind_reasoning(shape, &decoding);
        let lark = grammar.expect("reasoning is marked").into_lark();
        (vocabulary, lark)
    };
    vocabularies.into_iter().map(grammar).collect()
}

/// Shapes, each with an answer of it and one that is none.
const SHAPES: [(Shape<'static>, &str, &str); 5] = [
    (
        Shape::Json(r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}"#),
        r#"{"a": 5}"#,
        r#"{"a": "5"}"#,
    ),
    (
        Shape::Json(r#"{"type":"integer","multipleOf":7,"description":"\u0007"}"#),
        "21",
        "22",
    ),
    (Shape::Regex("(a/b|c\n){2}"), "a/bc\n", "a/b"),
    (
        Shape::Lark("start: word \"!\"\nword: /[a-z]+/"),
        "yes!",
        "yes",
    ),
    (Shape::Lark("start: \"}\" | \"{\""), "}", "x"),
];

#[test]
fn an_answer_is_held_to_its_shape_behind_the_reasoning_only() {
    for (name, open, close) in REASONING {
        for (shape, right, wrong) in SHAPES {
            for (vocabulary, lark) in grammars(name, shape, false) {
                let accepts = |text: &str| vocabulary.accepts(&lark, text);
                let thought = format!("{open}Is {wrong} one?{close}");
                assert!(accepts(right), "{name}: {right}\n{lark}");
                assert!(!accepts(wrong), "{name}: {wrong}\n{lark}");
                assert!(accepts(&format!("{thought}\n\n{right}")), "{name}\n{lark}");
                assert!(accepts(&format!("{thought}{right}")), "{name}\n{lark}");
                assert!(!accepts(&format!("{thought}{wrong}")), "{name}\n{lark}");
                assert!(!accepts(&thought), "{name}: it ends without an answer");
                assert!(!accepts(&format!("Well. {right}")), "{name}\n{lark}");
            }
        }
    }
}

#[test]
fn a_document_has_one_blank_between_its_tokens_where_its_schema_asks_for_no_more() {
    let schema = r#"{"type":"array","items":{"type":"integer"}}"#;
    let own = r#"{"type":"array","x-guidance":{"whitespace_pattern":" {2}"}}"#;
    for (schema, blanks) in [
        (schema, ["[1, 2]", "[1,\n  2]", "[1,2]"]),
        (own, ["[1,  2]"; 3]),
    ] {
        for (vocabulary, lark) in grammars("think", Shape::Json(schema), false) {
            for document in blanks {
                assert!(vocabulary.accepts(&lark, document), "{document}\n{lark}");
            }
            assert!(!vocabulary.accepts(&lark, "[1,    2]"), "{lark}");
        }
    }
}

#[test]
fn a_prompt_that_has_begun_the_reasoning_has_it_ended_first() {
    for (name, _, close) in REASONING {
        for (shape, right, wrong) in SHAPES {
            for (vocabulary, lark) in grammars(name, shape, true) {
                let accepts = |text: &str| vocabulary.accepts(&lark, text);
                assert!(accepts(&format!("Hm.{close}\n{right}")), "{name}\n{lark}");
                assert!(!accepts(right), "{name}: {right}\n{lark}");
                assert!(!accepts(&format!("Hm.{close}\n{wrong}")), "{name}\n{lark}");
            }
        }
    }
}

#[test]
fn a_prompt_shows_where_its_reasoning_stands() {
    for (name, open, close) in REASONING {
        let dialect = dialect(name);
        let state = |prompt: &str| {
            (
                dialect.opens_reasoning(prompt),
                dialect.closes_reasoning(prompt),
            )
        };
        assert_eq!(
            state(&format!("<assistant>{open}\n")),
            (true, false),
            "{name}"
        );
        assert_eq!(
            state(&format!("<assistant>{open}\n\n{close}\n\n")),
            (false, true),
            "{name}"
        );
        assert_eq!(state("<assistant>"), (false, false), "{name}");
    }
}

#[test]
fn a_model_that_marks_no_reasoning_needs_no_other_grammar() {
    let decoding = Decoding {
        reasoning: false,
        parallel: true,
        special: &|_| None,
    };
    let hermes = Dialect::default().with_tools("hermes").expect("known");
    assert_eq!(hermes.behind_reasoning(Shape::Regex("a"), &decoding), None);
    assert!(!hermes.closes_reasoning("</think>"));
}

#[test]
fn every_name_is_taken() {
    for name in Dialect::tool_names() {
        let dialect = Dialect::default().with_tools(name);
        assert_eq!(dialect.expect("known").tools(), Some(name));
    }
    for name in Dialect::reasoning_names() {
        let dialect = Dialect::default().with_reasoning(name);
        assert_eq!(dialect.expect("known").reasoning(), Some(name));
    }
}
