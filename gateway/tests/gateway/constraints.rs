//! What answers are held to: refused before anything is reserved where it cannot be followed, and put
//! behind the reasoning of a model that marks it.

use std::time::Duration;

use serde_json::{Value, json};
use tandem_wire::proto::FinishReason;
use tandem_wire::proto::constraint::Kind;

use crate::client::{Reply, post};
use crate::harness::{
    CHAT, COMPLETIONS, Gateway, MESSAGES, RESPONSES, chat, with, with_one_worker,
};
use crate::scripted_worker::{MODEL, ScriptedWorker};
use crate::tools::{tooled, with_hermes, with_hermes_and};

fn named(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
}

/// Refused, with this field and these words, and without a word to the worker.
fn refused(reply: &Reply, param: &str, words: &str) {
    assert_eq!(reply.status, 400, "{}", reply.body);
    let error = reply.error();
    assert_eq!(error["param"], param, "{}", reply.body);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(words), "{message}");
    assert!(
        message.starts_with(&format!("Invalid '{param}': ")),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_followed_is_refused_before_a_lease() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let unknown = json!({"type": "object", "not": {"required": ["a"]}});
    let deep = (0..60).fold(
        json!({"type": "null"}),
        |inner, _| json!({"anyOf": [inner]}),
    );
    for (members, param, words) in [
        (
            json!({"response_format": named(unknown.clone())}),
            "response_format",
            "not",
        ),
        (
            json!({"response_format": named(deep)}),
            "response_format",
            "at most 100",
        ),
        (
            json!({"response_format": named(json!({"multipleOf": 1_000_003}))}),
            "response_format",
            "multipleOf",
        ),
        (
            json!({"guided_regex": "a("}),
            "guided_regex",
            "unclosed group",
        ),
        (
            json!({"guided_json": {"type": "what"}}),
            "guided_json",
            "what",
        ),
        (
            json!({"guided_grammar": "begin: \"a\""}),
            "guided_grammar",
            "start",
        ),
        (
            json!({"structured_outputs": {"grammar": "start: start"}}),
            "structured_outputs",
            "no answer can begin by it",
        ),
    ] {
        let reply = post(gateway.address, CHAT, &with(chat(), members.clone())).await;
        refused(&reply, param, words);
        let body = with(json!({"model": MODEL, "prompt": "x", "n": 3}), members);
        let reply = post(gateway.address, COMPLETIONS, &body).await;
        refused(&reply, param, words);
    }
    let format = json!({"type": "json_schema", "name": "n", "schema": unknown});
    let body = json!({"model": MODEL, "input": "x", "text": {"format": format}});
    let reply = post(gateway.address, RESPONSES, &body).await;
    refused(&reply, "text.format.schema", "not");
    assert!(worker.is_left_alone(Duration::from_millis(50)).await);
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_functions_schema_that_cannot_be_followed_is_named() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let parameters = json!({"type": "object", "properties": {"a": {"not": {}}}});
    let bad = json!({"name": "bad", "strict": true, "parameters": parameters});
    let tools = json!([tooled()["tools"][0], {"type": "function", "function": bad}]);
    let body = with(tooled(), json!({"tools": tools, "tool_choice": "required"}));
    let reply = post(gateway.address, CHAT, &body).await;
    refused(&reply, "tools[1].function.parameters", "not");

    let flat = with(bad.clone(), json!({"type": "function"}));
    let body = json!({"model": MODEL, "input": "x", "tools": [flat], "tool_choice": "required"});
    let reply = post(gateway.address, RESPONSES, &body).await;
    refused(&reply, "tools[0].parameters", "not");

    let tool = json!({"name": "bad", "strict": true, "input_schema": parameters});
    let body = json!({
        "model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool], "tool_choice": {"type": "any"},
    });
    let reply = post(gateway.address, MESSAGES, &body).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    let message = reply.json()["error"]["message"].to_string();
    assert!(message.contains("tools[0].input_schema"), "{message}");
    assert!(worker.is_left_alone(Duration::from_millis(50)).await);
    gateway.at_rest().await;
}

/// What the worker is told of a request that it answers with these texts, and the reply.
async fn told(
    gateway: &Gateway,
    worker: &mut ScriptedWorker,
    body: &Value,
    texts: &[&str],
) -> (Option<Kind>, Reply) {
    let serve = async {
        let mut call = worker.call().await;
        call.answer(texts, FinishReason::Stop).await;
        let constraint = call.generate.sampling.unwrap().constraint;
        constraint.and_then(|constraint| constraint.kind)
    };
    let (reply, kind) = tokio::join!(post(gateway.address, CHAT, body), serve);
    assert_eq!(reply.status, 200, "{}", reply.body);
    (kind, reply)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answers_form_begins_behind_the_models_reasoning() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let thinks = json!({"chat_template_kwargs": {"enable_thinking": true}});
    let body = with(chat(), json!({"response_format": {"type": "json_object"}}));
    let texts = ["Hm.</thi", "nk>\n\n{\"a\"", ": 1}"];
    let body = with(body, thinks);
    let (kind, reply) = told(&gateway, &mut worker, &body, &texts).await;
    let Some(Kind::Lark(grammar)) = kind else {
        panic!("{kind:?}");
    };
    // The prompt has begun the reasoning: it has to end before the form begins.
    assert!(grammar.contains("\nstart: thought answer\n"), "{grammar}");
    assert!(
        grammar.contains("\nanswer: %json {\"type\":\"object\""),
        "{grammar}"
    );
    let message = &reply.json()["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "Hm.");
    assert_eq!(message["content"], "{\"a\": 1}");

    // Where the prompt has not, it is the model's to begin.
    let body = with(chat(), json!({"guided_regex": "yes|no"}));
    let (kind, _) = told(&gateway, &mut worker, &body, &["yes"]).await;
    let Some(Kind::Lark(grammar)) = kind else {
        panic!("{kind:?}");
    };
    assert!(grammar.contains("thought)? answer\n"), "{grammar}");

    // A prompt that has ended it, and an endpoint that knows no reasoning: the form is all there is.
    let closed = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>Hm.</think>"},
    ]);
    let body = with(
        body,
        json!({"messages": closed, "continue_final_message": true}),
    );
    let (kind, _) = told(&gateway, &mut worker, &body, &["yes"]).await;
    assert_eq!(kind, Some(Kind::Regex("yes|no".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_breaks_out_of_its_place_is_refused() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    for grammar in [
        "start: \"a\" } | %lark { start: \"b\"",
        "start: \"a\"\n}\nanswer: %lark {",
    ] {
        let body = with(chat(), json!({"guided_grammar": grammar}));
        let reply = post(gateway.address, CHAT, &body).await;
        refused(&reply, "guided_grammar", "the grammar cannot be used");
    }
    assert!(worker.is_left_alone(Duration::from_millis(50)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configured_dialect_overrules_what_the_template_shows() {
    let plain = |config: &mut tandem_config::GatewayConfig| {
        config.tool_dialect = Some("pythonic");
        config.reasoning_dialect = Some("none");
    };
    let (_model, _pki, gateway, mut worker) = with_hermes_and(plain).await;
    let texts = ["[weather(city=\"Paris\")]"];
    let (_, reply) = told(&gateway, &mut worker, &tooled(), &texts).await;
    let message = &reply.json()["choices"][0]["message"];
    let function = &message["tool_calls"][0]["function"];
    assert_eq!(function["arguments"], "{\"city\": \"Paris\"}");
    let texts = ["<think>Hm.</think>", "Yes."];
    let (_, reply) = told(&gateway, &mut worker, &chat(), &texts).await;
    let message = &reply.json()["choices"][0]["message"];
    assert_eq!(message["content"], "<think>Hm.</think>Yes.");

    let none = |config: &mut tandem_config::GatewayConfig| config.tool_dialect = Some("none");
    let (_model, _pki, gateway, _worker) = with_hermes_and(none).await;
    let reply = post(gateway.address, CHAT, &tooled()).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.error()["param"]),
        (400, &json!("tools"))
    );
}
