use std::time::Instant;

use proptest::prelude::*;
use tandem_dialect::{Dialect, Options, Release};

use crate::samples::{SAMPLES, collect, dialect, expected, join, options, parse, read};

/// Every dialect that there is, and one of each way to reason.
pub(crate) fn dialects() -> Vec<Dialect> {
    let mut all: Vec<Dialect> = SAMPLES
        .iter()
        .map(|sample| dialect(sample.family))
        .collect();
    for reasoning in ["mistral", "granite", "granite_prose", "none"] {
        all.push(
            dialect("hermes")
                .with_reasoning(reasoning)
                .expect("is known"),
        );
    }
    all
}

fn every_option() -> Vec<Options> {
    let mut all = Vec::new();
    for release in [Release::Whole, Release::Early] {
        for parallel in [true, false] {
            for reasoning in [true, false] {
                all.push(Options {
                    parallel,
                    reasoning,
                    ..options(release)
                });
            }
        }
    }
    all
}

/// Cuts `text` at the characters whose turn has a true.
fn cut<'t>(text: &'t str, cuts: &[bool]) -> Vec<&'t str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for ((at, _), cut) in text.char_indices().zip(cuts.iter().cycle()) {
        if *cut {
            pieces.push(&text[start..at]);
            start = at;
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// Words that parsers look out for, pieces of samples and anything else.
fn text() -> impl Strategy<Value = String> {
    let mut words: Vec<String> = dialects()
        .iter()
        .flat_map(|dialect| dialect.markers().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for sample in SAMPLES {
        words.push(sample.text.to_owned());
        let middle = sample
            .text
            .char_indices()
            .nth(sample.text.chars().count() / 2);
        let (start, end) = sample.text.split_at(middle.map_or(0, |(at, _)| at));
        words.extend([start.to_owned(), end.to_owned()]);
    }
    for word in [
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "\"",
        "\\",
        "\n",
        " ",
        ",",
        ":",
        "get_weather",
        "now",
        "{\"name\": \"now\", ",
        "\"arguments\": {",
        "<function=",
        "</function>",
        "<parameter=",
        "</parameter>",
        "functools[",
        "```json",
        "'",
        "functions.now:0",
        "[now(",
        "a=",
        "1",
        "True",
        "\\u12",
        "-",
        "\0",
        "é",
    ] {
        words.push(word.to_owned());
    }
    let word = prop_oneof![4 => prop::sample::select(words), 1 => "\\PC{0,4}"];
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn how_the_text_is_cut_changes_nothing(text in text(), cuts in prop::collection::vec(any::<bool>(), 1..40)) {
        for dialect in dialects() {
            for options in every_option() {
                let whole = parse(dialect, options.clone(), &[&text]);
                let pieces = parse(dialect, options, &cut(&text, &cuts));
                prop_assert_eq!(join(pieces), join(whole), "{:?} of {:?}", &text, dialect.tools());
            }
        }
    }

    #[test]
    fn samples_are_read_however_they_are_cut(cuts in prop::collection::vec(any::<bool>(), 1..40)) {
        for sample in SAMPLES {
            let answer = collect(parse(dialect(sample.family), options(Release::Whole), &cut(sample.text, &cuts)));
            prop_assert_eq!(read(&answer), expected());
            prop_assert_eq!(&answer.content, sample.content);
        }
    }

    /// Where no call is found, all that is not reasoning comes back as it was.
    #[test]
    fn text_without_calls_comes_back_whole(text in text()) {
        for dialect in dialects() {
            let dialect = dialect.with_reasoning("none").expect("is known");
            let answer = collect(parse(dialect, options(Release::Whole), &[&text]));
            if answer.calls.is_empty() {
                prop_assert_eq!(&answer.content, &text);
            }
        }
    }

    /// Content, calls and the family's framing are all of the text, in its order: with every sample's calls
    /// put between texts that are none, the texts come back exactly.
    #[test]
    fn text_between_calls_comes_back_whole(before in "[a-zé.<|]{1,12}", after in "[a-zé.<|]{1,12}", which in 0..SAMPLES.len()) {
        let sample = &SAMPLES[which];
        let bare = sample.content.is_empty();
        prop_assume!(!sample.text.starts_with(['{', '[']));
        let calls = sample.text.strip_prefix(sample.content).expect("begins so").trim_end();
        let before = if bare { String::new() } else { before };
        let text = format!("{before}{calls}{after}");
        let answer = collect(parse(dialect(sample.family), options(Release::Whole), &[&text]));
        prop_assert_eq!(answer.content, format!("{before}{after}"));
        prop_assert_eq!(answer.calls.len(), 2);
    }

    /// What is given out as a complete call has an object for arguments.
    #[test]
    fn arguments_of_complete_calls_are_objects(text in text()) {
        for dialect in dialects() {
            for release in [Release::Whole, Release::Early] {
                let answer = collect(parse(dialect, options(release), &[&text]));
                for ((_, json), complete) in answer.calls.iter().zip(&answer.complete) {
                    if *complete {
                        let read = serde_json::from_str::<serde_json::Value>(json);
                        prop_assert!(read.is_ok_and(|value| value.is_object()), "{}", json);
                    }
                }
            }
        }
    }
}

/// Twice the text takes about twice the time, with a wide margin: quadratic time would be far beyond.
#[test]
fn a_megabyte_of_anything_takes_linear_time() {
    const SIZE: usize = 1024 * 1024;
    let patterns = [
        "<tool_cal",
        "<tool_call>",
        "<tool_call>{",
        "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [",
        "<function=now>\n<parameter=a>",
        "\n</parameter",
        "<tool_call>{\"name\": \"now\", \"arguments\": {}} ",
        "[",
        "{\"",
        "[now(",
        "<｜tool▁call",
        "[TOOL_CALLS]now",
        "functools[{",
        "<think>",
        "</think",
        " ",
        "\n",
        "'\\",
        "<arg_key>a</arg_key>",
    ];
    let start = Instant::now();
    for pattern in patterns {
        let text = pattern.repeat(SIZE / pattern.len() / 64);
        for sample in SAMPLES {
            parse(dialect(sample.family), options(Release::Whole), &[&text]);
        }
    }
    // One text of the whole size, begun in each way.
    for sample in SAMPLES {
        let half: String = sample
            .text
            .chars()
            .take(sample.text.chars().count() / 2)
            .collect();
        let text = format!("{half}{}", "</para\n<tool_cal".repeat(SIZE / 16));
        let answer = collect(parse(
            dialect(sample.family),
            options(Release::Early),
            &[&text],
        ));
        let arguments: usize = answer.calls.iter().map(|(_, json)| json.len()).sum();
        assert!(answer.content.len() + arguments >= SIZE / 2);
    }
    let seconds = start.elapsed().as_secs();
    assert!(seconds < 120, "{seconds} s");
}
