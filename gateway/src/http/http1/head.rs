//! The head of one request of HTTP/1, line by line, more strictly than RFC 9112 asks a server to: what
//! two readers could take for different things is refused, so that no proxy before the gateway sees
//! other requests than it does.
//!
//! Pure: no socket, no clock.

use http::uri::Authority;
use http::{HeaderMap, Uri};

use super::refusal::Refusal;

/// Bounds of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    /// All of it.
    pub(crate) bytes: usize,
    /// Its headers.
    pub(crate) headers: usize,
    /// The request's target.
    pub(crate) uri: usize,
}

/// What RFC 9113 and 9114 count for a field beside its name and value.
const FIELD_OVERHEAD: usize = 32;

impl HeadLimits {
    /// What a client of HTTP/2 or 3 is told: twice as much as is taken, so that what is a little over the
    /// limit gets a reply that says so. What is over this the library refuses.
    pub(crate) const fn told(&self) -> u64 {
        2 * self.bytes as u64
    }

    /// Why fields that came as such, and not as lines, are too long.
    pub(crate) fn refuse_fields(&self, headers: &HeaderMap) -> Option<Refusal> {
        let fields = headers.iter();
        let length = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD);
        (length.sum::<usize>() > self.bytes).then_some(Refusal::HeadTooLarge(self.bytes))
    }
}

/// How the body's end is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    Bytes(u64),
    Chunked,
}

/// Empty lines before a request, which old clients send after a body.
const EMPTY_LINES: usize = 4;
/// A request line's method, version and spaces.
const BESIDE_THE_URI: usize = 64;

/// A head that is being read.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Whole lines and the beginning of one, without empty lines before the first.
    bytes: Vec<u8>,
    /// Where the line that is being read begins.
    line: usize,
    empty_lines: usize,
    /// Of the request line; `None` before it.
    version_1_1: Option<bool>,
    headers: usize,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Head {
    /// Whether some of it is there.
    pub(super) const fn has_begun(&self) -> bool {
        !self.bytes.is_empty() || self.empty_lines > 0
    }

    /// All that was read of it.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Reads up to the head's end. How many bytes were taken, and the body's length where the head is
    /// whole.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        limits: HeadLimits,
    ) -> Result<(usize, Option<BodyLength>), Refusal> {
        for (at, line) in input
            .split_inclusive(|byte| *byte == b'\n')
            .scan(0, |at, line| {
                *at += line.len();
                Some((*at, line))
            })
        {
            if self.bytes.is_empty() {
                check_first(line)?;
            }
            self.bytes.extend_from_slice(line);
            self.check_size(limits)?;
            if !line.ends_with(b"\n") {
                continue;
            }
            if self.end_of_line(limits)? {
                return Ok((at, Some(self.body_length()?)));
            }
        }
        Ok((input.len(), None))
    }

    fn check_size(&self, limits: HeadLimits) -> Result<(), Refusal> {
        let first = self.version_1_1.is_none();
        if first && self.bytes.len() > limits.uri + BESIDE_THE_URI {
            return Err(Refusal::UriTooLong(limits.uri));
        }
        if self.bytes.len() > limits.bytes {
            return Err(Refusal::HeadTooLarge(limits.bytes));
        }
        Ok(())
    }

    /// Whether the line that has just ended was the last one, the empty one.
    fn end_of_line(&mut self, limits: HeadLimits) -> Result<bool, Refusal> {
        let line = std::mem::take(&mut self.bytes);
        let begin = std::mem::replace(&mut self.line, line.len());
        let text = line[begin..]
            .strip_suffix(b"\r\n")
            .filter(|text| !text.contains(&b'\r'))
            .ok_or(Refusal::LineEnd)?;
        if self.version_1_1.is_none() {
            if text.is_empty() {
                self.empty_lines += 1;
                self.line = 0;
                return if self.empty_lines > EMPTY_LINES {
                    Err(Refusal::RequestLine)
                } else {
                    Ok(false)
                };
            }
            self.version_1_1 = Some(request_line(text, limits)?);
        } else if text.is_empty() {
            self.bytes = line;
            return Ok(true);
        } else {
            self.header(text, limits)?;
        }
        self.bytes = line;
        Ok(false)
    }

    fn header(&mut self, line: &[u8], limits: HeadLimits) -> Result<(), Refusal> {
        self.headers += 1;
        if self.headers > limits.headers {
            return Err(Refusal::TooManyHeaders(limits.headers));
        }
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            if self.length.is_some() {
                return Err(Refusal::TwoLengths);
            }
            self.length = Some(length(value).ok_or(Refusal::ContentLength)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let understood = value.eq_ignore_ascii_case(b"chunked");
            if self.chunked || !understood || self.version_1_1 != Some(true) {
                return Err(Refusal::TransferEncoding);
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            if self.hosts > 1 || !is_host(value) {
                return Err(Refusal::Host);
            }
        }
        Ok(())
    }

    fn body_length(&self) -> Result<BodyLength, Refusal> {
        if self.version_1_1 == Some(true) && self.hosts == 0 {
            return Err(Refusal::Host);
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Refusal::LengthAndChunked),
            (true, None) => Ok(BodyLength::Chunked),
            (false, length) => Ok(BodyLength::Bytes(length.unwrap_or(0))),
        }
    }
}

/// Looked at before the line has ended: what is no HTTP may never end it.
fn check_first(input: &[u8]) -> Result<(), Refusal> {
    match input.first() {
        Some(0x16) => Err(Refusal::Tls),
        Some(byte) if !is_token(*byte) && !matches!(byte, b'\r' | b'\n') => {
            Err(Refusal::RequestLine)
        }
        _ => Ok(()),
    }
}

/// Whether it is HTTP/1.1; 1.0 otherwise.
fn request_line(line: &[u8], limits: HeadLimits) -> Result<bool, Refusal> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Refusal::RequestLine);
    };
    if method.is_empty() || !method.iter().copied().all(is_token) {
        return Err(Refusal::RequestLine);
    }
    if target.len() > limits.uri {
        return Err(Refusal::UriTooLong(limits.uri));
    }
    let visible = !target.is_empty() && target.iter().all(u8::is_ascii_graphic);
    if !visible || Uri::try_from(target).is_err() {
        return Err(Refusal::Target);
    }
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        _ if version.starts_with(b"HTTP/") => Err(Refusal::Version),
        _ => Err(Refusal::RequestLine),
    }
}

/// A header's or trailer's name and value, without the spaces around the value.
pub(super) fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Refusal::Folded);
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or(Refusal::HeaderName)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return Err(Refusal::HeaderName);
    }
    let text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if !value.iter().all(text) {
        return Err(Refusal::HeaderValue);
    }
    Ok((name, value.trim_ascii()))
}

/// A host, perhaps with a port; empty where the target has none.
fn is_host(value: &[u8]) -> bool {
    let Ok(host) = Authority::try_from(value) else {
        return value.is_empty();
    };
    let bare = host.host().len() == host.as_str().len();
    (bare || host.port_u16().is_some()) && !host.as_str().contains('@')
}

/// Digits only: no sign, no list, nothing over 64 bits.
fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // hyper keeps the largest lengths for itself.
    let length: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (length <= u64::MAX / 2).then_some(length)
}

/// RFC 9110's `tchar`.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}
