//! Plain TCP: one stream, each write behind a header that says where it goes. As a careful program
//! would: gathered and scattered system calls, straight from and into the arena.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tandem_core::plan::PlannedWrite;

use super::BenchError;
use super::meeting::Meeting;
use super::patience::{Patience, STUCK};

/// Offset, length and weight.
const HEADER: usize = 16;
/// Writes in one system call, at most.
const GATHERED: usize = 16;
/// Bytes in one system call, about.
const GATHERED_BYTES: usize = 1 << 20;
/// A system call that waits longer ends, to look at the other process.
const SLICE: Duration = Duration::from_millis(200);

fn header(write: &PlannedWrite) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&write.target.to_le_bytes());
    bytes[8..12].copy_from_slice(&write.bytes.to_le_bytes());
    bytes[12..14].copy_from_slice(&write.pieces.to_le_bytes());
    bytes
}

/// The sending side.
pub(super) struct TcpSender {
    stream: TcpStream,
    arena: Vec<u8>,
}

impl TcpSender {
    pub(super) fn connect(to: IpAddr, port: u16, bytes: usize) -> Result<Self, BenchError> {
        let stream = TcpStream::connect_timeout(&(to, port).into(), STUCK)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SLICE))?;
        // Not zeroes, which would be one page of the kernel's, mapped again and again.
        let arena = vec![1; bytes];
        Ok(Self { stream, arena })
    }

    pub(super) fn push(
        &mut self,
        passes: &[Vec<PlannedWrite>],
        meeting: &mut Meeting,
    ) -> Result<u64, BenchError> {
        let mut writes = 0;
        for pass in passes {
            let mut rest = pass.as_slice();
            while !rest.is_empty() {
                let bytes = rest.iter().scan(0, |sum, w| {
                    *sum += w.bytes as usize;
                    Some(*sum)
                });
                let fit = bytes.take_while(|sum| *sum <= GATHERED_BYTES).count();
                let (now, later) = rest.split_at(fit.clamp(1, GATHERED.min(rest.len())));
                self.send(now, meeting)?;
                writes += now.len() as u64;
                rest = later;
            }
        }
        Ok(writes)
    }

    fn send(&mut self, writes: &[PlannedWrite], meeting: &mut Meeting) -> Result<(), BenchError> {
        let headers: Vec<[u8; HEADER]> = writes.iter().map(header).collect();
        let mut slices = Vec::with_capacity(2 * writes.len());
        for (write, header) in writes.iter().zip(&headers) {
            let from = write.source as usize;
            slices.push(IoSlice::new(header));
            slices.push(IoSlice::new(&self.arena[from..from + write.bytes as usize]));
        }
        let mut slices = slices.as_mut_slice();
        let mut patience = Patience::new();
        while !slices.is_empty() {
            match self.stream.write_vectored(slices) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => {
                    IoSlice::advance_slices(&mut slices, n);
                    patience.moved();
                }
                Err(error) => later(error, &mut patience, meeting)?,
            }
        }
        Ok(())
    }
}

/// The receiving side.
pub(super) struct TcpReceiver {
    listener: TcpListener,
    stream: Option<TcpStream>,
    arena: Vec<u8>,
}

impl TcpReceiver {
    pub(super) fn listen(bind: IpAddr, bytes: usize) -> Result<Self, BenchError> {
        Ok(Self {
            listener: TcpListener::bind((bind, 0))?,
            stream: None,
            arena: vec![1; bytes],
        })
    }

    pub(super) fn port(&self) -> Result<u16, BenchError> {
        Ok(self.listener.local_addr()?.port())
    }

    fn accept(&self, meeting: &mut Meeting) -> Result<TcpStream, BenchError> {
        self.listener.set_nonblocking(true)?;
        let started = Instant::now();
        while started.elapsed() < STUCK {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(SLICE))?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => meeting.look()?,
                Err(error) => return Err(error.into()),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(BenchError::Stuck(STUCK))
    }

    /// Receives pages until their weights have come to this sum.
    pub(super) fn count(&mut self, sum: u64, meeting: &mut Meeting) -> Result<(), BenchError> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.accept(meeting)?,
        };
        let mut counted = 0;
        let mut header = [0; HEADER];
        fill(&mut stream, &mut [], &mut header, meeting)?;
        while counted < sum {
            let field = |range: std::ops::Range<usize>| {
                let bytes = header[range].iter().rev();
                bytes.fold(0u64, |n, b| n << 8 | u64::from(*b))
            };
            let (from, len, weight) = (field(0..8) as usize, field(8..12), field(12..14));
            let page = from
                .checked_add(len as usize)
                .and_then(|end| self.arena.get_mut(from..end));
            let outside = || BenchError::Protocol("a page outside the arena".into());
            let page = page.ok_or_else(outside)?;
            counted += weight;
            // The next header comes with the page, but for the last one.
            let next = if counted < sum { HEADER } else { 0 };
            let mut following = [0; HEADER];
            fill(&mut stream, page, &mut following[..next], meeting)?;
            header = following;
        }
        self.stream = Some(stream);
        Ok(())
    }
}

/// Reads a page and what follows it.
fn fill(
    stream: &mut TcpStream,
    page: &mut [u8],
    following: &mut [u8],
    meeting: &mut Meeting,
) -> Result<(), BenchError> {
    let mut slices = [IoSliceMut::new(page), IoSliceMut::new(following)];
    let mut slices = slices.as_mut_slice();
    let mut patience = Patience::new();
    IoSliceMut::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match stream.read_vectored(slices) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => {
                IoSliceMut::advance_slices(&mut slices, n);
                patience.moved();
            }
            Err(error) => later(error, &mut patience, meeting)?,
        }
    }
    Ok(())
}

/// Whether to try again.
fn later(
    error: io::Error,
    patience: &mut Patience,
    meeting: &mut Meeting,
) -> Result<(), BenchError> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => patience.check(meeting),
        _ => Err(error.into()),
    }
}
