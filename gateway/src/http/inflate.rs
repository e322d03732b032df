//! A gzip'ed body, inflated up to a limit: whatever the compressed bytes promise, no more than that
//! is kept.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

/// Compressed bytes that are inflated in one go, to at most about a thousand times as many: some
/// milliseconds.
pub(crate) const STEP: usize = 4 << 10;

/// Why there is no body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InflateError {
    /// It would be over the limit.
    TooLarge,
    /// These bytes are not what gzip writes.
    Malformed(String),
}

/// Inflates bit by bit.
#[derive(Debug)]
pub(crate) struct Inflate {
    decoder: MultiGzDecoder<Capped>,
}

impl Inflate {
    /// To at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let capped = Capped {
            bytes: Vec::new(),
            limit,
            over: false,
        };
        Self {
            decoder: MultiGzDecoder::new(capped),
        }
    }

    /// Takes compressed bytes, best no more than [`STEP`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), InflateError> {
        let written = self.decoder.write_all(bytes);
        written.map_err(|error| self.why(&error))
    }

    /// Bytes that are kept.
    pub(crate) fn kept(&self) -> u64 {
        self.decoder.get_ref().bytes.len() as u64
    }

    /// There is no more.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, InflateError> {
        if let Err(error) = self.decoder.try_finish() {
            return Err(self.why(&error));
        }
        Ok(std::mem::take(&mut self.decoder.get_mut().bytes))
    }

    fn why(&self, error: &io::Error) -> InflateError {
        if self.decoder.get_ref().over {
            InflateError::TooLarge
        } else {
            InflateError::Malformed(error.to_string())
        }
    }
}

#[derive(Debug)]
struct Capped {
    bytes: Vec<u8>,
    limit: u64,
    over: bool,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.limit {
            self.over = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn inflate(bytes: &[u8], limit: u64) -> Result<Vec<u8>, InflateError> {
        let mut inflate = Inflate::new(limit);
        for step in bytes.chunks(STEP) {
            inflate.write(step)?;
        }
        inflate.finish()
    }

    #[test]
    fn what_was_compressed_comes_back_up_to_the_limit() {
        let text = b"abc".repeat(1000);
        assert_eq!(inflate(&gzip(&text), 3000).unwrap(), text);
        assert_eq!(inflate(&gzip(&text), 2999), Err(InflateError::TooLarge));
        assert_eq!(inflate(&gzip(b""), 0).unwrap(), b"");
        let two = [gzip(b"a"), gzip(b"b")].concat();
        assert_eq!(inflate(&two, 9).unwrap(), b"ab");
    }

    #[test]
    fn a_bomb_is_kept_only_up_to_the_limit() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 128 << 10);
        let mut inflate = Inflate::new(1 << 20);
        let refused = bomb.chunks(STEP).find_map(|step| inflate.write(step).err());
        assert_eq!(refused, Some(InflateError::TooLarge));
        assert!(inflate.decoder.get_ref().bytes.capacity() <= 2 << 20);
    }

    #[test]
    fn what_gzip_did_not_write_or_not_to_its_end_is_told() {
        let whole = gzip(b"some text that is long enough");
        for bad in [
            &whole[..10],
            &whole[..whole.len() - 1],
            b"{}",
            b"\x1f\x8b\x08\xff",
        ] {
            let refused = inflate(bad, 100);
            assert!(
                matches!(refused, Err(InflateError::Malformed(_))),
                "{bad:?} {refused:?}"
            );
        }
        let mut wrong_sum = whole.clone();
        let at = whole.len() - 6;
        wrong_sum[at] ^= 1;
        assert!(inflate(&wrong_sum, 100).is_err());
    }
}
