//! Events say what their trees would say.

use proptest::prelude::*;

use super::*;

fn identity(answers: usize) -> Identity {
    Identity {
        request: "1".into(),
        model: "a \"model\"".into(),
        created: 7,
        fingerprint: "tandem-f".into(),
        prompts: vec![3, 4],
        answers,
    }
}

fn events(bytes: &BytesMut) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    let events = text.strip_suffix("\n\n").unwrap().split("\n\n");
    let data = |event: &str| event.strip_prefix("data: ").unwrap().to_owned();
    events
        .map(data)
        .filter(|data| data != "[DONE]")
        .map(|data| serde_json::from_str(&data).unwrap())
        .collect()
}

fn token(text: &str) -> (Vec<Delta>, proto::Token) {
    (
        vec![Delta::Content(text.to_owned())],
        proto::Token::default(),
    )
}

/// The event as a tree.
fn tree(chat: bool, index: usize, words: &str, reason: Option<&str>, usage: bool) -> Value {
    let mut choice = json!({"index": index, "logprobs": null, "finish_reason": reason});
    if chat {
        choice["delta"] = json!({"content": words});
    } else {
        choice["text"] = json!(words);
    }
    let mut event = json!({
        "id": if chat { "chatcmpl-1" } else { "cmpl-1" },
        "object": if chat { "chat.completion.chunk" } else { "text_completion" },
        "created": 7,
        "model": "a \"model\"",
        "system_fingerprint": "tandem-f",
        "choices": [choice],
    });
    if usage {
        event["usage"] = Value::Null;
    }
    event
}

proptest! {
    #[test]
    fn an_event_says_what_its_tree_says(
        words in ".{1,40}", index in 0..24_usize, chat: bool, include_usage: bool,
    ) {
        let form = ChunkForm { include_usage, ..ChunkForm::default() };
        let mut chunks = if chat {
            Chunks::chat(identity(12), form)
        } else {
            Chunks::completions(identity(12), form, vec![])
        };
        let (deltas, token) = token(&words);
        let mut out = BytesMut::new();
        chunks.token(index, &deltas, &token, &mut out);
        let events = events(&out);
        prop_assert_eq!(events.len(), 1 + usize::from(chat));
        let tree = tree(chat, index, &words, None, include_usage);
        prop_assert_eq!(events.last(), Some(&tree));
    }
}

#[test]
fn the_role_comes_once_for_each_answer() {
    let mut chunks = Chunks::chat(identity(1), ChunkForm::default());
    let mut out = BytesMut::new();
    for index in [1, 0, 1] {
        let (deltas, token) = token("x");
        chunks.token(index, &deltas, &token, &mut out);
    }
    let roles = events(&out).into_iter().map(|event| {
        let choice = &event["choices"][0];
        (
            choice["index"].as_u64().unwrap(),
            choice["delta"].get("role").is_some(),
        )
    });
    let want = [(1, true), (1, false), (0, true), (0, false), (1, false)];
    assert_eq!(roles.collect::<Vec<_>>(), want);
}

#[test]
fn usage_comes_last_with_no_choices_and_is_null_before() {
    let form = ChunkForm {
        include_usage: true,
        ..ChunkForm::default()
    };
    let mut chunks = Chunks::chat(identity(1), form);
    let mut out = BytesMut::new();
    chunks.finish(0, &[], &Ending::default(), &mut out);
    chunks.finish(1, &[], &Ending::default(), &mut out);
    let count = Count {
        completion: 2,
        cached: 1,
        ..Count::default()
    };
    chunks.end(&[count, count], &mut out);
    assert!(out.ends_with(DONE));
    let events = events(&out);
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 11);
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
    assert!(
        others
            .iter()
            .all(|event| event.get("usage") == Some(&Value::Null))
    );
}

#[test]
fn without_it_there_is_no_usage_and_with_all_of_it_in_every_event() {
    let mut out = BytesMut::new();
    let mut chunks = Chunks::chat(identity(1), ChunkForm::default());
    chunks.finish(0, &[], &Ending::default(), &mut out);
    chunks.end(&[], &mut out);
    assert!(
        events(&out)
            .iter()
            .all(|event| event.get("usage").is_none())
    );
    let form = ChunkForm {
        include_usage: true,
        continuous: true,
        ..ChunkForm::default()
    };
    let mut chunks = Chunks::completions(identity(1), form, vec![]);
    out.clear();
    for _ in 0..12 {
        let (deltas, token) = token("x");
        chunks.token(1, &deltas, &token, &mut out);
    }
    let usage = json!({"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16});
    assert_eq!(events(&out)[11]["usage"], usage);
}

#[test]
fn text_held_back_comes_before_the_end() {
    let rest = [Delta::Content("rest".into())];
    let ending = Ending {
        length: true,
        ..Ending::default()
    };
    let mut out = BytesMut::new();
    Chunks::chat(identity(1), ChunkForm::default()).finish(0, &rest, &ending, &mut out);
    let chunks = events(&out);
    assert_eq!(chunks.len(), 3);
    assert_eq!(chunks[1], tree(true, 0, "rest", None, false));
    assert_eq!(chunks[2]["choices"][0]["delta"], json!({}));
    assert_eq!(chunks[2]["choices"][0]["finish_reason"], "length");
    out.clear();
    let mut completions = Chunks::completions(identity(1), ChunkForm::default(), vec![]);
    completions.finish(0, &rest, &ending, &mut out);
    assert_eq!(
        events(&out),
        [tree(false, 0, "rest", Some("length"), false)]
    );
}

#[test]
fn a_token_without_text_is_no_event_unless_its_probability_is_wanted() {
    let token = proto::Token {
        logprobs: vec![proto::Logprob {
            token: 1,
            bytes: "é".into(),
            logprob: -0.5,
        }],
        ..proto::Token::default()
    };
    let deltas = [Delta::Content(String::new())];
    for logprobs in [false, true] {
        let form = ChunkForm {
            logprobs,
            ..ChunkForm::default()
        };
        let mut out = BytesMut::new();
        Chunks::chat(identity(1), form).token(0, &deltas, &token, &mut out);
        let events = events(&out);
        assert_eq!(events.len(), 1 + usize::from(logprobs));
        if logprobs {
            let choice = &events[1]["choices"][0];
            assert_eq!(choice["delta"]["content"], "");
            assert_eq!(choice["logprobs"]["content"][0]["token"], "é");
        }
    }
}

#[test]
fn thoughts_and_calls_have_members_of_their_own() {
    let mut out = BytesMut::new();
    let mut chunks = Chunks::chat(identity(1), ChunkForm::default());
    let name = "f".to_owned();
    let deltas = [
        Delta::Reasoning("hm".into()),
        Delta::CallStart {
            index: 0,
            id: None,
            name,
        },
        Delta::Arguments {
            index: 0,
            json: "{\"a\":".into(),
        },
    ];
    chunks.token(1, &deltas, &proto::Token::default(), &mut out);
    chunks.finish(1, &[], &Ending::default(), &mut out);
    let deltas: Vec<Value> = events(&out)
        .into_iter()
        .map(|event| event["choices"][0]["delta"].clone())
        .collect();
    assert_eq!(deltas[1], json!({"reasoning_content": "hm"}));
    let call = &deltas[2]["tool_calls"][0];
    assert_eq!(
        (&call["index"], &call["id"]),
        (&json!(0), &json!("call_10100"))
    );
    assert_eq!(call["function"], json!({"name": "f", "arguments": ""}));
    let more = json!({"index": 0, "function": {"arguments": "{\"a\":"}});
    assert_eq!(deltas[3], json!({"tool_calls": [more]}));
    let end = &events(&out)[4];
    assert_eq!(end["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn a_prompt_is_repeated_before_each_of_its_answers() {
    let echoes = vec!["one ".to_owned(), "two ".to_owned()];
    let mut chunks = Chunks::completions(identity(2), ChunkForm::default(), echoes);
    let mut out = BytesMut::new();
    for index in [3, 0, 3] {
        let (deltas, token) = token("x");
        chunks.token(index, &deltas, &token, &mut out);
    }
    let texts = events(&out)
        .into_iter()
        .map(|event| event["choices"][0]["text"].clone());
    assert_eq!(texts.collect::<Vec<_>>(), ["two ", "x", "one ", "x", "x"]);
}
