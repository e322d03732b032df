//! Server-sent events, read as their bytes come.
//!
//! An event may come in pieces, several may come at once, lines may end in LF, CR or CRLF. Comments and
//! other fields than `data` are passed over, as the standard has it. An event is bounded.

/// An event longer than this is no answer's.
pub const LONGEST_EVENT: usize = 16 << 20;

/// What is carried from one piece to the next.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    /// A line that has not ended.
    line: Vec<u8>,
    /// The data of an event that has not ended.
    data: Vec<u8>,
    any_data: bool,
    /// The last byte was CR: an LF that follows belongs to it.
    after_cr: bool,
}

/// An event without an end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {LONGEST_EVENT} bytes")]
pub struct EventTooLong;

impl Sse {
    /// Takes what came and hands over the data of each event that it ends.
    pub(crate) fn push<E: From<EventTooLong>>(
        &mut self,
        mut bytes: &[u8],
        mut event: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.line.extend_from_slice(bytes);
                return Ok(self.check()?);
            };
            self.after_cr = bytes[end] == b'\r';
            // Most lines come whole: they are not copied.
            if self.line.is_empty() {
                self.end_line(&bytes[..end], &mut event)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                self.end_line(&line, &mut event)?;
                line.clear();
                self.line = line;
            }
            bytes = &bytes[end + 1..];
        }
        Ok(())
    }

    /// Whether all that came has ended in an event.
    pub(crate) fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.any_data
    }

    fn end_line<E: From<EventTooLong>>(
        &mut self,
        line: &[u8],
        event: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if line.is_empty() {
            if std::mem::take(&mut self.any_data) {
                event(&self.data)?;
                self.data.clear();
            }
            return Ok(());
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if std::mem::replace(&mut self.any_data, true) {
                self.data.push(b'\n');
            }
            let data = data.strip_prefix(b" ").unwrap_or(data);
            self.data.extend_from_slice(data);
        }
        Ok(self.check()?)
    }

    fn check(&self) -> Result<(), EventTooLong> {
        if self.line.len() + self.data.len() > LONGEST_EVENT {
            Err(EventTooLong)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut sse = Sse::default();
        let mut seen = Vec::new();
        for piece in pieces {
            let push = sse.push::<EventTooLong>(piece, |data| {
                seen.push(String::from_utf8_lossy(data).into_owned());
                Ok(())
            });
            push.unwrap();
        }
        seen
    }

    #[test]
    fn several_events_come_at_once() {
        assert_eq!(events(&[b"data: a\n\ndata:b\n\n"]), ["a", "b"]);
    }

    #[test]
    fn comments_other_fields_and_empty_events_are_passed_over() {
        let bytes = b": ping\n\nevent: x\nid: 4\ndata: a\nretry: 5\ngarbage\n\n\n\n";
        assert_eq!(events(&[bytes]), ["a"]);
    }

    #[test]
    fn data_of_several_lines_is_joined() {
        assert_eq!(events(&[b"data: a\r\ndata: b\r\n\r\n"]), ["a\nb"]);
        assert_eq!(events(&[b"data: a\rdata: b\r\r"]), ["a\nb"]);
    }

    #[test]
    fn an_event_without_an_end_is_none() {
        let mut sse = Sse::default();
        sse.push::<EventTooLong>(b"data: a\n", |_| panic!("no event"))
            .unwrap();
        assert!(!sse.is_between_events());
    }

    #[test]
    fn an_event_is_bounded() {
        let mut sse = Sse::default();
        let piece = vec![b'x'; 1 << 20];
        let pushed = (0..20).try_for_each(|_| sse.push(&piece, |_| Ok::<(), EventTooLong>(())));
        assert_eq!(pushed, Err(EventTooLong));
    }

    proptest! {
        #[test]
        fn how_a_stream_is_cut_changes_nothing(
            data in prop::collection::vec("[a-z{}\": ]{0,20}", 1..8),
            ends in prop::collection::vec(0_usize..3, 16),
            cuts in prop::collection::vec(0_usize..400, 0..8),
        ) {
            let mut bytes = Vec::new();
            for (i, data) in data.iter().enumerate() {
                let end = ["\n", "\r", "\r\n"][ends[i]];
                bytes.extend(format!("data: {data}{end}: c{end}{end}").into_bytes());
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(events(&pieces), data);
        }
    }
}
