//! Calls of tools and thoughts, of a model whose family marks them.

use serde_json::{Map, Value, json};
use tandem_config::GatewayConfig;
use tandem_wire::proto::FinishReason;
use tandem_wire::proto::constraint::Kind;
use tempfile::TempDir;

use crate::client::{post, post_stream};
use crate::harness::{CHAT, Gateway, MESSAGES, RESPONSES, chat, with, with_one_worker_and};
use crate::scripted_worker::{MODEL, ScriptedWorker};

const END: &str = "<|end|>";
const TEMPLATE: &str = "{% if tools %}Tools: {{ tools | tojson }}\n{% endif %}\
    {% for m in messages %}<{{ m.role }}>{{ m.content }}\
    {% for call in m.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}\
    {% endfor %}{% if add_generation_prompt %}<assistant>\
    {% if enable_thinking %}<think>\n{% endif %}{% endif %}";

/// GPT-2's character for a byte.
fn character(byte: u8) -> String {
    let prints = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if prints(&byte) {
        return char::from(byte).to_string();
    }
    let place = (0..byte).filter(|byte| !prints(byte)).count();
    char::from_u32(0x100 + u32::try_from(place).unwrap())
        .unwrap()
        .to_string()
}

/// A tokenizer whose tokens are bytes, and a template with the marks of the Hermes family.
fn hermes() -> TempDir {
    let vocabulary: Map<String, Value> = (0..=u8::MAX)
        .map(|byte| (character(byte), byte.into()))
        .collect();
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": false});
    let end = json!({"id": 256, "content": END, "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [end],
        "normalizer": null, "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "vocab": vocabulary, "merges": []},
    });
    let settings = json!({"eos_token": END, "chat_template": TEMPLATE});
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    };
    write("tokenizer.json", &tokenizer);
    write("tokenizer_config.json", &settings);
    write("config.json", &json!({"max_position_embeddings": 8192}));
    folder
}

pub(crate) async fn with_hermes() -> (TempDir, TempDir, Gateway, ScriptedWorker) {
    with_hermes_and(|_| {}).await
}

pub(crate) async fn with_hermes_and(
    change: impl FnOnce(&mut GatewayConfig),
) -> (TempDir, TempDir, Gateway, ScriptedWorker) {
    let model = hermes();
    let path = model.path().to_owned();
    let changes = |config: &mut GatewayConfig| {
        config.tokenizer = path;
        change(config);
    };
    let (pki, gateway, worker) = with_one_worker_and(changes).await;
    (model, pki, gateway, worker)
}

pub(crate) fn function() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!({"name": "weather", "description": "d", "parameters": parameters})
}

pub(crate) fn tooled() -> Value {
    with(
        chat(),
        json!({"tools": [{"type": "function", "function": function()}]}),
    )
}

/// An answer that thinks, says something and calls, cut at odd places.
pub(crate) const ANSWER: [&str; 7] = [
    "<thi",
    "nk>Hm.</think>Let me see.",
    "<tool",
    "_call>\n{\"name\": \"weather\", \"arg",
    "uments\": {\"city\": \"Pa",
    "ris\"}}\n</tool_call>",
    "",
];
const ARGUMENTS: &str = "{\"city\": \"Paris\"}";

/// What the worker hears of a request that it answers so, and the prompt's text.
async fn serve(worker: &mut ScriptedWorker) -> (String, Option<Kind>) {
    let mut call = worker.call().await;
    call.answer(&ANSWER, FinishReason::Stop).await;
    let bytes = call
        .generate
        .tokens
        .iter()
        .map(|token| *token as u8)
        .collect();
    let constraint = call.generate.sampling.unwrap().constraint;
    (
        String::from_utf8(bytes).unwrap(),
        constraint.and_then(|constraint| constraint.kind),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chats_calls_and_thoughts_are_told_apart_from_its_text() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let body = tooled();
    let (reply, (prompt, constraint)) =
        tokio::join!(post(gateway.address, CHAT, &body), serve(&mut worker));
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(
        prompt.starts_with("Tools: [{\"type\": \"function\""),
        "{prompt}"
    );
    assert_eq!(constraint, None);
    let answer = reply.json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!(message["reasoning_content"], "Hm.");
    assert_eq!(message["content"], "Let me see.");
    let call = &message["tool_calls"][0];
    assert_eq!(
        call["function"],
        json!({"name": "weather", "arguments": ARGUMENTS})
    );
    let thought = &answer["usage"]["completion_tokens_details"]["reasoning_tokens"];
    assert_eq!(*thought, 1);

    // The conversation goes on with the call and its result.
    let messages = json!([
        {"role": "user", "content": "Hi"},
        message,
        {"role": "tool", "tool_call_id": call["id"], "content": "Sunny."},
    ]);
    let body = with(tooled(), json!({"messages": messages}));
    let (reply, (prompt, _)) = tokio::join!(post(gateway.address, CHAT, &body), serve(&mut worker));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let told = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>\
        <tool>Sunny.<assistant>";
    assert!(prompt.ends_with(told), "{prompt}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_chats_calls_come_as_deltas() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let body = with(tooled(), json!({"stream": true}));
    let (mut stream, _) = tokio::join!(
        post_stream(gateway.address, CHAT, &body),
        serve(&mut worker)
    );
    let events = stream.rest().await;
    let choices: Vec<Value> = events
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(event).ok())
        .map(|event| event["choices"][0].clone())
        .collect();
    let joined = |pointer: &str| -> String {
        let texts = choices
            .iter()
            .filter_map(|choice| choice.pointer(pointer)?.as_str());
        texts.collect()
    };
    assert_eq!(joined("/delta/content"), "Let me see.");
    assert_eq!(joined("/delta/reasoning_content"), "Hm.");
    assert_eq!(joined("/delta/tool_calls/0/function/name"), "weather");
    assert_eq!(joined("/delta/tool_calls/0/function/arguments"), ARGUMENTS);
    assert_eq!(choices.last().unwrap()["finish_reason"], "tool_calls");
    assert_eq!(events.last().unwrap(), "[DONE]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_choice_of_tools_holds_the_worker_to_it() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let named = json!({"type": "function", "function": {"name": "weather"}});
    let mut grammars = Vec::new();
    for (choice, parallel) in [
        (json!("required"), Value::Null),
        (json!("required"), json!(false)),
        (named.clone(), Value::Null),
        (named, json!(true)),
    ] {
        let more = json!({"tool_choice": choice, "parallel_tool_calls": parallel});
        let body = with(tooled(), more);
        let (reply, (_, constraint)) =
            tokio::join!(post(gateway.address, CHAT, &body), serve(&mut worker));
        assert_eq!(reply.status, 200, "{}", reply.body);
        let Some(Kind::Lark(grammar)) = constraint else {
            panic!("not held to calls: {constraint:?}");
        };
        grammars.push(grammar);
    }
    // A function that is named is called once, unless several calls are asked for.
    assert_ne!(grammars[0], grammars[1]);
    assert_eq!(grammars[1], grammars[2]);
    assert_eq!(grammars[0], grammars[3]);
    let body = with(tooled(), json!({"tool_choice": "none"}));
    let (reply, (prompt, constraint)) =
        tokio::join!(post(gateway.address, CHAT, &body), serve(&mut worker));
    assert!(!prompt.starts_with("Tools"));
    assert_eq!(constraint, None);
    assert_eq!(reply.json()["choices"][0]["finish_reason"], "stop");
    let both = json!({"tool_choice": "required", "response_format": {"type": "json_object"}});
    let reply = post(gateway.address, CHAT, &with(tooled(), both)).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.error()["param"]),
        (400, &json!("tool_choice"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_and_messages_have_calls_of_their_own_form() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let tool = with(function(), json!({"type": "function", "strict": null}));
    let body = json!({"model": MODEL, "input": "Hi", "tools": [tool], "max_output_tokens": 9});
    let (reply, _) = tokio::join!(post(gateway.address, RESPONSES, &body), serve(&mut worker));
    let response = reply.json();
    let output = response["output"]
        .as_array()
        .unwrap_or_else(|| panic!("{response}"));
    let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(output[2]["arguments"], ARGUMENTS);

    // Its output is the next one's input.
    let mut input = vec![json!({"role": "user", "content": "Hi"})];
    input.extend(output.iter().cloned());
    let id = &output[2]["call_id"];
    input.push(json!({"type": "function_call_output", "call_id": id, "output": "Sunny."}));
    let body = with(body, json!({"input": input}));
    let (reply, (prompt, _)) =
        tokio::join!(post(gateway.address, RESPONSES, &body), serve(&mut worker));
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(
        prompt.ends_with("</tool_call><tool>Sunny.<assistant>"),
        "{prompt}"
    );

    let parameters = function()["parameters"].clone();
    let body = json!({
        "model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "weather", "input_schema": parameters}],
    });
    let (reply, _) = tokio::join!(post(gateway.address, MESSAGES, &body), serve(&mut worker));
    let message = reply.json();
    assert_eq!(message["stop_reason"], "tool_use", "{message}");
    let content = message["content"].as_array().unwrap();
    assert_eq!(
        (&content[0]["type"], &content[0]["thinking"]),
        (&json!("thinking"), &json!("Hm."))
    );
    assert_eq!(content[1], json!({"type": "text", "text": "Let me see."}));
    assert_eq!(
        (&content[2]["type"], &content[2]["input"]),
        (&json!("tool_use"), &json!({"city": "Paris"}))
    );

    let result =
        json!([{"type": "tool_result", "tool_use_id": content[2]["id"], "content": "Sunny."}]);
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": result},
    ]);
    let body = with(body, json!({"messages": messages}));
    let (reply, (prompt, _)) =
        tokio::join!(post(gateway.address, MESSAGES, &body), serve(&mut worker));
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(
        prompt.ends_with("</tool_call><tool>Sunny.<assistant>"),
        "{prompt}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_opens_thoughts_begins_the_answer_with_them() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let chats = with(
        chat(),
        json!({"chat_template_kwargs": {"enable_thinking": true}}),
    );
    let messages = json!({
        "model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    });
    for (path, body) in [(CHAT, chats), (MESSAGES, messages)] {
        let serve = async {
            let mut call = worker.call().await;
            call.answer(&["Hm", ".</th", "ink>\n\nYes."], FinishReason::Stop)
                .await;
        };
        let (reply, ()) = tokio::join!(post(gateway.address, path, &body), serve);
        assert_eq!(reply.status, 200, "{}", reply.body);
        let answer = reply.json();
        if path == CHAT {
            let message = &answer["choices"][0]["message"];
            assert_eq!(message["reasoning_content"], "Hm.");
            assert_eq!(message["content"].as_str().unwrap().trim_start(), "Yes.");
        } else {
            assert_eq!(answer["content"][0]["thinking"], "Hm.");
        }
    }
}
