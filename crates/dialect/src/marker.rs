//! Finds markers in text that comes in pieces.

/// Text that may be the beginning of a marker, held back until that is known. Never longer than the
/// longest marker.
#[derive(Debug, Default)]
pub(crate) struct Held {
    text: String,
}

/// What a character did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Everything held may still become a marker.
    Maybe,
    /// Something cannot, and was released.
    Not,
    /// The marker of this index is complete; nothing is held any more.
    Marker(usize),
}

impl Held {
    /// Takes a character; what cannot belong to one of `markers` is appended to `released`.
    pub(crate) fn push<'m, M>(&mut self, c: char, markers: M, released: &mut String) -> Found
    where
        M: Iterator<Item = &'m str> + Clone,
    {
        self.text.push(c);
        let mut found = Found::Maybe;
        while !self.text.is_empty() {
            if let Some(index) = markers.clone().position(|marker| marker == self.text) {
                self.text.clear();
                return Found::Marker(index);
            }
            if markers.clone().any(|marker| marker.starts_with(&self.text)) {
                return found;
            }
            released.push(self.text.remove(0));
            found = Found::Not;
        }
        found
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_a_marker_is_held() {
        let markers = ["<a>", "<ab", "\n</v>", "</v>"];
        let mut held = Held::default();
        let mut out = String::new();
        let mut push = |c| held.push(c, markers.iter().copied(), &mut out);
        assert_eq!(push('x'), Found::Not);
        assert_eq!(push('<'), Found::Maybe);
        assert_eq!(push('<'), Found::Not);
        assert_eq!(push('a'), Found::Maybe);
        assert_eq!(push('b'), Found::Marker(1));
        for c in "\n\n</v".chars() {
            push(c);
        }
        assert_eq!(push('>'), Found::Marker(2));
        assert_eq!(out, "x<\n");
        assert!(held.is_empty());
    }
}
