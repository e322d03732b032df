//! Chat templates: the environment they get, and the messages they see.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tandem_text::{ChatOptions, TemplateError};

use crate::made;

fn render(source: &str, messages: &Value, options: ChatOptions) -> Result<String, TemplateError> {
    made::with_template(source)
        .unwrap()
        .render_chat(messages, options)
}

fn plain(source: &str) -> Result<String, TemplateError> {
    render(source, &json!([]), ChatOptions::default())
}

/// Renders one user message with this content.
fn content(content: Value) -> Result<String, TemplateError> {
    let messages = json!([{"role": "user", "content": content}]);
    render(
        "{{ messages[0].content }}",
        &messages,
        ChatOptions::default(),
    )
}

#[test]
fn without_a_template_nothing_is_rendered() {
    let rendered = made::model().render_chat(&json!([]), ChatOptions::default());
    assert_eq!(rendered, Err(TemplateError::None));
}

#[test]
fn blocks_are_trimmed_and_nothing_is_escaped() {
    let source = "  {% for m in messages %}\n[{{ m.content }}]\n  {% endfor %}\n<{{ bos_token }}>";
    let messages = json!([{"role": "user", "content": "<&\">"}]);
    let rendered = render(source, &messages, ChatOptions::default());
    assert_eq!(rendered.as_deref(), Ok("[<&\">]\n<<s>>"));
}

#[test]
fn text_parts_are_joined_by_newlines() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(content(parts).as_deref(), Ok("a\nb"));
    assert_eq!(content(json!([])).as_deref(), Ok(""));
    assert_eq!(content(Value::Null).as_deref(), Ok(""));
}

#[test]
fn a_part_that_is_no_text_is_named() {
    let error = content(json!([{"type": "image_url", "image_url": {"url": "x"}}])).unwrap_err();
    let kind = "image_url".to_owned();
    assert_eq!(error, TemplateError::UnsupportedPart { index: 0, kind });
    assert!(error.to_string().contains("messages[0]") && error.to_string().contains("image_url"));
}

#[test]
fn messages_of_a_wrong_shape_are_refused() {
    for messages in [json!({}), json!("x"), Value::Null] {
        let rendered = render("x", &messages, ChatOptions::default());
        assert_eq!(rendered, Err(TemplateError::NotAnArray));
    }
    for message in [
        json!(1),
        json!({"content": "x"}),
        json!({"role": 1, "content": "x"}),
        json!({"role": "user", "content": 1}),
        json!({"role": "user", "content": ["x"]}),
        json!({"role": "user", "content": [{"type": "text"}]}),
        json!({"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}),
    ] {
        let rendered = render("x", &json!([message]), ChatOptions::default());
        assert!(
            matches!(rendered, Err(TemplateError::Malformed { index: 0, .. })),
            "{rendered:?}"
        );
    }
}

#[test]
fn a_refusal_carries_the_templates_own_words() {
    let source = "{% macro f() %}{{ raise_exception('Roles must alternate: ' ~ 1) }}{% endmacro %}\
                  {% if messages %}{{ f() }}{% endif %}";
    let messages = json!([{"role": "user", "content": "x"}]);
    let refused = render(source, &messages, ChatOptions::default());
    let words = "Roles must alternate: 1".to_owned();
    assert_eq!(refused, Err(TemplateError::Refused(words)));
}

#[test]
fn the_date_is_the_callers() {
    let source = "{{ strftime_now('%d %b %Y') }}";
    assert_eq!(plain(source), Err(TemplateError::TimeNotGiven));
    let options = ChatOptions {
        now: Some(UNIX_EPOCH + Duration::from_secs(1_709_210_096)),
        ..ChatOptions::default()
    };
    assert_eq!(
        render(source, &json!([]), options).as_deref(),
        Ok("29 Feb 2024")
    );
}

/// Expected: `json.dumps(tools, ensure_ascii=False, indent=...)` of Python 3.
#[test]
fn tojson_prints_as_python_does() {
    let tools: Value =
        serde_json::from_str(r#"[{"z":"<é'&>","a":[1,2.5,true,null],"e":{},"l":[]}]"#).unwrap();
    let options = || ChatOptions {
        tools: Some(tools.clone()),
        ..ChatOptions::default()
    };
    let line = render("{{ tools | tojson }}", &json!([]), options());
    let expected = r#"[{"z": "<é'&>", "a": [1, 2.5, true, null], "e": {}, "l": []}]"#;
    assert_eq!(line.as_deref(), Ok(expected));
    let block = render("{{ tools[0].a | tojson(indent=2) }}", &json!([]), options());
    assert_eq!(block.as_deref(), Ok("[\n  1,\n  2.5,\n  true,\n  null\n]"));
}

#[test]
fn a_tool_calls_arguments_are_an_object() {
    let call =
        json!({"type": "function", "function": {"name": "f", "arguments": "{\"b\":1,\"a\":2}"}});
    let messages = json!([{"role": "assistant", "content": null, "tool_calls": [call]}]);
    let source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}";
    let rendered = render(source, &messages, ChatOptions::default());
    assert_eq!(rendered.as_deref(), Ok(r#"{"b": 1, "a": 2}"#));
}

#[test]
fn pythons_words_and_methods_are_known() {
    assert_eq!(
        plain("{{ none }} {{ true }} {{ false }}").as_deref(),
        Ok("None True False")
    );
    assert_eq!(plain("{{ '  aB '.strip().upper() }}").as_deref(), Ok("AB"));
    assert_eq!(plain("{{ 'a,b'.split(',')[-1] }}").as_deref(), Ok("b"));
    assert_eq!(
        plain("{% if not tools %}{{ tools is none }}{% endif %}").as_deref(),
        Ok("True")
    );
    let loops = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}\
                 {% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}";
    assert_eq!(plain(loops).as_deref(), Ok("02"));
    let generation =
        "{%- generation -%} x {%- endgeneration %}{% set generation = 1 %}{{ generation }}";
    assert_eq!(plain(generation).as_deref(), Ok("x1"));
}

#[test]
fn a_clients_arguments_reach_the_template_but_set_none_of_its_own() {
    let options = |text: &str| ChatOptions {
        extra: serde_json::from_str(text).unwrap(),
        ..ChatOptions::default()
    };
    let source = "{{ enable_thinking }}{{ missing }}";
    let rendered = render(source, &json!([]), options(r#"{"enable_thinking": false}"#));
    assert_eq!(rendered.as_deref(), Ok("False"));
    let refused = render(source, &json!([]), options(r#"{"messages": []}"#));
    assert_eq!(refused, Err(TemplateError::Reserved("messages".to_owned())));
}

#[test]
fn a_template_cannot_run_for_ever() {
    let source = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
    assert_eq!(plain(source), Err(TemplateError::OutOfFuel));
    let recursion = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    assert!(matches!(plain(recursion), Err(TemplateError::Failed(_))));
}

#[test]
fn a_long_chat_is_within_the_bound() {
    let message = json!({"role": "user", "content": "x"});
    let messages = Value::Array(vec![message; 100_000]);
    let source = "{% for m in messages %}{% if loop.first and m.role != 'system' %}s{% endif %}\
                  {{ '<|' + m['role'] + '|>' + m['content'] + '\n' }}{% endfor %}";
    assert!(render(source, &messages, ChatOptions::default()).is_ok());
}

#[test]
fn a_template_that_does_not_compile_is_refused_when_loaded() {
    let error = made::with_template("{% if %}").err().unwrap().to_string();
    assert!(
        error.contains("chat template") && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn tools_choose_the_template_made_for_them() {
    let model = made::Made::new()
        .text("tokenizer.chat_template", "plain")
        .text("tokenizer.chat_template.tool_use", "tools")
        .load()
        .unwrap();
    let options = |tools| ChatOptions {
        tools,
        ..ChatOptions::default()
    };
    assert_eq!(
        model.render_chat(&json!([]), options(None)).as_deref(),
        Ok("plain")
    );
    let tools = options(Some(json!([])));
    assert_eq!(model.render_chat(&json!([]), tools).as_deref(), Ok("tools"));
}

#[test]
fn the_templates_text_can_be_looked_at() {
    assert_eq!(made::model().chat_template(), None);
    let model = made::with_template("a {{ bos_token }}").unwrap();
    assert_eq!(model.chat_template().as_deref(), Some("a {{ bos_token }}"));
}
