//! How each family's calls are written under a grammar.

/// Two calls of a family.
pub(crate) struct Shape {
    pub(crate) family: &'static str,
    /// With `@` where the arguments go.
    pub(crate) weather: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) wrong: &'static [&'static str],
    pub(crate) now: &'static str,
    /// Around all calls, and between two.
    pub(crate) around: (&'static str, &'static str, &'static str),
}

pub(crate) const JSON: &str = "{\"city\": \"Paris\", \"days\": 2}";
pub(crate) const WRONG: &[&str] = &[
    "{}",
    "{\"city\": 1}",
    "{\"city\": \"Paris\", \"days\": \"2\"}",
    "{\"city\": \"Paris\", \"units\": \"K\"}",
    "[]",
];

pub(crate) const SHAPES: &[Shape] = &[
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
