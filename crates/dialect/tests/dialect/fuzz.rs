//! What a model may write: anything. Run longer by `scripts/fuzz`.

use tandem_dialect::Release;

use crate::properties::dialects;
use crate::samples::{collect, join, options, parse};

#[test]
fn answers_of_any_text() {
    let dialects = dialects();
    bolero::check!().for_each(|bytes: &[u8]| {
        let Some((&[choice, cut], text)) = bytes.split_first_chunk::<2>() else {
            return;
        };
        let text = String::from_utf8_lossy(text);
        let dialect = dialects[usize::from(choice >> 1) % dialects.len()];
        let release = if choice & 1 == 0 {
            Release::Whole
        } else {
            Release::Early
        };
        let whole = join(parse(dialect, options(release), &[&text]));
        let at = text
            .char_indices()
            .map(|(at, _)| at)
            .nth(usize::from(cut))
            .unwrap_or(0);
        let (start, end) = text.split_at(at);
        assert_eq!(join(parse(dialect, options(release), &[start, end])), whole);
        let answer = collect(whole);
        if answer.calls.is_empty() && answer.reasoning.is_empty() && dialect.reasoning().is_none() {
            assert_eq!(answer.content, text);
        }
    });
}
