//! Elements as text.

use std::borrow::Cow;
use std::fmt::Write;

/// Text as it may stand in an element or in a quoted attribute, of HTML and of XML. Characters that neither allows are
/// replaced, as are those that turn the direction of the text around them.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(needs_care) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c if needs_care(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

fn needs_care(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let forbidden =
        (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{fffe}' | '\u{ffff}');
    matches!(c, '&' | '<' | '>' | '"' | '\'') || turns || forbidden
}

/// Units of a letter on average, by its font's size.
const LETTER: f64 = 0.56;
/// Size of letters.
pub(crate) const FONT: f64 = 12.0;

/// About how wide a text is.
pub(crate) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER * FONT
}

/// As much of a text as has room, and an ellipsis where that is not all.
pub(crate) fn fitted(text: &str, room: f64) -> Cow<'_, str> {
    if width(text) <= room {
        return Cow::Borrowed(text);
    }
    let letters = ((room / (LETTER * FONT)) as usize).saturating_sub(1);
    Cow::Owned(text.chars().take(letters).collect::<String>() + "…")
}

/// Where a text stands in relation to its place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn attribute(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::Middle => " text-anchor=\"middle\"",
            Self::End => " text-anchor=\"end\"",
        }
    }
}

/// An SVG element that is being written.
#[derive(Debug)]
pub(crate) struct Svg {
    pub(crate) text: String,
}

impl Svg {
    /// Of these sides, named for those who do not see it.
    pub(crate) fn new(width: f64, height: f64, name: &str) -> Self {
        let (w, h) = (units(width), units(height));
        let name = escape(name);
        Self {
            text: format!(
                "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" role=\"img\" \
                 aria-label=\"{name}\" font-family=\"system-ui, sans-serif\" font-size=\"{FONT}\" \
                 fill=\"currentColor\" stroke-width=\"1\">\n"
            ),
        }
    }

    pub(crate) fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }

    pub(crate) fn write(&mut self, words: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.text.write_fmt(words);
    }

    /// Text at a place of its base line; `class` may be empty.
    pub(crate) fn label(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let (x, y) = (units(at.0), units(at.1));
        let anchor = anchor.attribute();
        let text = escape(text);
        self.write(format_args!(
            "<text x=\"{x}\" y=\"{y}\"{anchor}{class}>{text}</text>\n"
        ));
    }

    /// A straight line.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), attributes: &str) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(units);
        self.write(format_args!(
            "<path d=\"M{x1} {y1}L{x2} {y2}\" stroke=\"currentColor\"{attributes}/>\n"
        ));
    }

    /// A rectangle with a tooltip.
    pub(crate) fn rect(&mut self, from: (f64, f64), to: (f64, f64), attributes: &str, tip: &str) {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let (w, h) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        let [x, y, w, h] = [x, y, w, h].map(units);
        let tip = escape(tip);
        self.write(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"{attributes}><title>{tip}</title></rect>\n"
        ));
    }
}

/// A length with a digit after the point at most.
pub(crate) fn units(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_markup_is_escaped_and_what_xml_forbids_is_replaced() {
        assert_eq!(
            escape("<img src=x onerror='alert(1)'> & \"q\""),
            "&lt;img src=x onerror=&#39;alert(1)&#39;&gt; &amp; &quot;q&quot;"
        );
        assert_eq!(
            escape("a\u{0}b\u{1b}[31m\u{202e}c\u{ffff}"),
            "a\u{fffd}b\u{fffd}[31m\u{fffd}c\u{fffd}"
        );
        assert!(matches!(escape("plain µ 文"), Cow::Borrowed(_)));
    }

    #[test]
    fn text_without_room_ends_with_an_ellipsis() {
        assert_eq!(fitted("short", 100.0), "short");
        let cut = fitted("a name that is much too long for its place", 100.0);
        assert!(cut.ends_with('…') && width(&cut) <= 100.0, "{cut}");
        assert_eq!(fitted("none", 0.0), "…");
    }

    #[test]
    fn lengths_are_short() {
        assert_eq!(
            [1.0, 1.25, -0.01, 99.96].map(units),
            ["1", "1.2", "0", "100"]
        );
    }
}
