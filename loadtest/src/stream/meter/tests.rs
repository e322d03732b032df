use super::*;

fn text(tokens: &str) -> String {
    format!(
        r#"{{"choices":[{{"delta":{{"content":"{tokens}"}},"finish_reason":null}}],"usage":null}}"#
    )
}

fn text_and_usage(tokens: &str, count: u64) -> String {
    format!(
        r#"{{"choices":[{{"delta":{{"content":"{tokens}"}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":{count}}}}}"#
    )
}

fn usage(count: u64) -> String {
    format!(r#"{{"choices":[],"usage":{{"prompt_tokens":9,"completion_tokens":{count}}}}}"#)
}

const ROLE: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
const FINISH: &str = r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#;
const DONE: &str = "[DONE]";

fn times(events: &[(u64, &str)]) -> Result<AnswerTimes, StreamError> {
    let mut meter = Meter::new(false);
    for (at, data) in events {
        meter.push(*at, format!("data: {data}\n\n").as_bytes())?;
    }
    meter.finish()
}

#[test]
fn the_role_is_no_token_and_each_gap_is_an_itl_where_events_are_tokens() {
    let a = text("a");
    let events = [
        (1, ROLE),
        (100, &a),
        (110, &a),
        (140, &a),
        (141, FINISH),
        (142, &usage(3)),
        (143, DONE),
    ];
    let times = times(&events).unwrap();
    assert_eq!((times.ttft_us, times.last_token_us), (100, 140));
    assert_eq!(times.gaps_us, [10, 30]);
    assert_eq!(times.itl_us, [(10, 1), (30, 1)]);
    assert_eq!(times.tpot_us, Some(20.0));
    assert_eq!(
        (times.output_tokens, times.token_source),
        (3, TokenSource::Usage)
    );
    assert_eq!(times.input_tokens, Some(9));
    assert_eq!(times.finish_reason.as_deref(), Some("length"));
}

#[test]
fn bundled_tokens_share_their_gap_by_the_events_own_usage() {
    let (a, b, c) = (
        text_and_usage("a b", 2),
        text_and_usage("c d e", 5),
        text_and_usage("f", 6),
    );
    let events = [
        (100, a.as_str()),
        (160, &b),
        (180, &c),
        (181, FINISH),
        (182, &usage(6)),
        (183, DONE),
    ];
    let times = times(&events).unwrap();
    assert_eq!(times.gaps_us, [60, 20]);
    assert_eq!(times.itl_us, [(20, 3), (20, 1)]);
    // Four tokens after the first event, not five: two came with it.
    assert_eq!(times.tpot_us, Some(20.0));
    assert_eq!(
        (times.output_tokens, times.token_source),
        (6, TokenSource::ChunkUsage)
    );
}

#[test]
fn bundled_tokens_without_their_own_usage_are_spread_evenly() {
    let a = text("a b");
    let events = [
        (100, a.as_str()),
        (140, &a),
        (180, &a),
        (181, FINISH),
        (182, &usage(6)),
        (183, DONE),
    ];
    let times = times(&events).unwrap();
    assert_eq!(times.itl_us, [(20, 2), (20, 2)]);
    assert_eq!(times.tpot_us, Some(20.0));
    assert_eq!(times.token_source, TokenSource::UsageSpread);
}

#[test]
fn more_events_than_tokens_give_no_more_itls_than_tokens() {
    let a = text("a");
    let events = [
        (10, a.as_str()),
        (20, &a),
        (30, &a),
        (40, &a),
        (41, FINISH),
        (42, &usage(2)),
        (43, DONE),
    ];
    let times = times(&events).unwrap();
    assert_eq!(times.gaps_us, [10, 10, 10]);
    assert_eq!(times.itl_us.iter().map(|(_, n)| n).sum::<u32>(), 2);
    assert_eq!(
        times
            .itl_us
            .iter()
            .map(|(us, n)| us * u64::from(*n))
            .sum::<u64>(),
        30
    );
}

#[test]
fn a_token_that_a_parser_holds_back_is_the_first_one_by_its_usage() {
    let (held, a) = (text_and_usage("", 1), text_and_usage("a b", 3));
    let events = [
        (1, ROLE),
        (50, &held),
        (80, &a),
        (81, FINISH),
        (82, &usage(3)),
        (83, DONE),
    ];
    let times = times(&events).unwrap();
    assert_eq!(times.ttft_us, 50);
    assert_eq!(times.itl_us, [(15, 2)]);
}

#[test]
fn without_usage_events_are_counted_and_that_is_said() {
    let a = text("a");
    let times = times(&[(10, a.as_str()), (20, &a), (21, FINISH)]).unwrap();
    assert_eq!(
        (times.output_tokens, times.token_source),
        (2, TokenSource::Chunks)
    );
    assert_eq!(times.input_tokens, None);
}

#[test]
fn usage_in_the_event_that_ends_the_answer_is_the_last_one_not_a_bundle() {
    let a = text("a");
    let both = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    let times = times(&[(10, a.as_str()), (20, &a), (21, both), (22, DONE)]).unwrap();
    assert_eq!(times.gaps_us, [10]);
    assert_eq!(times.token_source, TokenSource::Usage);
}

#[test]
fn usage_that_only_some_events_have_does_not_tell_the_others_tokens() {
    let (with, without) = (text_and_usage("a", 1), text("a"));
    let events = |all: u64| {
        let last = usage(all);
        let events = [
            (10, with.as_str()),
            (20, &without),
            (30, &without),
            (31, FINISH),
            (32, &last),
            (33, DONE),
        ];
        times(&events).unwrap()
    };
    let even = events(3);
    assert_eq!(even.token_source, TokenSource::Usage);
    assert_eq!(even.itl_us, [(10, 1), (10, 1)]);
    assert_eq!(events(6).token_source, TokenSource::UsageSpread);
}

#[test]
fn what_the_server_had_of_the_prompt_in_its_cache_is_told_apart_from_its_length() {
    let cached = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let a = text("a");
    let times = times(&[(10, a.as_str()), (11, FINISH), (12, cached), (13, DONE)]).unwrap();
    assert_eq!(
        (times.input_tokens, times.cached_tokens),
        (Some(9), Some(4))
    );
}

#[test]
fn an_answer_of_one_token_has_no_tpot() {
    let times = times(&[
        (10, text("a").as_str()),
        (11, FINISH),
        (12, &usage(1)),
        (13, DONE),
    ])
    .unwrap();
    assert_eq!((times.tpot_us, times.itl_us.len()), (None, 0));
}

#[test]
fn a_stream_that_stops_is_cut_or_empty_is_an_error_that_says_so() {
    let a = text("a");
    assert_eq!(
        times(&[(10, a.as_str())]),
        Err(StreamError::Stopped { events: 1 })
    );
    assert_eq!(times(&[]), Err(StreamError::Stopped { events: 0 }));
    assert_eq!(times(&[(10, ROLE), (11, DONE)]), Err(StreamError::Empty));
    let error = times(&[(10, a.as_str()), (11, "<html>oops")])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("garbage") && error.contains("<html>oops"),
        "{error}"
    );
    let error = times(&[(10, r#"{"error":{"message":"worker gone"}}"#)]).unwrap_err();
    assert_eq!(error, StreamError::Server("worker gone".to_owned()));
}
