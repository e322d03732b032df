//! Any bytes as a request's body: a request that makes sense, or an error that is the client's. Never
//! a panic.

use std::sync::LazyLock;

use serde_json::{Value, json};
use tandem_text::TextModel;

use super::anthropic;
use super::error::ApiError;
use super::request::{Endpoint, Known, Request};
use super::vllm;

const ENDPOINTS: [Endpoint; 4] = [
    Endpoint::Chat,
    Endpoint::Completions,
    Endpoint::Responses,
    Endpoint::Messages,
];

static TEXT: LazyLock<TextModel> =
    LazyLock::new(|| TextModel::load(&tandem_text::testing::model_file()).unwrap());

fn known() -> Known {
    Known {
        names: vec!["m".to_owned()],
        context: 512,
        longest_text: 512 * 64,
        default_max_tokens: Some(16),
        max_choices: 4,
        dialect: tandem_dialect::Dialect::detect("{{ '<tool_call>' }}"),
    }
}

fn judge<T>(read: Result<T, ApiError>) {
    if let Err(error) = read {
        assert!(error.status.is_client_error(), "{error:?}");
        assert!(
            !error.message.is_empty() && error.message.len() < 4096,
            "{error:?}"
        );
        let param = error.param.as_deref().unwrap_or("none");
        assert!(!param.is_empty() && param.len() <= 1024, "{error:?}");
    }
}

fn read(body: &[u8]) {
    let known = known();
    for endpoint in ENDPOINTS {
        let read = Request::read(endpoint, body, &TEXT, &known);
        if let Ok(request) = &read {
            assert!((1..=known.max_choices).contains(&request.choices()));
            assert!(request.prompts.iter().all(|prompt| !prompt.is_empty()));
        }
        judge(read);
    }
    judge(anthropic::request::count(body, &TEXT, &known));
    judge(vllm::tokenize(body, &TEXT, &known));
    judge(vllm::detokenize(body, &TEXT, &known));
}

/// Requests in order, with most of what they may hold.
fn requests() -> Vec<Value> {
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let function = json!({"name": "f", "description": "d", "parameters": {"type": "object"}});
    vec![
        json!({
            "model": "m", "n": 2, "seed": 1, "stop": ["a"], "stream": true, "logprobs": true,
            "top_logprobs": 2, "logit_bias": {"5": 1}, "temperature": 0.5, "max_tokens": 4,
            "stream_options": {"include_usage": true}, "metadata": {"a": "b"},
            "tools": [{"type": "function", "function": function}], "tool_choice": "auto",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "x"}], "name": "n"},
                {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "r"},
            ],
        }),
        json!({
            "model": "m", "messages": [{"role": "user", "content": "x"}], "min_tokens": 1,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
            "chat_template_kwargs": {"a": [1]}, "min_p": 0.5, "stop_token_ids": [1],
        }),
        json!({"model": "m", "prompt": ["a", "b"], "echo": true, "best_of": 1, "guided_regex": "a"}),
        json!({"model": "m", "prompt": [[1, 2], [3]], "structured_outputs": {"choice": ["a"]}}),
        json!({
            "model": "m", "instructions": "i", "text": {"format": {"type": "json_object"}},
            "reasoning": {"effort": "none"}, "tools": [], "max_output_tokens": 5,
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
                {"type": "reasoning", "summary": [], "content": []},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "r"},
            ],
        }),
        json!({
            "model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "s"}],
            "stop_sequences": ["a"], "metadata": {"user_id": "u"}, "thinking": {"type": "disabled"},
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "1", "name": "f", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "r", "is_error": true},
                ]},
            ],
        }),
        json!({"tokens": [1, 2, 3]}),
    ]
}

/// The `n`th value inside of `value`, counted depth first.
fn nth<'a>(value: &'a mut Value, n: &mut usize) -> Option<&'a mut Value> {
    if *n == 0 {
        return Some(value);
    }
    *n -= 1;
    match value {
        Value::Array(entries) => entries.iter_mut().find_map(|entry| nth(entry, n)),
        Value::Object(members) => members.values_mut().find_map(|member| nth(member, n)),
        _ => None,
    }
}

fn odd(which: u8) -> Value {
    let words = [
        "",
        "x",
        "auto",
        "function",
        "text",
        "\u{0}\u{feff}",
        "<|im_end|>",
        "json_schema",
    ];
    let numbers = [0.0, -1.0, 1.5, 1e300, -1e-300];
    match which % 32 {
        0 => Value::Null,
        1 => Value::Bool(true),
        2 => json!([]),
        3 => json!({}),
        4 => json!([null]),
        5 => json!({"type": "function"}),
        6 => json!(u64::MAX),
        7 => json!(i64::MIN),
        8 => json!("é".repeat(300)),
        9 => json!([[[[[[{}]]]]]]),
        n @ 10..=17 => words[usize::from(n) - 10].into(),
        n @ 18..=22 => numbers[usize::from(n) - 18].into(),
        n => n.into(),
    }
}

#[test]
fn bodies_of_any_bytes() {
    bolero::check!().for_each(read);
}

#[test]
fn requests_with_a_few_odd_values() {
    let known = known();
    let orderly = requests();
    for (endpoint, request) in [
        Endpoint::Chat,
        Endpoint::Chat,
        Endpoint::Completions,
        Endpoint::Completions,
        Endpoint::Responses,
        Endpoint::Messages,
    ]
    .into_iter()
    .zip(&orderly)
    {
        let read = Request::read(endpoint, request.to_string().as_bytes(), &TEXT, &known);
        assert!(read.is_ok(), "{endpoint:?}: {:?}", read.err());
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u8, u8)>)>()
        .for_each(|(which, edits)| {
            let mut request = orderly[usize::from(*which) % orderly.len()].clone();
            for (place, what) in edits.iter().take(4) {
                if let Some(value) = nth(&mut request, &mut usize::from(*place)) {
                    *value = odd(*what);
                }
            }
            read(request.to_string().as_bytes());
        });
}

#[test]
fn texts_of_any_characters_go_to_tokens_and_back() {
    bolero::check!().with_type::<String>().for_each(|words| {
        let known = known();
        let body = json!({"prompt": words, "return_token_strs": true}).to_string();
        let Ok(reply) = vllm::tokenize(body.as_bytes(), &TEXT, &known) else {
            return;
        };
        if reply["count"]
            .as_u64()
            .is_some_and(|count| count <= known.context.into())
        {
            let body = json!({"tokens": reply["tokens"]}).to_string();
            vllm::detokenize(body.as_bytes(), &TEXT, &known).unwrap();
        }
        let message = json!([{"role": "user", "content": words}]);
        let body = json!({"model": "m", "messages": message}).to_string();
        judge(Request::read(
            Endpoint::Chat,
            body.as_bytes(),
            &TEXT,
            &known,
        ));
    });
}
