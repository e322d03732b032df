//! Messages on a QUIC stream, one after another, each behind its length in four bytes.

use prost::Message;

/// The largest message. A prompt of a million tokens fits.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Why a channel can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer or the network ended the connection, or the peer reset the stream.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The peer sent something that is no message.
    #[error("the peer sent what is no message: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// A message over [`MAX_MESSAGE_BYTES`], ours or the peer's.
    #[error("a message of {0} bytes is over the limit of {MAX_MESSAGE_BYTES}")]
    TooLarge(usize),
    /// The peer ended the stream where a message had to come.
    #[error("the peer ended the stream where a message had to come")]
    Ended,
}

/// Both directions of one stream.
#[derive(Debug)]
pub struct Channel {
    /// Our direction.
    pub send: Sender,
    /// The peer's direction.
    pub recv: Receiver,
}

/// The sending direction. Dropping it ends the stream cleanly.
#[derive(Debug)]
pub struct Sender(quinn::SendStream);

/// The receiving direction. Dropping it tells the peer that nobody listens.
#[derive(Debug)]
pub struct Receiver {
    stream: quinn::RecvStream,
    came: Came,
}

impl Channel {
    pub(crate) fn new((send, recv): (quinn::SendStream, quinn::RecvStream)) -> Self {
        Self {
            send: Sender(send),
            recv: Receiver {
                stream: recv,
                came: Came::default(),
            },
        }
    }
}

impl Sender {
    /// Sends one message. Waits while the peer reads more slowly than we send.
    pub async fn send(&mut self, message: &impl Message) -> Result<(), ChannelError> {
        let len = message.encoded_len();
        if len > MAX_MESSAGE_BYTES {
            return Err(ChannelError::TooLarge(len));
        }
        let mut frame = Vec::with_capacity(4 + len);
        frame.extend_from_slice(&(len as u32).to_be_bytes());
        message.encode_raw(&mut frame);
        self.0
            .write_all(&frame)
            .await
            .map_err(|e| ChannelError::Lost(e.to_string()))
    }

    /// Says that nothing more follows.
    pub fn finish(&mut self) {
        // An error means that it was finished or reset already.
        let _ = self.0.finish();
    }

    /// Gives up: the peer gets an error instead of an end.
    pub fn reset(&mut self) {
        let _ = self.0.reset(1u32.into());
    }

    /// Waits until everything has reached the peer's machine, or the peer listens no more. Its
    /// program may not have read it yet: closing the connection now can still lose it.
    pub async fn drained(&mut self) {
        let _ = self.0.stopped().await;
    }
}

impl Receiver {
    /// The next message, or `None` at the stream's clean end. Cancel-safe: what has come of a message
    /// is kept for the next call.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, ChannelError> {
        loop {
            if let Some(message) = self.came.message()? {
                return Ok(Some(M::decode(message)?));
            }
            match self.stream.read(self.came.room()?).await {
                Ok(Some(count)) => self.came.add(count),
                Ok(None) if self.came.is_empty() => return Ok(None),
                Ok(None) => return Err(ChannelError::Lost("it ended within a message".into())),
                Err(e) => return Err(ChannelError::Lost(e.to_string())),
            }
        }
    }

    /// The next message; the end of the stream is an error.
    pub async fn expect<M: Message + Default>(&mut self) -> Result<M, ChannelError> {
        self.next().await?.ok_or(ChannelError::Ended)
    }
}

/// Bytes of a length.
const LENGTH: usize = 4;
/// Room for what comes at once, where no longer message is awaited: some tokens.
const ROOM: usize = 256;
/// A longer buffer is given back when it is empty.
const KEPT: usize = 4 << 10;

/// What has come and was not taken: messages, the last of which may still lack a part.
#[derive(Debug, Default)]
struct Came {
    /// Those up to `from` were taken, those from `to` on have not come.
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl Came {
    const fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Bytes of the first message with its length, once that is there.
    fn awaited(&self) -> Result<Option<usize>, ChannelError> {
        let Some(length) = self.bytes[self.from..self.to].first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(ChannelError::TooLarge(length));
        }
        Ok(Some(LENGTH + length))
    }

    /// Takes the first message, if all of it is there.
    fn message(&mut self) -> Result<Option<&[u8]>, ChannelError> {
        let Some(awaited) = self.awaited()? else {
            return Ok(None);
        };
        let (from, end) = (self.from, self.from + awaited);
        if end > self.to {
            return Ok(None);
        }
        self.from = end;
        Ok(Some(&self.bytes[from + LENGTH..end]))
    }

    /// Where what comes next is to be written: room for the rest of the message at least.
    fn room(&mut self) -> Result<&mut [u8], ChannelError> {
        let awaited = self.awaited()?.unwrap_or(LENGTH);
        self.bytes.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let size = awaited.max(ROOM);
        if self.bytes.len() < size {
            // No more than was announced: a length is at most MAX_MESSAGE_BYTES.
            self.bytes.reserve_exact(size - self.bytes.len());
            self.bytes.resize(size, 0);
        } else if self.is_empty() && self.bytes.len() > KEPT {
            self.bytes.truncate(size);
            self.bytes.shrink_to_fit();
        }
        Ok(&mut self.bytes[self.to..])
    }

    const fn add(&mut self, count: usize) {
        self.to += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However the bytes are cut, the messages are those that were sent, and nothing is left.
        #[test]
        fn messages_come_whole_however_they_are_cut(
            sizes in prop::collection::vec(0_usize..10_000, 1..8),
            mut cuts in prop::collection::vec(1_usize..3000, 1..40),
        ) {
            let messages: Vec<Vec<u8>> = (1_u8..).zip(&sizes).map(|(n, size)| vec![n; *size]).collect();
            let mut wire = Vec::new();
            for message in &messages {
                wire.extend_from_slice(&(message.len() as u32).to_be_bytes());
                wire.extend_from_slice(message);
            }
            let mut came = Came::default();
            let mut got = Vec::new();
            let mut rest = &wire[..];
            cuts.push(usize::MAX);
            let mut cuts = cuts.iter().cycle();
            loop {
                while let Some(message) = came.message().unwrap() {
                    got.push(message.to_vec());
                }
                if rest.is_empty() {
                    break;
                }
                let room = came.room().unwrap();
                prop_assert!(!room.is_empty());
                let count = rest.len().min(room.len()).min(*cuts.next().unwrap());
                room[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                came.add(count);
            }
            prop_assert_eq!(got, messages);
            prop_assert!(came.is_empty());
            came.room().unwrap();
            prop_assert!(came.bytes.len() <= KEPT);
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_anything_is_reserved() {
        let mut came = Came::default();
        came.room().unwrap()[..LENGTH].copy_from_slice(&u32::MAX.to_be_bytes());
        came.add(LENGTH);
        let too_large = |result: Result<(), ChannelError>| matches!(result, Err(ChannelError::TooLarge(size)) if size == u32::MAX as usize);
        assert!(too_large(came.message().map(|_| ())));
        assert!(too_large(came.room().map(|_| ())));
        assert!(came.bytes.len() <= ROOM);
    }
}
