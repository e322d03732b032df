//! An answer's text, against what is computed on the whole of it.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use tandem_text::{AnswerText, TextModel};

use crate::made::{self, BEGIN, BYTES, END, TOOL};

static MODEL: LazyLock<Arc<TextModel>> = LazyLock::new(made::model);

/// Pieces as they came, and whether the answer stopped.
fn run(stops: &[&str], tokens: &[u32]) -> (Vec<String>, bool) {
    let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
    let mut answer = AnswerText::new(MODEL.clone(), stops);
    let mut pieces = Vec::new();
    let mut stopped = false;
    for &token in tokens {
        let pushed = answer.push(token);
        assert!(!stopped || (pushed.stopped && pushed.text.is_empty()));
        stopped = pushed.stopped;
        pieces.push(pushed.text);
    }
    pieces.push(answer.finish());
    (pieces, stopped)
}

fn bytes(text: &[u8]) -> Vec<u32> {
    text.iter().map(|&byte| BYTES + u32::from(byte)).collect()
}

/// The text up to the stop text that is complete first, the longest of those that end there.
fn reference(text: &str, stops: &[String]) -> (String, bool) {
    for end in 0..=text.len() {
        let Some(head) = text.get(..end) else {
            continue;
        };
        let found = stops
            .iter()
            .filter(|stop| !stop.is_empty() && head.ends_with(stop.as_str()))
            .max_by_key(|stop| stop.len());
        if let Some(stop) = found {
            return (head[..end - stop.len()].to_owned(), true);
        }
    }
    (text.to_owned(), false)
}

#[test]
fn a_character_waits_for_its_last_byte() {
    let (pieces, _) = run(&[], &bytes("aé😀".as_bytes()));
    assert_eq!(pieces, ["a", "", "é", "", "", "", "😀", ""]);
}

#[test]
fn bytes_that_can_no_longer_be_a_character_are_replaced_at_once() {
    let (pieces, _) = run(&[], &bytes(b"\xF0\x9F\x41\xFF\xC3"));
    assert_eq!(pieces, ["", "", "\u{FFFD}A", "\u{FFFD}", "", "\u{FFFD}"]);
}

#[test]
fn special_and_unknown_tokens_have_no_text_and_user_defined_ones_have() {
    let (pieces, _) = run(&[], &[BEGIN, TOOL, 1 << 30, END]);
    assert_eq!(pieces, ["", "<tool>", "", "", ""]);
}

#[test]
fn the_beginning_of_a_stop_text_is_held_until_it_is_none() {
    let (pieces, stopped) = run(&["END"], &bytes(b"xENEND y"));
    assert_eq!(pieces, ["x", "", "", "EN", "", "", "", "", ""]);
    assert!(stopped);
    let (pieces, stopped) = run(&["END"], &bytes(b"xEN"));
    assert_eq!(pieces, ["x", "", "", "EN"]);
    assert!(!stopped);
}

#[test]
fn of_two_stop_texts_the_one_complete_first_counts() {
    let text = bytes(b"abcdef");
    assert_eq!(run(&["abcdef", "cd"], &text).0.concat(), "ab");
    assert_eq!(run(&["d", "bcd"], &text).0.concat(), "a");
    // In one token as in many.
    assert_eq!(run(&["ool", "<tool>"], &[TOOL]).0.concat(), "<t");
}

#[test]
fn the_stop_text_that_ended_the_answer_is_told() {
    let stops = ["xyz", "cd", "bcd"].map(str::to_owned).to_vec();
    let mut answer = AnswerText::new(MODEL.clone(), stops);
    for token in bytes(b"abc") {
        answer.push(token);
    }
    assert_eq!(answer.stop_text(), None);
    answer.push(BYTES + u32::from(b'd'));
    assert_eq!(answer.stop_text(), Some("bcd"));
    answer.finish();
    assert_eq!(answer.stop_text(), Some("bcd"));
}

#[test]
fn an_empty_stop_text_stops_nothing() {
    assert_eq!(run(&[""], &bytes(b"ab")).0.concat(), "ab");
}

fn any_tokens() -> impl Strategy<Value = Vec<u32>> {
    let byte = prop_oneof![
        (BYTES..BYTES + 256),
        proptest::sample::select(bytes("é日😀\u{301}".as_bytes())),
        Just(BYTES + u32::from(b'a')),
        (0..MODEL.vocabulary() + 2),
    ];
    proptest::collection::vec(byte, 0..80)
}

/// Tokens, and texts, of a small alphabet: a, b, é and the bytes of é.
fn small() -> impl Strategy<Value = (Vec<u32>, Vec<String>)> {
    let stop = proptest::collection::vec(
        proptest::sample::select(vec!['a', 'b', 'é', '\u{FFFD}']),
        0..5,
    )
    .prop_map(String::from_iter);
    let token = proptest::sample::select(
        bytes(b"abaab\xC3\xA9\xC3\xA9")
            .into_iter()
            .chain([END])
            .collect::<Vec<_>>(),
    );
    (
        proptest::collection::vec(token, 0..60),
        proptest::collection::vec(stop, 0..4),
    )
}

fn whole(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens
        .iter()
        .filter(|&&token| !MODEL.is_special(token))
        .flat_map(|&token| MODEL.token_bytes(token))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text of tokens, less bytes at the end that may yet become a character.
fn certain(tokens: &[u32]) -> String {
    let text = whole(tokens);
    let more = whole(&[tokens, &bytes(b"\xA9")].concat());
    // One more byte either completes the character at the end or is wrong by itself.
    if more == format!("{text}\u{FFFD}") {
        return text;
    }
    text.strip_suffix('\u{FFFD}').unwrap_or(&text).to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn without_stops_the_pieces_are_the_whole_text(tokens in any_tokens()) {
        let (pieces, stopped) = run(&[], &tokens);
        prop_assert_eq!(pieces.concat(), whole(&tokens));
        prop_assert!(!stopped);
    }

    #[test]
    fn with_stops_the_pieces_end_before_the_first((tokens, stops) in small()) {
        let text = whole(&tokens);
        let (expected, stops_in_text) = reference(&text, &stops);
        let borrowed: Vec<&str> = stops.iter().map(String::as_str).collect();
        let (pieces, stopped) = run(&borrowed, &tokens);
        prop_assert_eq!(pieces.concat(), expected);
        // The end alone may complete a stop text (with U+FFFD); nothing is pushed after it.
        prop_assert!(!stopped || stops_in_text);
    }

    /// The first tokens end nothing, but may begin a stop text.
    #[test]
    fn of_the_first_tokens_none_completes_a_stop_text((tokens, stops) in small(), first in 0usize..60) {
        let first = first.min(tokens.len());
        let mut answer = AnswerText::new(MODEL.clone(), stops.clone());
        let mut given = String::new();
        for (index, &token) in tokens.iter().enumerate() {
            let pushed = match index < first {
                true => answer.push_through(token),
                false => answer.push(token),
            };
            prop_assert!(index >= first || !pushed.stopped);
            given += &pushed.text;
        }
        given += &answer.finish();
        let text = whole(&tokens);
        let through = certain(&tokens[..first]).len();
        let end = (through + 1..=text.len()).find(|end| {
            let head = text.get(..*end);
            let ends = |stop: &&String| !stop.is_empty() && head.is_some_and(|h| h.ends_with(*stop));
            stops.iter().any(|stop| ends(&stop))
        });
        let want = end.map(|end| {
            let head = &text[..end];
            let found = stops.iter().filter(|s| !s.is_empty() && head.ends_with(s.as_str()));
            &text[..end - found.map(String::len).max().unwrap()]
        });
        prop_assert_eq!(given, want.unwrap_or(&text));
    }

    /// What is held back is exactly the longest beginning of a stop text at the end of the text.
    #[test]
    fn just_the_longest_possible_beginning_of_a_stop_is_held((tokens, stops) in small()) {
        let mut answer = AnswerText::new(MODEL.clone(), stops.clone());
        let mut given = String::new();
        for (index, &token) in tokens.iter().enumerate() {
            let pushed = answer.push(token);
            given += &pushed.text;
            if pushed.stopped {
                break;
            }
            let so_far = certain(&tokens[..=index]);
            let held = stops
                .iter()
                .flat_map(|stop| stop.char_indices().map(|(cut, _)| &stop[..cut]))
                .filter(|beginning| so_far.ends_with(beginning))
                .map(str::len)
                .max()
                .unwrap_or(0);
            prop_assert_eq!(&given, &so_far[..so_far.len() - held]);
        }
    }

    #[test]
    fn how_the_text_is_cut_does_not_matter(text in "[ab1 2é😀]{0,40}", stop in "[ab1 2é]{1,3}") {
        let tokens = MODEL.encode(&text);
        prop_assert_eq!(whole(&tokens), text.clone());
        let whole = run(&[&stop], &tokens).0.concat();
        let single = run(&[&stop], &bytes(text.as_bytes())).0.concat();
        prop_assert_eq!(whole, single);
    }
}
