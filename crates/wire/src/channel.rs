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
pub struct Receiver(quinn::RecvStream);

impl Channel {
    pub(crate) fn new((send, recv): (quinn::SendStream, quinn::RecvStream)) -> Self {
        Self {
            send: Sender(send),
            recv: Receiver(recv),
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
    /// The next message, or `None` at the stream's clean end. Not cancel-safe: a caller that
    /// gives up on it must drop the receiver, or read in a task of its own.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, ChannelError> {
        let mut len = [0; 4];
        match self.0.read_exact(&mut len).await {
            Ok(()) => {}
            Err(quinn::ReadExactError::FinishedEarly(0)) => return Ok(None),
            Err(e) => return Err(ChannelError::Lost(e.to_string())),
        }
        let len = u32::from_be_bytes(len) as usize;
        if len > MAX_MESSAGE_BYTES {
            return Err(ChannelError::TooLarge(len));
        }
        let mut frame = vec![0; len];
        self.0
            .read_exact(&mut frame)
            .await
            .map_err(|e| ChannelError::Lost(e.to_string()))?;
        Ok(Some(M::decode(frame.as_slice())?))
    }

    /// The next message; the end of the stream is an error.
    pub async fn expect<M: Message + Default>(&mut self) -> Result<M, ChannelError> {
        self.next().await?.ok_or(ChannelError::Ended)
    }
}
