//! Grammars, compiled and tried with llguidance on a vocabulary of single bytes and the family's markers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use tandem_dialect::{CannotConstrain, Decoding, Dialect, Release, ToolChoice, Tools};

use crate::samples::{collect, dialect, options, parse, read, tools};

/// The end-of-text token.
const END: u32 = 256;

/// Bytes, the end, and markers as special tokens.
pub(crate) struct Vocabulary {
    factory: ParserFactory,
    /// Of the grammars that have been tried.
    matchers: RefCell<HashMap<String, Matcher>>,
    markers: Vec<&'static str>,
}

impl Vocabulary {
    pub(crate) fn new(markers: Vec<&'static str>) -> Self {
        let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let special = std::iter::once("<|end|>").chain(markers.iter().copied());
        words.extend(special.map(|marker| [b"\xff", marker.as_bytes()].concat()));
        let info = TokRxInfo::new(words.len() as u32, END);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]);
        let mut factory = factory.expect("the vocabulary is well");
        factory.quiet();
        Self {
            factory,
            matchers: RefCell::default(),
            markers,
        }
    }

    fn special(&self, text: &str) -> Option<u32> {
        let index = self.markers.iter().position(|marker| *marker == text)?;
        Some(END + 1 + index as u32)
    }

    fn encode(&self, mut text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        while let Some(&byte) = text.as_bytes().first() {
            if let Some(marker) = self
                .markers
                .iter()
                .find(|marker| text.starts_with(**marker))
            {
                tokens.extend(self.special(marker));
                text = &text[marker.len()..];
            } else {
                // Of a longer character the other bytes follow.
                let length = text.chars().next().map_or(1, char::len_utf8);
                tokens.push(u32::from(byte));
                tokens.extend(
                    text.as_bytes()[1..length]
                        .iter()
                        .map(|&byte| u32::from(byte)),
                );
                text = &text[length..];
            }
        }
        tokens
    }

    pub(crate) fn decode(&self, tokens: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &token in tokens {
            match u8::try_from(token) {
                Ok(byte) => bytes.push(byte),
                Err(_) if token == END => {}
                Err(_) => bytes.extend(self.markers[(token - END - 1) as usize].bytes()),
            }
        }
        String::from_utf8(bytes).expect("grammars let only text through")
    }

    pub(crate) fn matcher(&self, lark: &str) -> Matcher {
        let mut matchers = self.matchers.borrow_mut();
        let matcher = matchers.entry(lark.to_owned()).or_insert_with(|| {
            let grammar = TopLevelGrammar::from_lark(lark.to_owned());
            Matcher::new(self.factory.create_parser(grammar))
        });
        assert_eq!(matcher.get_error(), None, "{lark}");
        matcher.deep_clone()
    }

    /// Whether `text` is a whole answer of the grammar.
    fn accepts(&self, lark: &str, text: &str) -> bool {
        let tokens = self.encode(text);
        let mut matcher = self.matcher(lark);
        let taken = matcher
            .try_consume_tokens(&tokens)
            .expect("the matcher is well");
        taken == tokens.len() && matcher.is_accepting().expect("the matcher is well")
    }
}

/// The grammar with markers that are special tokens, and that without.
pub(crate) fn both(
    dialect: Dialect,
    tools: &Tools,
    choice: &Value,
    parallel: bool,
    reasoning: bool,
) -> Result<Vec<(Vocabulary, Option<String>)>, CannotConstrain> {
    let choice = ToolChoice::check(choice, tools).expect("the choice is well");
    let vocabularies = [
        Vocabulary::new(dialect.markers().collect()),
        Vocabulary::new(Vec::new()),
    ];
    vocabularies
        .into_iter()
        .map(|vocabulary| {
            let decoding = Decoding {
                reasoning,
                parallel,
                special: &|text| vocabulary.special(text),
            };
            let grammar = dialect.grammar(&choice, &decoding)?;
            let lark = grammar.map(|grammar| grammar.into_lark());
            Ok((vocabulary, lark))
        })
        .collect()
}

fn required(family: &str, parallel: bool) -> Vec<(Vocabulary, String)> {
    let grammars = both(
        dialect(family),
        &tools(),
        &json!("required"),
        parallel,
        false,
    );
    let grammars = grammars.expect("can be constrained").into_iter();
    grammars
        .map(|(vocabulary, lark)| (vocabulary, lark.expect("there is one")))
        .collect()
}

struct Shape {
    family: &'static str,
    /// With `@` where the arguments go.
    weather: &'static str,
    arguments: &'static str,
    wrong: &'static [&'static str],
    now: &'static str,
    /// Around all calls, and between two.
    around: (&'static str, &'static str, &'static str),
}

const JSON: &str = "{\"city\": \"Paris\", \"days\": 2}";
const WRONG: &[&str] = &[
    "{}",
    "{\"city\": 1}",
    "{\"city\": \"Paris\", \"days\": \"2\"}",
    "{\"city\": \"Paris\", \"units\": \"K\"}",
    "[]",
];

const SHAPES: &[Shape] = &[
    Shape {
        family: "hermes",
        weather: "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": @}\n</tool_call>",
        arguments: JSON,
        wrong: WRONG,
        now: "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
        around: ("", "\n", ""),
    },
    Shape {
        family: "granite",
        weather: "{\"name\": \"get_weather\", \"arguments\": @}",
        arguments: JSON,
        wrong: WRONG,
        now: "{\"name\": \"now\", \"arguments\": {}}",
        around: ("<|tool_call|>[", ", ", "]"),
    },
    Shape {
        family: "phi4_mini",
        weather: "{\"name\": \"get_weather\", \"arguments\": @}",
        arguments: JSON,
        wrong: WRONG,
        now: "{\"name\": \"now\", \"arguments\": {}}",
        around: ("functools[", ", ", "]"),
    },
    Shape {
        family: "mistral_list",
        weather: "{\"name\": \"get_weather\", \"arguments\": @}",
        arguments: JSON,
        wrong: WRONG,
        now: "{\"name\": \"now\", \"arguments\": {}}",
        around: ("[TOOL_CALLS] [", ", ", "]"),
    },
    Shape {
        family: "mistral",
        weather: "[TOOL_CALLS]get_weather[ARGS]@",
        arguments: JSON,
        wrong: WRONG,
        now: "[TOOL_CALLS]now[ARGS]{}",
        around: ("", "", ""),
    },
    Shape {
        family: "deepseek_v3",
        weather: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n@\n```<｜tool▁call▁end｜>",
        arguments: JSON,
        wrong: WRONG,
        now: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>",
        around: ("<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"),
    },
    Shape {
        family: "deepseek_v31",
        weather: "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>@<｜tool▁call▁end｜>",
        arguments: JSON,
        wrong: WRONG,
        now: "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        around: ("<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>"),
    },
    Shape {
        family: "kimi_k2",
        weather: "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>@<|tool_call_end|>",
        arguments: JSON,
        wrong: WRONG,
        now: "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>",
        around: (
            "<|tool_calls_section_begin|>",
            "",
            "<|tool_calls_section_end|>",
        ),
    },
    Shape {
        family: "glm45",
        weather: "<tool_call>get_weather\n@</tool_call>",
        arguments: "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n",
        wrong: &[
            "",
            "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>two</arg_value>\n",
        ],
        now: "<tool_call>now\n</tool_call>",
        around: ("", "\n", ""),
    },
    Shape {
        family: "qwen3_coder",
        weather: "<tool_call>\n<function=get_weather>\n@</function>\n</tool_call>",
        arguments: "<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n",
        wrong: &[
            "",
            "<parameter=city>\nParis\n</parameter>\n<parameter=days>\ntwo\n</parameter>\n",
            "<parameter=city>\nParis\n</parameter>\n<parameter=units>\nK\n</parameter>\n",
        ],
        now: "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        around: ("", "\n", ""),
    },
    Shape {
        family: "pythonic",
        weather: "get_weather(@)",
        arguments: "city=\"Paris\", days=2",
        wrong: &[
            "",
            "city=1",
            "city=\"Paris\", days=\"2\"",
            "days=2",
            "city=\"Paris\", units=\"K\"",
        ],
        now: "now()",
        around: ("[", ", ", "]"),
    },
];

#[test]
fn a_required_call_is_written_in_the_familys_format() {
    for shape in SHAPES {
        let (before, between, after) = shape.around;
        let weather = shape.weather.replace('@', shape.arguments);
        let one = format!("{before}{weather}{after}");
        let two = format!("{before}{weather}{between}{}{after}", shape.now);
        let family = shape.family;
        for (vocabulary, lark) in required(family, true) {
            assert!(vocabulary.accepts(&lark, &one), "{family}: {one}\n{lark}");
            assert!(vocabulary.accepts(&lark, &two), "{family}: {two}\n{lark}");
            assert!(
                vocabulary.accepts(&lark, &format!("<think>\nHm.</think>\n\n{one}")),
                "{family}"
            );
            assert!(
                !vocabulary.accepts(&lark, &format!("Well {one}")),
                "{family}"
            );
            assert!(!vocabulary.accepts(&lark, ""), "{family}");
            assert!(
                !vocabulary.accepts(&lark, &one.replace("get_weather", "rm")),
                "{family}"
            );
            for wrong in shape.wrong {
                let text = format!("{before}{}{after}", shape.weather.replace('@', wrong));
                assert!(
                    !vocabulary.accepts(&lark, &text),
                    "{family}: {text}\n{lark}"
                );
            }
        }
        for (vocabulary, lark) in required(family, false) {
            assert!(vocabulary.accepts(&lark, &one), "{family}");
            assert!(!vocabulary.accepts(&lark, &two), "{family}");
        }
        let answer = collect(parse(dialect(family), options(Release::Whole), &[&two]));
        let weather = json!({"city": "Paris", "days": 2});
        let expected = [
            ("get_weather".to_owned(), weather),
            ("now".to_owned(), json!({})),
        ];
        assert_eq!(read(&answer), expected, "{family}: {two}");
    }
}

#[test]
fn llamas_call_is_the_whole_answer() {
    for (vocabulary, lark) in required("llama3_json", true) {
        let one = format!("{{\"name\": \"get_weather\", \"parameters\": {JSON}}}");
        assert!(vocabulary.accepts(&lark, &one), "{lark}");
        assert!(!vocabulary.accepts(&lark, &format!("{one}; {one}")));
        assert!(!vocabulary.accepts(&lark, "{\"name\": \"get_weather\", \"parameters\": {}}"));
    }
}

#[test]
fn a_named_function_is_the_only_one() {
    let choice = json!({"type": "function", "function": {"name": "now"}});
    let grammars =
        both(dialect("hermes"), &tools(), &choice, true, false).expect("can be constrained");
    for (vocabulary, lark) in grammars {
        let lark = lark.expect("there is one");
        let call = |name: &str, arguments: &str| {
            format!(
                "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>"
            )
        };
        assert!(vocabulary.accepts(&lark, &call("now", "{}")));
        assert!(!vocabulary.accepts(&lark, &call("get_weather", JSON)));
    }
}

#[test]
fn reasoning_that_the_prompt_has_begun_comes_first() {
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let grammars = both(dialect("hermes"), &tools(), &json!("required"), true, true)
        .expect("can be constrained");
    for (vocabulary, lark) in grammars {
        let lark = lark.expect("there is one");
        assert!(
            vocabulary.accepts(&lark, &format!("Hm, let me <see>.\n</think>\n\n{call}")),
            "{lark}"
        );
        assert!(!vocabulary.accepts(&lark, call));
    }
}

/// One function with these parameters.
fn one(parameters: &Value, strict: bool) -> Tools {
    Tools::check(&json!([{"type": "function", "function": {"name": "f", "strict": strict, "parameters": parameters}}]))
        .expect("is well")
}

#[test]
fn strict_functions_are_held_to_their_schema_even_where_the_model_may_answer() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    let tools = one(&schema, true);
    for shape in SHAPES.iter().filter(|shape| shape.family != "pythonic") {
        let family = shape.family;
        let grammars =
            both(dialect(family), &tools, &json!("auto"), true, false).expect("can be constrained");
        for (vocabulary, lark) in grammars {
            let lark = lark.expect("there is one");
            assert!(
                vocabulary.accepts(&lark, "It is { [ < now."),
                "{family}\n{lark}"
            );
            assert!(vocabulary.accepts(&lark, ""), "{family}");
            let (before, _, after) = shape.around;
            let call = |value: &str| {
                let arguments = match family {
                    "glm45" => format!("<arg_key>n</arg_key>\n<arg_value>{value}</arg_value>\n"),
                    "qwen3_coder" => format!("<parameter=n>\n{value}\n</parameter>\n"),
                    _ => format!("{{\"n\": {value}}}"),
                };
                let weather = shape.weather.replace("get_weather", "f");
                format!("It is {before}{}{after}", weather.replace('@', &arguments))
            };
            assert!(
                vocabulary.accepts(&lark, &call("1")),
                "{family} {}\n{lark}",
                call("1")
            );
            assert!(!vocabulary.accepts(&lark, &call("x")), "{family}");
            if shape.around.0.is_empty() {
                assert!(
                    vocabulary.accepts(&lark, &format!("{}\n{}", call("1"), call("2"))),
                    "{family}"
                );
            }
        }
    }
    let error = both(dialect("pythonic"), &tools, &json!("auto"), true, false).err();
    assert!(matches!(error, Some(CannotConstrain::StrictAuto { .. })));
}

#[test]
fn without_need_there_is_no_grammar() {
    for choice in [json!("auto"), json!("none"), Value::Null] {
        let grammars =
            both(dialect("hermes"), &tools(), &choice, true, false).expect("can be constrained");
        assert!(grammars.iter().all(|(_, lark)| lark.is_none()));
    }
    let none = Dialect::default();
    assert!(both(none, &tools(), &json!("auto"), true, false).is_ok());
    let error = both(none, &tools(), &json!("required"), true, false).err();
    assert_eq!(error, Some(CannotConstrain::NoCalls));
}

#[test]
fn what_plain_text_cannot_be_held_to_is_refused_for_strict_functions() {
    let cases = [
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^x"}}}),
            "pattern",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}),
            "minLength",
        ),
        (
            json!({"type": "object", "properties": {"a": {"enum": [1, "x"]}}}),
            "enum",
        ),
        (
            json!({"type": "object", "properties": {"a": {}}, "minProperties": 1}),
            "minProperties",
        ),
        (
            json!({"type": "object", "properties": {}, "required": ["a"]}),
            "required",
        ),
        (
            json!({"type": "object", "properties": {"a<": {}}}),
            "properties",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "additionalProperties",
        ),
    ];
    for (schema, keyword) in &cases {
        for family in ["glm45", "qwen3_coder"] {
            let error = both(
                dialect(family),
                &one(schema, true),
                &json!("required"),
                true,
                false,
            )
            .err();
            let Some(CannotConstrain::Schema { keyword: found, .. }) = error else {
                panic!("{schema} for {family}: {error:?}");
            };
            assert_eq!(&found, keyword);
            let lenient = both(
                dialect(family),
                &one(schema, false),
                &json!("required"),
                true,
                false,
            );
            for (vocabulary, lark) in lenient.expect("can be constrained") {
                vocabulary.matcher(&lark.expect("there is one"));
            }
        }
    }
}

#[test]
fn definitions_are_followed() {
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"type": "boolean"}},
        "required": ["a"], "$defs": {"n": {"type": "integer"}}});
    for (family, text, wrong) in [
        ("pythonic", "[f(a=1, b=True)]", "[f(a=True)]"),
        (
            "qwen3_coder",
            "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
            "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "hermes",
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"1\"}}\n</tool_call>",
        ),
    ] {
        let grammars = both(
            dialect(family),
            &one(&schema, true),
            &json!("required"),
            false,
            false,
        );
        for (vocabulary, lark) in grammars.expect("can be constrained") {
            let lark = lark.expect("there is one");
            assert!(vocabulary.accepts(&lark, text), "{family}\n{lark}");
            assert!(!vocabulary.accepts(&lark, wrong), "{family}\n{lark}");
        }
    }
}

/// Writes whatever a grammar lets through, leaning towards ends; nothing where it came to none.
fn walk(vocabulary: &Vocabulary, lark: &str, random: &mut impl FnMut() -> usize) -> Option<String> {
    const ENDS: &[&str] = &[
        "\"",
        "}",
        ")",
        "]",
        "</parameter>",
        "</arg_value>",
        "</think>",
    ];
    let mut matcher = vocabulary.matcher(lark);
    let mut written = Vec::new();
    for _ in 0..800 {
        if matcher.is_accepting().expect("the matcher is well") && !random().is_multiple_of(3) {
            return Some(vocabulary.decode(&written));
        }
        let end = vocabulary.encode(ENDS[random() % ENDS.len()]);
        let mask = matcher.compute_mask_or_eos().expect("the matcher is well");
        let mut allowed: Vec<u32> = mask.iter().collect();
        // Other characters only where there is no choice.
        if allowed.iter().any(|&token| token < 128) {
            allowed.retain(|&token| !(128..=END).contains(&token));
        }
        allowed.retain(|&token| token != END);
        if random().is_multiple_of(4)
            && matcher
                .validate_tokens(&end)
                .is_ok_and(|taken| taken == end.len())
        {
            matcher.consume_tokens(&end).expect("is allowed");
            written.extend(end);
        } else if let Some(&token) = allowed.get(random() % allowed.len().max(1)) {
            matcher.consume_token(token).expect("is allowed");
            written.push(token);
        } else {
            return None;
        }
    }
    None
}

/// Whether there is a number that serde_json cannot hold.
fn too_large(json: &str) -> bool {
    let read = serde_json::from_str::<Value>(json);
    read.is_err_and(|error| error.to_string().starts_with("number out of range"))
}

#[test]
fn whatever_a_grammar_lets_through_is_read_as_valid_calls() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize
    };
    let families = SHAPES
        .iter()
        .map(|shape| shape.family)
        .chain(["llama3_json"]);
    for family in families {
        for (vocabulary, lark) in required(family, true) {
            let mut done = 0;
            for _ in 0..12 {
                let Some(text) = walk(&vocabulary, &lark, &mut random) else {
                    continue;
                };
                done += 1;
                let answer = collect(parse(dialect(family), options(Release::Whole), &[&text]));
                assert_eq!(answer.content, "", "{family}: {text}");
                assert!(!answer.calls.is_empty(), "{family}: {text}");
                if answer.calls.iter().any(|(_, json)| too_large(json)) {
                    continue;
                }
                for (name, arguments) in read(&answer) {
                    let fits = match name.as_str() {
                        "get_weather" => {
                            arguments["city"].is_string()
                                && arguments.get("days").is_none_or(Value::is_number)
                                && arguments
                                    .get("units")
                                    .is_none_or(|units| *units == "C" || *units == "F")
                        }
                        _ => arguments == json!({}),
                    };
                    assert!(fits, "{family}: {text}");
                }
            }
            assert!(done > 1, "{family}: {done} walks came to an end\n{lark}");
        }
    }
}
