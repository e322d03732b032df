//! A socket of which some bytes were read already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What a client of HTTP/2 sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Gives back what was read before it reads on.
#[derive(Debug)]
pub(crate) struct Prefixed<S> {
    read: [u8; PREFACE.len()],
    from: u8,
    to: u8,
    socket: S,
}

impl<S> Prefixed<S> {
    /// Of which nothing was read.
    pub(crate) const fn new(socket: S) -> Self {
        Self {
            read: [0; PREFACE.len()],
            from: 0,
            to: 0,
            socket,
        }
    }
}

/// Reads as much as it takes to tell HTTP/2 from HTTP/1: whether it is the former. Ends with an error
/// where the client ends before that.
pub(crate) async fn is_http2<S: AsyncRead + Unpin>(socket: S) -> io::Result<(bool, Prefixed<S>)> {
    let mut prefixed = Prefixed::new(socket);
    let mut length = 0;
    loop {
        let read = prefixed.socket.read(&mut prefixed.read[length..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        length += read;
        prefixed.to = u8::try_from(length).unwrap_or(u8::MAX);
        if prefixed.read[..length] != PREFACE[..length] {
            return Ok((false, prefixed));
        }
        if length == PREFACE.len() {
            return Ok((true, prefixed));
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let rest = &this.read[usize::from(this.from)..usize::from(this.to)];
        if rest.is_empty() {
            return Pin::new(&mut this.socket).poll_read(context, buffer);
        }
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..length]);
        this.from += u8::try_from(length).unwrap_or(u8::MAX);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    async fn tell(pieces: &[&[u8]]) -> (bool, Vec<u8>) {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let writing = async {
            for piece in pieces {
                theirs.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(theirs);
        };
        let reading = async {
            let (http2, mut socket) = is_http2(ours).await.unwrap();
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await.unwrap();
            (http2, rest)
        };
        tokio::join!(writing, reading).1
    }

    #[tokio::test]
    async fn http_2_is_told_by_its_preface_and_nothing_is_lost() {
        let all = [PREFACE.as_slice(), b"more"].concat();
        assert_eq!(tell(&[&all]).await, (true, all.clone()));
        assert_eq!(tell(&[&all[..3], &all[3..]]).await, (true, all));
        for other in [
            "GET / HTTP/1.1\r\n",
            "PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n",
            "P",
        ] {
            let other = other.as_bytes();
            if other.len() > 1 {
                assert_eq!(
                    tell(&[&other[..1], &other[1..]]).await,
                    (false, other.to_vec())
                );
            } else {
                let (ours, theirs) = tokio::io::duplex(64);
                drop(theirs);
                assert!(is_http2(ours).await.is_err());
            }
        }
    }
}
