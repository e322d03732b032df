//! Two processes meet over a TCP stream.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// What the sender must know.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invitation {
    pub(super) address: Vec<u8>,
    pub(super) base: u64,
    pub(super) key: u64,
    /// The slot key's bits, for the engine.
    pub(super) slot: u32,
}

impl Invitation {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        bytes.extend(self.base.to_le_bytes());
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.slot.to_le_bytes());
        bytes.push(u8::try_from(self.address.len()).map_err(io::Error::other)?);
        bytes.extend(&self.address);
        to.write_all(&bytes)
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut fixed = [0; 21];
        from.read_exact(&mut fixed)?;
        let long = |at: usize| {
            fixed[at..at + 8]
                .iter()
                .rev()
                .fold(0, |n, b| n << 8 | u64::from(*b))
        };
        let slot = fixed[16..20]
            .iter()
            .rev()
            .fold(0, |n, b| n << 8 | u32::from(*b));
        let mut address = vec![0; usize::from(fixed[20])];
        from.read_exact(&mut address)?;
        Ok(Self {
            address,
            base: long(0),
            key: long(8),
            slot,
        })
    }
}

/// The sender has all its completions.
pub(super) fn say_done(peer: &mut TcpStream) -> io::Result<()> {
    peer.write_all(&[1])
}

/// Calls `progress` until the sender is done or gone.
pub(super) fn until_done(peer: &mut TcpStream, mut progress: impl FnMut()) -> io::Result<()> {
    peer.set_nonblocking(true)?;
    loop {
        progress();
        match peer.read(&mut [0]) {
            Ok(_) => return peer.set_nonblocking(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Invitation;

    #[test]
    fn an_invitation_survives_the_way() {
        let sent = Invitation {
            address: vec![1, 2, 3],
            base: 1 << 60,
            key: 77,
            slot: 0xabcde,
        };
        let mut bytes = Vec::new();
        sent.write(&mut bytes).unwrap();
        assert_eq!(Invitation::read(&mut bytes.as_slice()).unwrap(), sent);
    }
}
