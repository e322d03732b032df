//! Where requests of HTTP/1 begin and end in a client's bytes.
//!
//! Follows heads and chunks as hyper does behind it, and refuses what hyper would be lenient about. A
//! head is let through only when it is whole and right; a body as it comes.
//!
//! Pure: no socket, no clock.

use super::head::{BodyLength, Head, HeadLimits, field};
use super::refusal::Refusal;

/// Longest extension of one chunk. Nobody uses them.
const CHUNK_EXTENSION: usize = 256;
/// Digits of a chunk's length: 60 bits.
const CHUNK_DIGITS: u8 = 15;

/// Reads one connection's bytes.
#[derive(Debug)]
pub(super) struct Framing {
    limits: HeadLimits,
    state: State,
    heads: u64,
}

#[derive(Debug)]
enum State {
    Head(Head),
    Body { left: u64 },
    Chunk(Chunk),
}

/// A place in a chunked body.
#[derive(Debug)]
enum Chunk {
    Size {
        digits: u8,
        value: u64,
    },
    Extension {
        value: u64,
        length: usize,
    },
    SizeEnd {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataEnd {
        carriage_return: bool,
    },
    Trailers {
        line: Vec<u8>,
        bytes: usize,
        fields: usize,
    },
}

/// Where the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Between two requests.
    Between,
    /// In a head.
    Head,
    /// In a body; so many bytes of it may be passed on without a look, 0 where it is chunked.
    Body(u64),
}

impl Framing {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            state: State::Head(Head::default()),
            heads: 0,
        }
    }

    /// Heads that were let through.
    pub(super) const fn heads(&self) -> u64 {
        self.heads
    }

    pub(super) const fn place(&self) -> Place {
        match &self.state {
            State::Head(head) if head.has_begun() => Place::Head,
            State::Head(_) => Place::Between,
            State::Body { left } => Place::Body(*left),
            State::Chunk(_) => Place::Body(0),
        }
    }

    /// So many bytes of a body went by.
    pub(super) fn passed(&mut self, bytes: u64) {
        if let State::Body { left } = &mut self.state {
            assert!(bytes <= *left, "more than the body has");
            *left -= bytes;
            if *left == 0 {
                self.state = State::Head(Head::default());
            }
        }
    }

    /// Reads `input` up to the end of the request that it belongs to. How many bytes were taken; what
    /// may go on of them is added to `out`. After a refusal nothing may be read any more, and what is in
    /// `out` comes from before it.
    pub(super) fn read(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Refusal> {
        let mut taken = 0;
        while taken < input.len() {
            let (bytes, ended) = self.step(&input[taken..], out)?;
            taken += bytes;
            if ended {
                self.state = State::Head(Head::default());
                break;
            }
        }
        Ok(taken)
    }

    /// Reads at least one byte of `input`, which has some. How many, and whether a request has ended.
    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, bool), Refusal> {
        match &mut self.state {
            State::Head(head) => {
                let (taken, length) = head.read(input, self.limits)?;
                let Some(length) = length else {
                    return Ok((taken, false));
                };
                out.extend(std::mem::take(head).into_bytes());
                self.heads += 1;
                self.state = match length {
                    BodyLength::Bytes(left) => State::Body { left },
                    BodyLength::Chunked => State::Chunk(Chunk::begin()),
                };
                Ok((taken, length == BodyLength::Bytes(0)))
            }
            State::Body { left } => {
                let taken = at_most(input, *left);
                out.extend_from_slice(&input[..taken]);
                *left -= taken as u64;
                Ok((taken, *left == 0))
            }
            State::Chunk(chunk) => {
                let (taken, ended) = chunk.read(input, self.limits)?;
                out.extend_from_slice(&input[..taken]);
                Ok((taken, ended))
            }
        }
    }
}

fn at_most(input: &[u8], left: u64) -> usize {
    input.len().min(usize::try_from(left).unwrap_or(usize::MAX))
}

impl Chunk {
    const fn begin() -> Self {
        Self::Size {
            digits: 0,
            value: 0,
        }
    }

    /// As [`Framing::step`].
    fn read(&mut self, input: &[u8], limits: HeadLimits) -> Result<(usize, bool), Refusal> {
        match self {
            Self::Data { left } => {
                let taken = at_most(input, *left);
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::DataEnd {
                        carriage_return: false,
                    };
                }
                Ok((taken, false))
            }
            Self::Trailers {
                line,
                bytes,
                fields,
            } => Ok((1, trailer(input[0], line, bytes, fields, limits)?)),
            _ => {
                self.step(input[0])?;
                Ok((1, false))
            }
        }
    }

    fn step(&mut self, byte: u8) -> Result<(), Refusal> {
        *self = match (&*self, byte) {
            (Self::Size { digits: 1.., value }, b';') => Self::Extension {
                value: *value,
                length: 0,
            },
            (Self::Size { digits: 1.., value }, b'\r') => Self::SizeEnd { value: *value },
            (Self::Size { digits, value }, byte) => {
                let digit = char::from(byte).to_digit(16).ok_or(Refusal::ChunkSize)?;
                if *digits == CHUNK_DIGITS {
                    return Err(Refusal::ChunkSize);
                }
                Self::Size {
                    digits: digits + 1,
                    value: value * 16 + u64::from(digit),
                }
            }
            (Self::Extension { value, .. }, b'\r') => Self::SizeEnd { value: *value },
            (Self::Extension { value, length }, b'\t' | b' '..=b'~')
                if *length < CHUNK_EXTENSION =>
            {
                Self::Extension {
                    value: *value,
                    length: length + 1,
                }
            }
            (Self::Extension { .. }, _) => return Err(Refusal::ChunkExtension(CHUNK_EXTENSION)),
            (Self::SizeEnd { value: 0 }, b'\n') => Self::Trailers {
                line: Vec::new(),
                bytes: 0,
                fields: 0,
            },
            (Self::SizeEnd { value }, b'\n') => Self::Data { left: *value },
            (Self::SizeEnd { .. }, _) => return Err(Refusal::LineEnd),
            (
                Self::DataEnd {
                    carriage_return: false,
                },
                b'\r',
            ) => Self::DataEnd {
                carriage_return: true,
            },
            (
                Self::DataEnd {
                    carriage_return: true,
                },
                b'\n',
            ) => Self::begin(),
            (Self::DataEnd { .. }, _) => return Err(Refusal::ChunkEnd),
            (Self::Data { .. } | Self::Trailers { .. }, _) => {
                unreachable!("data and trailers are read elsewhere")
            }
        };
        Ok(())
    }
}

/// Whether the body has ended.
fn trailer(
    byte: u8,
    line: &mut Vec<u8>,
    bytes: &mut usize,
    fields: &mut usize,
    limits: HeadLimits,
) -> Result<bool, Refusal> {
    *bytes += 1;
    if *bytes > limits.bytes {
        return Err(Refusal::HeadTooLarge(limits.bytes));
    }
    line.push(byte);
    if byte != b'\n' {
        return Ok(false);
    }
    let text = line
        .strip_suffix(b"\r\n")
        .filter(|text| !text.contains(&b'\r'))
        .ok_or(Refusal::LineEnd)?;
    if text.is_empty() {
        return Ok(true);
    }
    let (name, _) = field(text)?;
    let framing: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];
    if framing.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return Err(Refusal::Trailer);
    }
    *fields += 1;
    if *fields > limits.headers {
        return Err(Refusal::TooManyHeaders(limits.headers));
    }
    line.clear();
    Ok(false)
}

#[cfg(test)]
mod tests;
