//! Constrained answers: documents of SmolLM2-135M-Instruct, and a tiny model with a draft head.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod rig;
#[path = "../../constraint/tests/constraint/schema.rs"]
mod schema;

use std::sync::Arc;

use rig::{Answer, GREEDY, Rig, on, prompt, real_model, stop_after};
use schema::holds;
use serde_json::{Value, json};
use tandem_engine::testing::{TinyDraft, TinyLlama};
use tandem_engine::{
    Command, Constraint, Event, FinishReason, Penalties, Sampling, StopConditions,
};

fn by(schema: &Value, sampling: Sampling) -> Sampling {
    Sampling {
        constraint: Some(Arc::new(Constraint::JsonSchema(schema.to_string()))),
        ..sampling
    }
}

fn sampled(seed: u64) -> Sampling {
    Sampling {
        temperature: 0.9,
        top_p: 0.95,
        seed,
        ..GREEDY
    }
}

fn object(properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Bounded, so that every answer comes to its end.
fn schemas() -> Vec<Value> {
    let name = json!({"type": "string", "minLength": 1, "maxLength": 10});
    let age = json!({"type": "integer", "minimum": 0, "maximum": 120});
    let person = object(json!({"name": name, "age": age}));
    vec![
        person.clone(),
        object(json!({"person": person, "address": object(json!({"city": name}))})),
        json!({"enum": ["red", "green", "blue"]}),
        json!({"enum": [1, "two", null, true, [3], {"four": 4}]}),
        json!({"const": {"fixed": [1, 2, 3]}}),
        json!({"type": "array", "items": age, "minItems": 2, "maxItems": 5}),
        json!({"type": "array", "prefixItems": [name, age], "items": false, "minItems": 2}),
        json!({"type": "integer", "minimum": 10, "maximum": 99, "multipleOf": 5}),
        json!({"type": "number", "minimum": -1.5, "maximum": 2.5}),
        json!({"type": "boolean"}),
        json!({"type": "null"}),
        json!({"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2,4}$"}),
        json!({"type": "string", "format": "date"}),
        json!({"type": "string", "format": "uuid"}),
        json!({"anyOf": [person, {"type": "integer", "maximum": 9, "minimum": 0}]}),
        json!({"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 6}]}),
        json!({"allOf": [
            {"type": "object", "properties": {"a": age}, "required": ["a"]},
            {"properties": {"b": name}, "required": ["b"]},
            {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false},
        ]}),
        json!({"type": "object", "patternProperties": {"^k[0-9]$": age},
            "additionalProperties": false, "minProperties": 1, "maxProperties": 3}),
        json!({"$defs": {"tree": {
            "type": "object",
            "properties": {"v": age, "left": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
            "required": ["v", "left"], "additionalProperties": false,
        }}, "$ref": "#/$defs/tree"}),
        json!({"type": "array", "minItems": 1, "maxItems": 2, "items": object(json!({
            "id": {"type": "integer", "minimum": 1, "maximum": 9},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
        }))}),
    ]
}

const MOST: u32 = 120;

fn ask(rig: &Rig) -> Vec<u32> {
    rig.text.encode("A short JSON document: ")
}

/// Answers to the same prompt, all at once.
fn together(rig: &mut Rig, samplings: &[Sampling]) -> Vec<Answer> {
    let tokens = ask(rig);
    let mut ids = Vec::new();
    let mut next = 0;
    for sampling in samplings {
        let pages = rig.pages_for(next, tokens.len() + MOST as usize);
        next += pages.len() as u32;
        rig.prefill(&tokens, pages.clone());
        ids.push((pages, sampling.clone()));
    }
    let start = |(pages, sampling)| rig.start(&tokens, 0, pages, sampling, stop_after(MOST));
    let ids: Vec<_> = ids.into_iter().map(start).collect();
    rig.answers(&ids)
}

#[test]
fn answers_are_documents_of_their_schemas() {
    let mut rig = Rig::new(&real_model(), 512, |_| ());
    let schemas = schemas();
    assert_eq!(schemas.len(), 20);
    let both = |s: &Value| [by(s, GREEDY), by(s, sampled(7))];
    let samplings: Vec<Sampling> = schemas.iter().flat_map(both).collect();
    let answers = together(&mut rig, &samplings);
    for (index, answer) in answers.iter().enumerate() {
        let schema = &schemas[index / 2];
        if answer.reason == Some(FinishReason::Length) {
            // Only a tree and a number's decimal places may grow without end.
            assert!(
                [8, 18].contains(&(index / 2)),
                "{} by {schema}",
                answer.text
            );
            continue;
        }
        let document: Value = serde_json::from_str(&answer.text).unwrap();
        assert!(holds(schema, schema, &document), "{document} by {schema}");
    }
    // In no company, and continued elsewhere, an answer is the same.
    for index in [0, 29] {
        let alone = together(&mut rig, &samplings[index..=index]).remove(0);
        assert_eq!(alone, answers[index]);
        let half = alone.tokens.len() / 2;
        let begun = [ask(&rig), alone.tokens[..half].to_vec()].concat();
        let pages = rig.pages_for(0, begun.len() + MOST as usize);
        rig.prefill(&begun, pages.clone());
        let sampling = samplings[index].clone();
        let id = rig.start(&begun, half as u32, pages, sampling, stop_after(MOST));
        let rest = rig.answers(&[id]).remove(0);
        assert_eq!(rest.tokens, alone.tokens[half..]);
        assert_eq!(rest.reason, alone.reason);
    }
}

fn tiny(draft: Option<TinyDraft>) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let model = TinyLlama {
        seed: 3,
        layers: 1,
        heads: 8,
        kv_heads: 4,
        draft,
        ..TinyLlama::default()
    };
    model.write_gguf(&path).unwrap();
    Rig::new(&path, 64, |engine| engine.speculative_tokens = 3)
}

fn numbers() -> Value {
    json!({"type": "array", "minItems": 6, "maxItems": 40,
        "items": {"type": "integer", "minimum": 0, "maximum": 99}})
}

#[test]
fn a_draft_head_changes_no_token_of_a_constrained_answer() {
    let (mut alone, mut drafting) = (tiny(None), tiny(Some(TinyDraft::Close)));
    let penalties = Penalties {
        presence: 0.2,
        frequency: 0.4,
        repetition: 1.1,
    };
    let penalised = Sampling {
        penalties,
        ..GREEDY
    };
    let mut accepted = 0;
    for sampling in [GREEDY, sampled(4), penalised] {
        for seed in 0..4 {
            let (tokens, sampling) = (prompt(seed, 20), by(&numbers(), sampling.clone()));
            let stop = || StopConditions {
                min_tokens: 5,
                ..on(80)
            };
            let want = alone.generate(&tokens, 0, sampling.clone(), stop());
            let got = drafting.generate(&tokens, 0, sampling, stop());
            assert_eq!((&got.tokens, got.reason), (&want.tokens, want.reason));
            accepted += got.verified.iter().map(|(_, right)| right).sum::<u32>();
        }
    }
    assert!(accepted > 0, "some guess was right");
}

#[test]
fn an_answer_ends_where_its_constraint_leaves_nothing_to_say() {
    let mut rig = tiny(None);
    let regex = |text: &str| Sampling {
        constraint: Some(Arc::new(Constraint::Regex(text.to_owned()))),
        ..GREEDY
    };
    // Whatever asks for more.
    let more = StopConditions {
        min_tokens: 20,
        ..on(30)
    };
    for stop in [stop_after(30), on(30), more] {
        let answer = rig.generate(&prompt(1, 9), 0, regex("abc"), stop);
        assert_eq!(answer.text, "abc");
        assert_eq!(answer.reason, Some(FinishReason::Stop));
    }
    let cut = rig.generate(&prompt(1, 9), 0, regex("abc"), on(2));
    assert_eq!(
        (cut.text.as_str(), cut.reason),
        ("ab", Some(FinishReason::Length))
    );
    // End tokens are not barred where the answer may end, nor stop tokens.
    let ends = |token| StopConditions {
        token_ids: vec![token],
        ..on(30)
    };
    let biased = |token| Sampling {
        logit_bias: vec![(token, 100.0)],
        ..regex("a+")
    };
    let answer = rig.generate(&prompt(1, 9), 0, biased(120), ends(120));
    assert_eq!(answer.tokens, [97, 120]);
    let end = TinyLlama::END;
    let answer = rig.generate(&prompt(1, 9), 0, biased(end), stop_after(30));
    assert_eq!(answer.tokens, [97, end]);
    let answer = rig.generate(&prompt(1, 9), 0, biased(end), on(30));
    assert_eq!(answer.tokens, [97; 30]);
}

#[test]
fn an_answer_that_is_complete_when_it_comes_has_nothing_to_add() {
    let mut rig = tiny(None);
    let sampling = Sampling {
        constraint: Some(Arc::new(Constraint::Regex("abc".to_owned()))),
        ..GREEDY
    };
    let tokens = [prompt(1, 9), b"abc".map(u32::from).to_vec()].concat();
    let pages = rig.pages_for(0, 40);
    rig.prefill(&tokens, pages.clone());
    let id = rig.start(&tokens, 3, pages, sampling, on(20));
    let answer = rig.answers(&[id]).remove(0);
    assert_eq!(
        (answer.tokens.len(), answer.reason),
        (0, Some(FinishReason::Stop))
    );
}

#[test]
fn a_constraint_that_cannot_be_followed_fails_its_own_sequence_and_no_other() {
    let mut rig = tiny(None);
    let tokens = [prompt(1, 9), b"xyz".map(u32::from).to_vec()].concat();
    for (constraint, generated, why) in [
        (Constraint::Regex("a(".to_owned()), 0, "unclosed group"),
        (Constraint::JsonSchema("{".to_owned()), 0, "not valid JSON"),
        (Constraint::Regex("abc".to_owned()), 3, "cannot go on"),
    ] {
        let sampling = Sampling {
            constraint: Some(Arc::new(constraint)),
            ..GREEDY
        };
        // Made ready by nobody: a constraint may have failed before that would come.
        let id = rig.id();
        rig.submit(Command::Admit {
            sequence: id,
            tokens: tokens.as_slice().into(),
            generated,
            pages: Rig::pages(0, 4),
            sampling,
            stop: on(20),
        });
        match rig.event() {
            Event::Failed { sequence, message } => {
                assert_eq!(sequence, id);
                assert!(message.contains(why), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
    // One that goes away while its constraint is compiled leaves nothing behind.
    let id = rig.id();
    rig.submit(Command::Admit {
        sequence: id,
        tokens: tokens.as_slice().into(),
        generated: 0,
        pages: Rig::pages(0, 4),
        sampling: by(&numbers(), GREEDY),
        stop: on(20),
    });
    rig.submit(Command::Cancel { sequence: id });
    assert_eq!(rig.event(), Event::Cancelled { sequence: id });
    let answer = rig.generate(&tokens, 0, GREEDY, on(5));
    assert_eq!(answer.tokens.len(), 5);
}
