//! Finding stop texts in a stream of bytes.
//!
//! One Knuth-Morris-Pratt automaton per stop text, so a byte costs one step for each (amortised),
//! however the text is cut into tokens.

/// One stop text and how much of it the text's end matches.
struct Pattern {
    bytes: Vec<u8>,
    /// `borders[n]`: length of the longest proper border of the first `n + 1` bytes.
    borders: Vec<usize>,
    matched: usize,
}

impl Pattern {
    fn new(text: String) -> Self {
        let bytes = text.into_bytes();
        let mut borders = vec![0; bytes.len()];
        let mut length = 0;
        for index in 1..bytes.len() {
            while length > 0 && bytes[index] != bytes[length] {
                length = borders[length - 1];
            }
            length += usize::from(bytes[index] == bytes[length]);
            borders[index] = length;
        }
        Self {
            bytes,
            borders,
            matched: 0,
        }
    }

    /// Takes one byte; true when the text now ends with the whole pattern. Not to be called again
    /// after that, unless [`Pattern::pass`] was.
    fn feed(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(self.bytes[self.matched] == byte);
        self.matched == self.bytes.len()
    }

    /// Lets a whole match pass: what may follow is its border.
    fn pass(&mut self) {
        self.matched = self.borders[self.matched - 1];
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }
}

/// All stop texts of one answer.
pub(crate) struct Stops(Vec<Pattern>);

impl Stops {
    /// Empty stop texts match nothing and are left out.
    pub(crate) fn new(texts: Vec<String>) -> Self {
        Self(
            texts
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(Pattern::new)
                .collect(),
        )
    }

    /// Takes the text's next byte. Some when a stop text ends here, the longest of several. Not to be
    /// called again after that.
    pub(crate) fn feed(&mut self, byte: u8) -> Option<&str> {
        let mut found: Option<&Pattern> = None;
        for pattern in &mut self.0 {
            if pattern.feed(byte) && found.is_none_or(|f| f.bytes.len() < pattern.bytes.len()) {
                found = Some(pattern);
            }
        }
        found.map(Pattern::text)
    }

    /// Takes the text's next byte, where no stop text may end.
    pub(crate) fn pass(&mut self, byte: u8) {
        for pattern in &mut self.0 {
            if pattern.feed(byte) {
                pattern.pass();
            }
        }
    }

    /// How many bytes at the text's end may be the beginning of a stop text.
    pub(crate) fn possible(&self) -> usize {
        self.0
            .iter()
            .map(|pattern| pattern.matched)
            .max()
            .unwrap_or(0)
    }
}
