//! A policy's reasons, for operators.

use serde_json::{Map, Value, json};
use tandem_core::WorkerId;
use tandem_core::pairing::{Filtered, NoPair, NoPairReason, Pair, Shown, StageWhy, Why};

use super::decision::ms;

/// What a policy answers, with the figures of all that it looked at.
pub(crate) fn answer(answer: &Result<Pair, NoPair>) -> Value {
    let (mut value, why) = match answer {
        Ok(pair) => (
            json!({
                "decode": pair.decode.as_str(),
                "prefill": pair.prefill.as_ref().map(WorkerId::as_str),
                "cached_tokens": pair.cached_tokens,
                "no_pair": null,
            }),
            &pair.why,
        ),
        Err(none) => (
            json!({
                "decode": null,
                "prefill": null,
                "cached_tokens": null,
                "no_pair": no_pair(none.reason),
            }),
            &none.why,
        ),
    };
    value["why"] = json!(why.to_string());
    value["choice"] = choice(why);
    value
}

fn no_pair(reason: NoPairReason) -> String {
    match reason {
        NoPairReason::NoRoom(stage) => format!("no {} worker has room now", stage.as_str()),
        NoPairReason::NoWorker(stage) => format!("no {} worker takes it", stage.as_str()),
        NoPairReason::TooLate(late) => late.to_string(),
    }
}

/// How both workers were chosen: the figures of the candidates, and who was none.
pub(super) fn choice(why: &Why) -> Value {
    json!({
        "decode": stage(&why.decode),
        "prefill": why.prefill.as_ref().map(stage),
        "local": why.local.map(|local| local.as_str()),
        "pairs_compared": why.pairs,
        "predicted_ttft_ms": why.ttft.map(ms),
        "predicted_tpot_ms": why.tpot.map(ms),
    })
}

fn stage(why: &StageWhy) -> Value {
    let counts = Filtered::ALL.iter().zip(why.filtered);
    let counts: Map<String, Value> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(why, count)| (why.as_str().to_owned(), json!(count)))
        .collect();
    let out = why.out.iter();
    let out = out.map(|(worker, why)| json!({"worker": worker.as_str(), "why": why.as_str()}));
    json!({
        "rule": why.rule,
        "score": "the higher the better",
        "candidates": why.candidates,
        "shown": why.shown.iter().map(shown).collect::<Vec<_>>(),
        "filtered": counts,
        "filtered_out": out.collect::<Vec<_>>(),
    })
}

fn shown(candidate: &Shown) -> Value {
    json!({
        "worker": candidate.worker.as_str(),
        // JSON has no infinity: it is null.
        "score": candidate.score.get(),
        "queued_tokens": candidate.queued_tokens,
        "requests": candidate.requests,
        "free_pages": candidate.free_pages,
        "pages": candidate.pages,
        "held_tokens": candidate.hit_tokens,
    })
}
