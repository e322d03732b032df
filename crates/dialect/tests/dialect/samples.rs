//! An answer with two calls in each family's format, and what has to come of it.

use serde_json::{Value, json};
use tandem_dialect::{Delta, Dialect, Options, Parser, Release, Tools};

/// The functions of all tests.
pub(crate) fn tools() -> Tools {
    Tools::check(&json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"enum": ["C", "F"]}},
            "required": ["city"]}}},
        {"type": "function", "function": {"name": "now"}},
    ]))
    .expect("the functions are well")
}

/// Family, text, the content that stands before the calls. The calls are `get_weather` and `now`.
pub(crate) struct Sample {
    pub(crate) family: &'static str,
    pub(crate) text: &'static str,
    pub(crate) content: &'static str,
}

pub(crate) const SAMPLES: &[Sample] = &[
    Sample {
        family: "hermes",
        text: "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris <\\\"é\", \"days\": 2}}\n\
               </tool_call>\n<tool_call>\n{\"arguments\": {}, \"name\": \"now\"}\n</tool_call>\n",
        content: "I look.\n",
    },
    Sample {
        family: "granite",
        text: "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris <\\\"é\", \"days\": 2}}, \
               {\"name\": \"now\", \"arguments\": {}}]",
        content: "",
    },
    Sample {
        family: "phi4_mini",
        text: "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris <\\\"é\", \"days\": 2}}, \
               {\"name\": \"now\", \"arguments\": {}}]",
        content: "",
    },
    Sample {
        family: "mistral",
        text: "I look.[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris <\\\"é\", \"days\": 2}, \
               \"id\": \"123456789\"}, {\"name\": \"now\", \"arguments\": {}}]",
        content: "I look.",
    },
    Sample {
        family: "mistral",
        text: "I look.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris <\\\"é\", \"days\": 2}[TOOL_CALLS]now{}",
        content: "I look.",
    },
    Sample {
        family: "deepseek_v3",
        text: "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n\
               {\"city\": \"Paris <\\\"é\", \"days\": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>\
               now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        content: "I look.",
    },
    Sample {
        family: "deepseek_v31",
        text: "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>\
               {\"city\": \"Paris <\\\"é\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}\
               <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        content: "I look.",
    },
    Sample {
        family: "kimi_k2",
        text: "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>\
               {\"city\": \"Paris <\\\"é\", \"days\": 2}<|tool_call_end|><|tool_call_begin|>functions.now:1\
               <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        content: "I look.",
    },
    Sample {
        family: "glm45",
        text: "I look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris <\"é</arg_value>\n\
               <arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        content: "I look.\n",
    },
    Sample {
        family: "qwen3_coder",
        text: "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis <\"é\n</parameter>\n<parameter=days>\n\
               2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        content: "I look.\n",
    },
    Sample {
        family: "llama3_json",
        text: "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris <\\\"é\", \"days\": 2}}; \
               {\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
        content: "",
    },
    Sample {
        family: "llama3_json",
        text: "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris <\\\"é\", \"days\": 2}}; \
               {\"name\": \"now\", \"parameters\": {}}",
        content: "",
    },
    Sample {
        family: "pythonic",
        text: "[get_weather(city='Paris <\"é', days=2), now()]",
        content: "",
    },
    Sample {
        family: "pythonic",
        text: "<|python_start|>[get_weather(city=\"Paris <\\\"é\", days = 2,), now( )]<|python_end|>",
        content: "",
    },
];

/// The arguments of the samples' calls.
pub(crate) fn expected() -> Vec<(String, Value)> {
    vec![
        (
            "get_weather".to_owned(),
            json!({"city": "Paris <\"é", "days": 2}),
        ),
        ("now".to_owned(), json!({})),
    ]
}

/// A dialect with the calls of this family and `<think>`.
pub(crate) fn dialect(family: &str) -> Dialect {
    Dialect::default()
        .with_tools(family)
        .and_then(|dialect| dialect.with_reasoning("think"))
        .expect("is known")
}

pub(crate) fn options(release: Release) -> Options {
    Options {
        tools: tools(),
        parallel: true,
        release,
        reasoning: false,
    }
}

pub(crate) fn parse(dialect: Dialect, options: Options, pieces: &[&str]) -> Vec<Delta> {
    let mut parser = Parser::new(dialect, options);
    let mut deltas = Vec::new();
    for piece in pieces {
        deltas.extend(parser.push(piece));
    }
    deltas.extend(parser.finish());
    deltas
}

/// Deltas with neighbours of one kind joined: what does not depend on how they were given out.
pub(crate) fn join(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut joined: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (joined.last_mut(), delta) {
            (Some(Delta::Content(text)), Delta::Content(more))
            | (Some(Delta::Reasoning(text)), Delta::Reasoning(more)) => text.push_str(&more),
            (
                Some(Delta::Arguments { index, json }),
                Delta::Arguments {
                    index: same,
                    json: more,
                },
            ) => {
                assert_eq!(*index, same);
                json.push_str(&more);
            }
            (_, delta) => joined.push(delta),
        }
    }
    joined
}

/// What an API makes of deltas.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) ids: Vec<Option<String>>,
    pub(crate) complete: Vec<bool>,
}

/// Checks the order of deltas as it collects them.
pub(crate) fn collect(deltas: Vec<Delta>) -> Answer {
    let mut answer = Answer::default();
    let mut open = None;
    for delta in deltas {
        match delta {
            Delta::Content(text) => {
                assert!(open.is_none() && !text.is_empty());
                answer.content += &text;
            }
            Delta::Reasoning(text) => {
                assert!(open.is_none() && !text.is_empty());
                answer.reasoning += &text;
            }
            Delta::CallStart { index, id, name } => {
                assert_eq!((open, index), (None, answer.calls.len()));
                open = Some(index);
                answer.ids.push(id);
                answer.calls.push((name, String::new()));
            }
            Delta::Arguments { index, json } => {
                assert_eq!(open, Some(index));
                answer.calls[index].1 += &json;
            }
            Delta::CallEnd { index, complete } => {
                assert_eq!(open.take(), Some(index));
                answer.complete.push(complete);
            }
        }
    }
    assert_eq!(open, None, "every call ends");
    answer
}

/// The calls with their arguments read.
pub(crate) fn read(answer: &Answer) -> Vec<(String, Value)> {
    let calls = answer.calls.iter();
    calls
        .map(|(name, json)| {
            let arguments = serde_json::from_str(json).unwrap_or_else(|_| panic!("{json} is JSON"));
            (name.clone(), arguments)
        })
        .collect()
}
