//! Log probabilities in OpenAI's two shapes.

use serde_json::{Map, Value, json};
use tandem_wire::proto;

/// JSON has no minus infinity; this is OpenAI's word for it.
const IMPOSSIBLE: f32 = -9999.0;

/// Characters of the answer before a token, for completions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offset(usize);

/// `{"content": [{token, logprob, bytes, top_logprobs}]}`; null where no token has any.
pub(crate) fn chat(tokens: &[proto::Token]) -> Value {
    let content: Vec<Value> = tokens
        .iter()
        .filter_map(|token| {
            let (chosen, likeliest) = token.logprobs.split_first()?;
            let mut entry = chat_entry(chosen);
            entry["top_logprobs"] = likeliest.iter().map(chat_entry).collect();
            Some(entry)
        })
        .collect();
    if content.is_empty() {
        return Value::Null;
    }
    json!({"content": content, "refusal": null})
}

fn chat_entry(entry: &proto::Logprob) -> Value {
    json!({
        "token": String::from_utf8_lossy(&entry.bytes),
        "logprob": entry.logprob.max(IMPOSSIBLE),
        "bytes": entry.bytes.to_vec(),
    })
}

/// `{tokens, token_logprobs, top_logprobs, text_offset}`; null where no token has any.
pub(crate) fn completions(tokens: &[proto::Token], offset: &mut Offset) -> Value {
    let (mut names, mut chosens, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
    for token in tokens {
        let Some((chosen, likeliest)) = token.logprobs.split_first() else {
            continue;
        };
        let name = printable(&chosen.bytes);
        offsets.push(offset.0);
        offset.0 += name.chars().count();
        names.push(name);
        chosens.push(chosen.logprob.max(IMPOSSIBLE));
        let top: Map<String, Value> = likeliest
            .iter()
            .map(|e| (printable(&e.bytes), e.logprob.max(IMPOSSIBLE).into()))
            .collect();
        tops.push(top);
    }
    if names.is_empty() {
        return Value::Null;
    }
    json!({
        "tokens": names,
        "token_logprobs": chosens,
        "top_logprobs": tops,
        "text_offset": offsets,
    })
}

/// A token's text; bytes that are no whole characters as OpenAI writes them: `bytes:\xe2\x80`.
fn printable(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let escapes: String = bytes.iter().map(|b| format!("\\x{b:02x}")).collect();
    format!("bytes:{escapes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(parts: &[(&[u8], f32)]) -> proto::Token {
        let logprobs = parts
            .iter()
            .map(|(bytes, logprob)| proto::Logprob {
                token: 0,
                bytes: bytes.to_vec().into(),
                logprob: *logprob,
            })
            .collect();
        proto::Token {
            token: 0,
            text: String::new(),
            logprobs,
        }
    }

    #[test]
    fn each_shape_is_openais() {
        let tokens = [
            token(&[(b"hi", -1.0), (b"hi", -1.0), (b"ho", f32::NEG_INFINITY)]),
            token(&[(b"\xe2", -2.0)]),
        ];
        let chat = chat(&tokens);
        assert_eq!(chat["content"][0]["bytes"], json!([104, 105]));
        assert_eq!(chat["content"][0]["top_logprobs"][1]["logprob"], -9999.0);
        assert_eq!(chat["content"][1]["token"], "\u{fffd}");
        let mut offset = Offset::default();
        let both = completions(&tokens, &mut offset);
        assert_eq!(both["tokens"], json!(["hi", "bytes:\\xe2"]));
        assert_eq!(both["text_offset"], json!([0, 2]));
        assert_eq!(both["top_logprobs"][0], json!({"hi": -1.0, "ho": -9999.0}));
    }

    #[test]
    fn without_any_there_is_null() {
        assert_eq!(chat(&[token(&[])]), Value::Null);
        assert_eq!(completions(&[], &mut Offset::default()), Value::Null);
    }
}
