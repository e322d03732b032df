use tandem_dialect::{Dialect, Parser, Release};

use crate::samples::{Answer, SAMPLES, collect, dialect, expected, options, parse, read};

fn whole(family: &str, text: &str) -> Answer {
    collect(parse(dialect(family), options(Release::Whole), &[text]))
}

fn content(family: &str, text: &str) {
    let answer = whole(family, text);
    assert_eq!(
        (answer.content.as_str(), answer.calls.len()),
        (text, 0),
        "{family}"
    );
}

#[test]
fn every_familys_calls_are_read() {
    for sample in SAMPLES {
        for release in [Release::Whole, Release::Early] {
            let answer = collect(parse(
                dialect(sample.family),
                options(release),
                &[sample.text],
            ));
            assert_eq!(read(&answer), expected(), "{}: {answer:?}", sample.family);
            assert_eq!(answer.content, sample.content, "{}", sample.family);
            assert_eq!(answer.complete, [true, true]);
        }
    }
}

#[test]
fn reasoning_comes_before_calls() {
    for sample in SAMPLES {
        let text = format!(
            "\n<think>\nHm, <tool_call> and {{ and [.</think>\n\n{}",
            sample.text
        );
        let answer = whole(sample.family, &text);
        assert_eq!(
            answer.reasoning, "Hm, <tool_call> and { and [.",
            "{}",
            sample.family
        );
        assert_eq!(answer.content, sample.content);
        assert_eq!(read(&answer), expected());
    }
}

#[test]
fn a_prompt_may_have_opened_reasoning() {
    let think = dialect("hermes");
    assert!(think.opens_reasoning("<|im_start|>assistant\n<think>\n"));
    assert!(!think.opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    let mut options = options(Release::Whole);
    options.reasoning = true;
    let answer = collect(parse(think, options, &["\nHm.</think>\n\nHello"]));
    assert_eq!(
        (answer.reasoning.as_str(), answer.content.as_str()),
        ("Hm.", "Hello")
    );
}

#[test]
fn a_marker_of_reasoning_inside_an_answer_is_content() {
    content("hermes", "Write <think> and </think> around it.");
}

#[test]
fn other_ways_to_mark_reasoning() {
    for (name, text) in [
        ("mistral", "[THINK]Hm.[/THINK]Hello"),
        ("granite", "<think>Hm.</think>\n<response>Hello</response>"),
        (
            "granite_prose",
            "Here is my thought process:Hm.Here is my response:Hello",
        ),
    ] {
        let dialect = Dialect::default().with_reasoning(name).expect("is known");
        let answer = collect(parse(dialect, options(Release::Whole), &[text]));
        assert_eq!(
            (answer.reasoning.as_str(), answer.content.as_str()),
            ("Hm.", "Hello"),
            "{name}"
        );
    }
    let granite = Dialect::default()
        .with_reasoning("granite")
        .expect("is known");
    let answer = collect(parse(
        granite,
        options(Release::Whole),
        &["A <response> tag"],
    ));
    assert_eq!(answer.content, "A <response> tag");
}

#[test]
fn an_unknown_function_is_content() {
    content(
        "hermes",
        "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
    );
    content(
        "granite",
        "<|tool_call|>[{\"name\": \"rm\", \"arguments\": {}}]",
    );
    content(
        "phi4_mini",
        "functools[{\"name\": \"rm\", \"arguments\": {}}]",
    );
    content("mistral", "[TOOL_CALLS]rm[ARGS]{}");
    content(
        "deepseek_v31",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>rm<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
    );
    content(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.rm:0<|tool_call_argument_begin|>{}",
    );
    content("glm45", "<tool_call>rm\n</tool_call>");
    content(
        "qwen3_coder",
        "<tool_call>\n<function=rm>\n</function>\n</tool_call>",
    );
    content("llama3_json", "{\"name\": \"rm\", \"parameters\": {}}");
    content("pythonic", "[rm()]");
}

#[test]
fn a_malformed_call_is_content() {
    for text in [
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {]}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": \"{}\"}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"name\": \"now\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\nnow()\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {",
        "<tool_call>",
        "<tool_c",
    ] {
        content("hermes", text);
    }
    content("pythonic", "[now(x)]");
    content("pythonic", "[now(x=1, x=2)]");
    content("pythonic", "[now](https://a.example) is a link");
    content(
        "llama3_json",
        "{\"answer\": 42, \"name\": \"now\", \"parameters\": {}}",
    );
    content("qwen3_coder", "<function=now>\n<parameter=a>\n1");
    content(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_calls_section_end|>",
    );
    content("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>");
}

#[test]
fn a_call_behind_a_broken_one_is_read() {
    let answer = whole(
        "hermes",
        "<tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
    );
    assert_eq!(answer.content, "<tool_call>\n");
    assert_eq!(answer.calls.len(), 1);
    let answer = whole(
        "qwen3_coder",
        "<tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    );
    assert_eq!(
        (answer.content.as_str(), answer.calls.len()),
        ("<tool_call>\n", 1)
    );
}

#[test]
fn text_behind_calls_is_content() {
    let answer = whole(
        "hermes",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n\nThere.",
    );
    assert_eq!((answer.content.as_str(), answer.calls.len()), ("There.", 1));
    let answer = whole(
        "granite",
        "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}, oops",
    );
    assert_eq!((answer.content.as_str(), answer.calls.len()), (", oops", 1));
}

#[test]
fn calls_without_their_last_marker_count() {
    for text in [
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n",
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}<tool_call>{\"name\": \"now\", \"arguments\": {}}",
    ] {
        let answer = whole("hermes", text);
        assert_eq!(answer.content, "", "{text}");
        assert!(!answer.calls.is_empty());
    }
}

#[test]
fn calls_are_looked_for_at_the_beginning_only_where_they_have_no_marker() {
    content(
        "llama3_json",
        "It is {\"name\": \"now\", \"parameters\": {}}",
    );
    content("pythonic", "It is [now()]");
    let answer = whole("pythonic", "\n [now()]");
    assert_eq!((answer.content.as_str(), answer.calls.len()), ("", 1));
}

#[test]
fn without_functions_nothing_is_a_call() {
    let mut none = options(Release::Whole);
    none.tools = tandem_dialect::Tools::default();
    for sample in SAMPLES {
        let answer = collect(parse(dialect(sample.family), none.clone(), &[sample.text]));
        assert_eq!(
            (answer.content.as_str(), answer.calls.len()),
            (sample.text, 0)
        );
    }
}

#[test]
fn a_single_call_ends_the_answer() {
    for sample in SAMPLES {
        let mut single = options(Release::Whole);
        single.parallel = false;
        let mut parser = Parser::new(dialect(sample.family), single);
        let mut deltas = Vec::new();
        for c in sample.text.chars() {
            assert!(!parser.is_done() || parser.calls() == 1);
            deltas.extend(parser.push(c.encode_utf8(&mut [0; 4])));
        }
        assert!(parser.is_done());
        deltas.extend(parser.finish());
        let answer = collect(deltas);
        assert_eq!(read(&answer), expected()[..1], "{}", sample.family);
        assert_eq!(answer.content, sample.content);
    }
}

#[test]
fn a_models_ids_are_kept() {
    let sample = SAMPLES
        .iter()
        .find(|sample| sample.family == "kimi_k2")
        .expect("is there");
    let ids = whole("kimi_k2", sample.text).ids;
    assert_eq!(
        ids,
        [
            Some("functions.get_weather:0".to_owned()),
            Some("functions.now:1".to_owned())
        ]
    );
    let ids = whole("mistral", "[TOOL_CALLS]now[CALL_ID]a1b2c3d4e[ARGS]{}").ids;
    assert_eq!(ids, [Some("a1b2c3d4e".to_owned())]);
}

#[test]
fn early_arguments_come_as_they_are_written() {
    for (family, start, piece, more) in [
        (
            "hermes",
            "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par",
            "is",
            "is",
        ),
        (
            "qwen3_coder",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
            "is\"",
            "is\\\"",
        ),
        ("pythonic", "[get_weather(city='Par", "is\"", "is\\\""),
    ] {
        let mut parser = Parser::new(dialect(family), options(Release::Early));
        let before = parser.push(start);
        assert!(
            matches!(
                before.first(),
                Some(tandem_dialect::Delta::CallStart { .. })
            ),
            "{family}"
        );
        let expected = tandem_dialect::Delta::Arguments {
            index: 0,
            json: more.to_owned(),
        };
        assert_eq!(parser.push(piece), [expected], "{family}");
        let last = parser.finish();
        assert_eq!(
            last,
            [tandem_dialect::Delta::CallEnd {
                index: 0,
                complete: false
            }],
            "{family}"
        );
    }
}

#[test]
fn an_early_call_that_goes_wrong_ends_and_content_goes_on() {
    let text = "<tool_call>{\"name\": \"now\", \"arguments\": {oops";
    let answer = collect(parse(dialect("hermes"), options(Release::Early), &[text]));
    assert_eq!(answer.complete, [false]);
    assert_eq!(
        (answer.calls[0].1.as_str(), answer.content.as_str()),
        ("{", "oops")
    );
}

#[test]
fn nothing_but_a_possible_marker_is_held_back() {
    let mut parser = Parser::new(dialect("hermes"), options(Release::Whole));
    let content = |text: &str| vec![tandem_dialect::Delta::Content(text.to_owned())];
    assert_eq!(parser.push("a < b <tool"), content("a < b "));
    assert_eq!(parser.push("box"), content("<toolbox"));
    assert_eq!(parser.push(" <"), content(" "));
    assert_eq!(parser.finish(), content("<"));
}

#[test]
fn a_call_longer_than_the_limit_is_content() {
    let text = format!(
        "<tool_call>{{\"name\": \"get_weather\", \"arguments\": {{\"city\": \"{}\"}}}}</tool_call>",
        "x".repeat(tandem_dialect::MAX_CALL)
    );
    content("hermes", &text);
}

#[test]
fn families_are_recognised_by_their_templates() {
    for (template, tools, reasoning) in [
        (
            "{% for message in messages %}<|im_start|>{{ message.content }}",
            None,
            None,
        ),
        ("return <tool_call>\\n{\"name\"", Some("hermes"), None),
        (
            "<tool_call> {{- '<think>\\n\\n</think>' }}",
            Some("hermes"),
            Some("think"),
        ),
        (
            "<tool_call>\\n<function=f>\\n<parameter=p>",
            Some("qwen3_coder"),
            None,
        ),
        (
            "<tool_call>{f}\n<arg_key>{k}</arg_key> <think>",
            Some("glm45"),
            Some("think"),
        ),
        (
            "respond with <|tool_call|> followed by a JSON list",
            Some("granite"),
            None,
        ),
        (
            "<think></think> in <response></response> <|tool_call|>",
            Some("granite"),
            Some("granite"),
        ),
        (
            "'[TOOL_CALLS]' + '[ARGS]' '[THINK]'",
            Some("mistral"),
            Some("mistral"),
        ),
        (
            "<｜tool▁calls▁begin｜> '\\n```json\\n' <think>",
            Some("deepseek_v3"),
            Some("think"),
        ),
        (
            "<｜tool▁calls▁begin｜> </think>",
            Some("deepseek_v31"),
            Some("think"),
        ),
        ("<|tool_calls_section_begin|>", Some("kimi_k2"), None),
        ("formatted as functools[{", Some("phi4_mini"), None),
        ("<|python_start|>", Some("pythonic"), None),
        ("{{- \"<|python_tag|>\" }}", Some("llama3_json"), None),
        (
            "Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name and its value}",
            Some("llama3_json"),
            None,
        ),
    ] {
        let dialect = Dialect::detect(template);
        assert_eq!(
            (dialect.tools(), dialect.reasoning()),
            (tools, reasoning),
            "{template}"
        );
    }
}

#[test]
fn a_dialect_can_be_named() {
    let error = Dialect::default()
        .with_tools("hermse")
        .expect_err("is unknown")
        .to_string();
    assert!(
        error.starts_with("\"hermse\" is no tool dialect; known are kimi_k2, "),
        "{error}"
    );
    assert!(error.ends_with(" and none"));
    let none = dialect("hermes")
        .with_tools("none")
        .and_then(|dialect| dialect.with_reasoning("none"));
    let none = none.expect("is known");
    assert_eq!(
        (none.tools(), none.reasoning(), none.markers().count()),
        (None, None, 0)
    );
}

#[test]
fn markers_are_what_tokens_may_be() {
    let markers: Vec<&str> = dialect("hermes").markers().collect();
    assert_eq!(
        markers,
        ["<tool_call>", "</tool_call>", "<think>", "</think>"]
    );
}
