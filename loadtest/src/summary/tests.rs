//! What is counted of each request, and what two phases come to together.

use super::*;
use crate::record::Failure;
use crate::testing::made::record;

/// An answer of four tokens in two events, after 50 ms.
fn times() -> AnswerTimes {
    AnswerTimes {
        ttft_us: 50_000,
        last_token_us: 80_000,
        tpot_us: Some(10_000.0),
        itl_us: vec![(10_000, 3)],
        gaps_us: vec![30_000],
        output_tokens: 4,
        token_source: TokenSource::ChunkUsage,
        input_tokens: Some(20),
        cached_tokens: Some(5),
        finish_reason: None,
    }
}

/// A request of class `chat` that was answered with that, scheduled at so many microseconds.
fn answered(scheduled_us: u64) -> Record {
    Record {
        class: "chat".to_owned(),
        scheduled_us,
        output_tokens: 4,
        input_tokens: Some(20),
        cached_tokens: Some(5),
        events: 2,
        token_source: Some(TokenSource::ChunkUsage),
        clipped: true,
        ..record(0, 90_000)
    }
}

fn without_answer(outcome: Outcome, message: &str) -> Record {
    Record {
        outcome,
        failure: Some(Failure {
            kind: FailureKind::Status,
            message: message.to_owned(),
        }),
        ..record(1, 1_000)
    }
}

/// One of each outcome, one of them of class `chat`, the first scheduled at so many microseconds.
fn summary(first_us: u64, why: &str) -> Summary {
    let mut phases = Phases::of_classes(&["chat".to_owned(), "default".to_owned()]);
    let summary = &mut phases.measured;
    summary.count(&answered(first_us), Some(&times()));
    for outcome in [Outcome::Rejected, Outcome::Failed, Outcome::Unsent] {
        let record = without_answer(outcome, why);
        let scheduled_us = first_us + 10_000;
        summary.count(
            &Record {
                scheduled_us,
                ..record
            },
            None,
        );
    }
    phases.measured
}

#[test]
fn each_request_is_counted_with_its_tokens_its_class_and_its_times() {
    let found = summary(1_000, "no");
    let counts = found.all.counts;
    assert_eq!((counts.attained, counts.late), (1, 0));
    assert_eq!((counts.rejected, counts.failed, counts.unsent), (1, 1, 1));
    assert_eq!((counts.all(), counts.answered()), (4, 1));
    assert_eq!((found.input_tokens, found.cached_tokens), (20, 5));
    assert_eq!(
        (found.output_tokens, found.events, found.clipped),
        (4, 2, 1)
    );
    assert_eq!(found.token_sources[&TokenSource::ChunkUsage], 1);
    assert_eq!((found.first_us, found.last_us), (Some(1_000), Some(91_000)));
    assert_eq!(found.failures[&FailureKind::Status].count, 3);
    assert_eq!(found.classes["chat"].counts.all(), 1);
    assert_eq!(found.classes["default"].counts.all(), 3);
    let sample = |metric| {
        let metric = &found.all.metrics[&metric];
        (metric.count(), metric.max())
    };
    for (metric, count, ms) in [
        (Metric::Ttft, 1, 50),
        (Metric::Tpot, 1, 10),
        (Metric::Itl, 3, 10),
        (Metric::Gap, 1, 30),
        (Metric::E2e, 1, 90),
    ] {
        let (found, longest) = sample(metric);
        assert_eq!(found, count, "{metric:?}");
        let off = longest.unwrap().abs_diff(ms * 1000);
        assert!(off <= ms, "{metric:?}: {longest:?} is not {ms} ms");
    }
    assert_eq!(sample(Metric::InputTokens), (1, Some(20)));
    assert_eq!(sample(Metric::OutputTokens), (1, Some(4)));
}

#[test]
fn two_summaries_add_up_in_everything() {
    // The later one first, and one whose only class the other does not have.
    let mut sum = summary(50_000, "the first one");
    sum.classes.remove("default");
    sum.add(&summary(1_000, "the second one"));
    let counts = sum.all.counts;
    assert_eq!((counts.attained, counts.late), (2, 0));
    assert_eq!((counts.rejected, counts.failed, counts.unsent), (2, 2, 2));
    assert_eq!((sum.input_tokens, sum.cached_tokens), (40, 10));
    assert_eq!((sum.output_tokens, sum.events, sum.clipped), (8, 4, 2));
    assert_eq!(sum.token_sources[&TokenSource::ChunkUsage], 2);
    assert_eq!((sum.first_us, sum.last_us), (Some(1_000), Some(140_000)));
    assert!((sum.span_s() - 0.139).abs() < 1e-9, "{}", sum.span_s());
    let failures = &sum.failures[&FailureKind::Status];
    assert_eq!((failures.count, &*failures.example), (6, "the first one"));
    assert_eq!(sum.classes["chat"].counts.all(), 2);
    assert_eq!(sum.classes["default"].counts.all(), 3);
    assert_eq!(sum.all.metrics[&Metric::Itl].count(), 6);
    // Kinds that only one of them has.
    let mut other = summary(0, "no");
    other.failures = std::iter::once((
        FailureKind::Timeout,
        Failures {
            count: 3,
            example: "too long".to_owned(),
        },
    ))
    .collect();
    sum.add(&other);
    assert_eq!(sum.failures[&FailureKind::Timeout].count, 3);
}

#[test]
fn phases_are_counted_apart_and_added_each_to_its_own() {
    let mut phases = Phases::default();
    for (phase, count) in [
        (Phase::WarmUp, 1),
        (Phase::Measured, 2),
        (Phase::CoolDown, 4),
    ] {
        for _ in 0..count {
            let record = Record {
                phase,
                ..answered(0)
            };
            phases.count(&record, Some(&times()));
        }
    }
    let of = |phases: &Phases| {
        let all = [&phases.warm_up, &phases.measured, &phases.cool_down];
        all.map(|summary| summary.all.counts.all())
    };
    assert_eq!(of(&phases), [1, 2, 4]);
    assert_eq!((phases.requests(), phases.events()), (7, 14));
    let other = phases.clone();
    phases.add(&other);
    assert_eq!(of(&phases), [2, 4, 8]);
}
