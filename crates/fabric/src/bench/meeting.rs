//! The stream over which the two processes talk: a greeting with a version, then messages of bounded
//! length, each behind its length in four bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;

use super::BenchError;
use super::message::Word;

/// Says what this is and which version of it.
const GREETING: [u8; 12] = *b"tandembench3";
/// Bytes of a message, at most.
const LONGEST: usize = 256 << 10;
/// For the rest of a message whose beginning has come.
const WHOLE: Duration = Duration::from_secs(5);

pub(super) struct Meeting {
    stream: TcpStream,
    /// Came while nobody listened.
    pending: Option<Word>,
}

impl Meeting {
    /// Greets, and waits for the other's greeting.
    pub(super) fn open(stream: TcpStream) -> Result<Self, BenchError> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WHOLE))?;
        let mut this = Self {
            stream,
            pending: None,
        };
        this.stream.write_all(&GREETING)?;
        let mut theirs = [0; GREETING.len()];
        this.read(&mut theirs, Instant::now() + WHOLE)?;
        if theirs != GREETING {
            let theirs = theirs.escape_ascii();
            return Err(BenchError::Protocol(format!("it greets with {theirs:?}")));
        }
        Ok(this)
    }

    /// This side's address.
    pub(super) fn local(&self) -> Result<IpAddr, BenchError> {
        Ok(self.stream.local_addr()?.ip())
    }

    /// The other side's address.
    pub(super) fn remote(&self) -> Result<IpAddr, BenchError> {
        Ok(self.stream.peer_addr()?.ip())
    }

    pub(super) fn say(&mut self, word: &Word) -> Result<(), BenchError> {
        let body = serde_json::to_vec(word).map_err(io::Error::from)?;
        if body.len() > LONGEST {
            return Err(BenchError::Protocol("a message is too long to say".into()));
        }
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(body);
        Ok(self.stream.write_all(&bytes)?)
    }

    /// The next message.
    pub(super) fn hear(&mut self, within: Duration) -> Result<Word, BenchError> {
        match self.pending.take() {
            Some(word) => Ok(word),
            None => self.next(Instant::now() + within),
        }
    }

    /// The next message if it is there.
    pub(super) fn poll(&mut self) -> Result<Option<Word>, BenchError> {
        self.look()?;
        Ok(self.pending.take())
    }

    /// Fails where the other process is gone or has failed.
    pub(super) fn look(&mut self) -> Result<(), BenchError> {
        if self.pending.is_some() {
            return Ok(());
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.stream, &mut [0; 1], flags) {
            Ok((_, 0)) => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(_) => {
                self.pending = Some(self.next(Instant::now() + WHOLE)?);
                Ok(())
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    fn next(&mut self, deadline: Instant) -> Result<Word, BenchError> {
        let mut len = [0; 4];
        self.read(&mut len, deadline)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > LONGEST {
            return Err(BenchError::Protocol(format!("a message of {len} bytes")));
        }
        let mut body = vec![0; len];
        self.read(&mut body, Instant::now() + WHOLE)?;
        match serde_json::from_slice(&body) {
            Ok(Word::Failed(error)) => Err(BenchError::Other(error)),
            Ok(word) => Ok(word),
            Err(error) => Err(BenchError::Protocol(error.to_string())),
        }
    }

    fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<(), BenchError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            // A timeout of zero would be none.
            let left = left.max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(n) => filled += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Err(io::Error::from(ErrorKind::TimedOut).into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A message that must not come now.
pub(super) fn unexpected(word: &Word) -> BenchError {
    BenchError::Protocol(format!("{word:?} comes out of turn"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What a side makes of these bytes, behind a good greeting or instead of it.
    fn told(greeting: &[u8], bytes: &[u8]) -> Result<Word, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        other.write_all(greeting).unwrap();
        other.write_all(bytes).unwrap();
        other.shutdown(std::net::Shutdown::Write).unwrap();
        let mut meeting = Meeting::open(listener.accept().unwrap().0)?;
        meeting.hear(Duration::from_secs(5))
    }

    #[test]
    fn nonsense_is_an_error() {
        let framed = |body: &[u8]| [&(body.len() as u32).to_le_bytes(), body].concat();
        let protocol = |told| assert!(matches!(told, Err(BenchError::Protocol(_))), "{told:?}");
        let gone = |told| assert!(matches!(told, Err(BenchError::Gone(_))), "{told:?}");
        protocol(told(b"GET / HTTP/1.1\r\n", b""));
        protocol(told(b"tandembench1", b""));
        gone(told(b"tand", b""));
        gone(told(&GREETING, b""));
        gone(told(&GREETING, &[9, 0, 0, 0, b'"']));
        protocol(told(&GREETING, &[255; 64]));
        protocol(told(&GREETING, &framed(b"\xff\xfe")));
        protocol(told(&GREETING, &framed(br#"{"Begin":7}"#)));
        protocol(told(&GREETING, &framed(br#""Sing""#)));
        protocol(told(&GREETING, &framed(b"")));
        assert_eq!(
            told(&GREETING, &framed(br#""Begin""#)).unwrap(),
            Word::Begin
        );
    }

    #[test]
    fn a_failure_over_there_is_an_error_here() {
        let body = serde_json::to_vec(&Word::Failed("no memory".into())).unwrap();
        let bytes = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
        let error = told(&GREETING, &bytes).unwrap_err().to_string();
        assert_eq!(error, "the other process failed: no memory");
    }
}
