//! The real model, against llama.cpp and transformers (see fixtures/make_smollm2.py).

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::Value;
use tandem_text::{AnswerText, ChatOptions, TextModel};

static MODEL: LazyLock<Arc<TextModel>> =
    LazyLock::new(|| Arc::new(TextModel::load(&path()).unwrap()));
static FIXTURE: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../fixtures/smollm2.json")).unwrap());

fn path() -> PathBuf {
    let path = std::env::var_os("TANDEM_TEST_MODEL").map_or_else(
        || {
            let home = std::env::var_os("HOME").expect("HOME is set");
            PathBuf::from(home).join(".cache/tandem/models/SmolLM2-135M-Instruct.Q4_1.gguf")
        },
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "this test needs SmolLM2-135M-Instruct.Q4_1.gguf, and {} is no file: \
         set TANDEM_TEST_MODEL to it",
        path.display()
    );
    path
}

fn rows(name: &str) -> &'static [Value] {
    FIXTURE[name].as_array().unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn token_ids_are_those_of_llama_cpp() {
    assert!(rows("texts").len() > 150);
    for case in rows("texts") {
        let text = case["text"].as_str().unwrap();
        assert_eq!(MODEL.encode(text), ids(&case["ids"]), "{text:?}");
        assert_eq!(MODEL.encode_rendered(text), ids(&case["ids"]), "{text:?}");
    }
}

#[test]
fn bytes_without_a_token_are_left_out() {
    assert!(!rows("lost").is_empty());
    for case in rows("lost") {
        let text = case["text"].as_str().unwrap();
        assert_eq!(MODEL.encode(text), ids(&case["ids"]), "{text:?}");
    }
}

#[test]
fn no_text_has_more_bytes_than_its_tokens_can_hold() {
    for case in rows("texts") {
        let tokens = u32::try_from(ids(&case["ids"]).len()).unwrap();
        let limit = MODEL.text_limit(tokens).unwrap();
        assert!(case["text"].as_str().unwrap().len() <= limit);
    }
    assert_eq!(MODEL.text_limit(8_192), Some(8_192 * 81));
}

#[test]
fn the_bytes_of_a_texts_tokens_are_the_text() {
    for case in rows("texts") {
        let bytes: Vec<u8> = ids(&case["ids"])
            .into_iter()
            .flat_map(|token| MODEL.token_bytes(token))
            .collect();
        assert_eq!(bytes, case["text"].as_str().unwrap().as_bytes());
    }
}

#[test]
fn an_answers_pieces_are_the_text_less_special_tokens() {
    for case in rows("texts") {
        let mut answer = AnswerText::new(MODEL.clone(), Vec::new());
        let mut text = String::new();
        let mut expected = Vec::new();
        for token in ids(&case["ids"]) {
            text += &answer.push(token).text;
            if !MODEL.is_special(token) {
                expected.extend(MODEL.token_bytes(token));
            }
        }
        text += &answer.finish();
        assert_eq!(text, String::from_utf8_lossy(&expected));
    }
}

#[test]
fn chats_are_rendered_as_by_transformers() {
    for chat in rows("chats") {
        let options = ChatOptions {
            add_generation_prompt: chat["add_generation_prompt"].as_bool().unwrap(),
            ..ChatOptions::default()
        };
        let rendered = MODEL.render_chat(&chat["messages"], options).unwrap();
        // But for the marks in what a client says of control tokens.
        let rendered = rendered.replace("\u{FDD0}-", "");
        assert_eq!(rendered, chat["rendered"].as_str().unwrap());
    }
}

#[test]
fn the_file_tells_the_models_facts() {
    assert_eq!(MODEL.vocabulary(), 49_152);
    assert_eq!(MODEL.context_length(), Some(8_192));
    assert_eq!(MODEL.begin_token(), Some(1));
    // <|endoftext|> and <|im_end|>.
    assert_eq!(MODEL.end_tokens(), [0, 2]);
    assert_eq!(MODEL.token_bytes(1), b"<|im_start|>");
    assert_eq!(
        (0..100).filter(|&token| MODEL.is_special(token)).count(),
        17
    );
}

/// A client can send megabytes without a space; the time must stay in proportion.
#[test]
fn long_runs_of_one_character_lose_nothing() {
    for unit in [" ", "a", "\n", "1", "é", "日", " \n", "'", "a "] {
        let text = unit.repeat(300_000 / unit.len());
        let bytes: usize = MODEL
            .encode(&text)
            .into_iter()
            .map(|token| MODEL.token_bytes(token).len())
            .sum();
        assert_eq!(bytes, text.len(), "{unit:?}");
    }
}
