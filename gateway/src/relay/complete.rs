//! Answers that were complete when their worker was lost, before it had said so.
//!
//! A worker sends a token and then, where the answer ends with it, its last message. Where only the
//! token came, there is nothing left to generate: the end is made from the tokens here, as the
//! worker would have made it.

use std::sync::Arc;

use tandem_text::{AnswerText, TextModel};
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;

/// The last message of an answer whose last token has come; `None` where more is to be generated.
pub(super) fn complete(
    model: &Arc<TextModel>,
    generate: &proto::Generate,
) -> Option<proto::Finished> {
    let stop = generate.stop.as_ref()?;
    let prompt = generate.tokens.len() - generate.generated as usize;
    let answer = &generate.tokens[prompt..];
    let last = answer.last()?;
    let ends = !stop.ignore_eos && model.end_tokens().contains(last)
        || stop.token_ids.contains(last) && generate.generated >= stop.min_tokens;
    if !ends && generate.generated < stop.max_tokens {
        return None;
    }
    let mut text = AnswerText::new(Arc::clone(model), stop.texts.clone());
    // A token that ends an answer has no text.
    let worded = &answer[..answer.len() - usize::from(ends)];
    let mut said = (1..).zip(worded).map(|(number, token)| {
        if number <= stop.min_tokens {
            text.push_through(*token)
        } else {
            text.push(*token)
        }
    });
    let stopped = said.any(|pushed| pushed.stopped);
    let reason = if ends || stopped {
        FinishReason::Stop
    } else {
        FinishReason::Length
    };
    Some(proto::Finished {
        text: if stopped {
            String::new()
        } else {
            text.finish()
        },
        reason: reason.into(),
        stop_text: text.stop_text().unwrap_or_default().to_owned(),
        ..proto::Finished::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Arc<TextModel> {
        let path = tandem_text::testing::model_file();
        Arc::new(TextModel::load(&path).unwrap())
    }

    #[test]
    fn the_end_is_as_the_worker_would_have_told_it() {
        let model = model();
        let text = |text: &str| model.encode(text);
        let end = model.end_tokens()[0];
        let asked = |answer: &[u32], max_tokens, stop: &str| {
            let prompt = text("Hi");
            let tokens = prompt.iter().chain(answer).copied().collect();
            let stop = proto::Stop {
                max_tokens,
                texts: vec![stop.to_owned()],
                ..proto::Stop::default()
            };
            proto::Generate {
                tokens,
                generated: answer.len() as u32,
                stop: Some(stop),
                ..proto::Generate::default()
            }
        };
        let answer = text("one two");
        let most = answer.len() as u32;
        let told = |generate| complete(&model, &generate).map(|f| (f.text.clone(), f.reason()));
        assert_eq!(told(asked(&answer, most + 1, "x")), None);
        assert_eq!(told(asked(&[], most, "x")), None);
        assert_eq!(
            told(asked(&answer, most, "x")),
            Some((String::new(), FinishReason::Length))
        );
        // The beginning of a stop text was held back.
        assert_eq!(
            told(asked(&answer, most, "two three")),
            Some(("two".into(), FinishReason::Length))
        );
        assert_eq!(
            told(asked(&answer, most, " two")),
            Some((String::new(), FinishReason::Stop))
        );
        let mut least = asked(&answer, most, "one");
        if let Some(stop) = &mut least.stop {
            stop.min_tokens = most;
        }
        assert_eq!(
            told(least),
            // What could have become the stop text again was held back.
            Some(("o".into(), FinishReason::Length)),
            "before the least number of tokens nothing ends it"
        );
        let mut ended = answer.clone();
        ended.push(end);
        assert_eq!(
            told(asked(&ended, 100, "two three")),
            Some(("two".into(), FinishReason::Stop))
        );
    }
}
