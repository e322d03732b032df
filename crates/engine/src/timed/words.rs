//! The tokens that a timed engine says: printable ones of the tokenizer, never one that ends a text.

use tandem_text::TextModel;

use super::entries::mix;

/// Below what any setting of a request adds to a token's logit, above what bars it.
const OTHERS: f32 = -50.0;
const UNSPOKEN: f32 = -500.0;

/// What it may say.
#[derive(Clone, Debug)]
pub(super) struct Words {
    said: Vec<u32>,
    vocabulary: u32,
}

impl Words {
    /// A tokenizer's; `None` where it has none.
    pub(super) fn of(text: &TextModel) -> Option<Self> {
        let ends = text.end_tokens();
        let printable = |token: &u32| {
            let bytes = text.token_bytes(*token);
            let fine = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
            std::str::from_utf8(&bytes).is_ok_and(fine)
        };
        let vocabulary = text.vocabulary();
        let said: Vec<u32> = (0..vocabulary)
            .filter(|token| !text.is_special(*token) && !ends.contains(token))
            .filter(printable)
            .collect();
        (!said.is_empty()).then_some(Self { said, vocabulary })
    }

    /// The word of a number.
    pub(super) fn pick(&self, number: u64) -> u32 {
        let index = (u128::from(number) * self.said.len() as u128) >> 64;
        self.said[index as usize]
    }

    /// Logits under which that word is chosen at any temperature, unless a request's settings have it
    /// otherwise; the other words follow in an order of their own.
    pub(super) fn logits(&self, number: u64, into: &mut Vec<f32>) {
        into.clear();
        into.resize(self.vocabulary as usize, UNSPOKEN);
        for token in &self.said {
            let rank = mix(number ^ u64::from(*token) << 32) >> 40;
            into[*token as usize] = OTHERS - rank as f32 / (1 << 20) as f32;
        }
        into[self.pick(number) as usize] = 0.0;
    }
}
