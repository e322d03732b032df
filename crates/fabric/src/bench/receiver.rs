//! Where the receiving process is, as the measuring one sees it.

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::BenchError;
use super::meeting::Meeting;

/// For a child to start.
const START: Duration = Duration::from_secs(20);

/// The other process of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// A child: this executable with these arguments and, as the last one, an address that it gives
    /// to [`super::receive()`]. Its standard output is closed.
    Spawn(Vec<OsString>),
    /// A process that runs [`super::serve`] at this `host:port`.
    Connect(String),
}

/// A child that is killed when dropped.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end, but not for ever.
    pub(super) fn finish(mut self) -> Result<(), BenchError> {
        let started = Instant::now();
        while started.elapsed() < START {
            match self.0.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(BenchError::Other(status.to_string())),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Err(BenchError::Stuck(START))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // What it had open on shm.
        let _ = crate::shm::remove_leftovers();
    }
}

impl Receiver {
    /// Starts it or connects to it.
    pub(super) fn meet(&self) -> Result<(Meeting, Option<Process>), BenchError> {
        let arguments = match self {
            Self::Connect(address) => {
                let to = TcpStream::connect(address.as_str()).map_err(|error| {
                    std::io::Error::new(error.kind(), format!("{address}: {error}"))
                })?;
                return Ok((Meeting::open(to)?, None));
            }
            Self::Spawn(arguments) => arguments,
        };
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .arg(listener.local_addr()?.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let mut child = Process(child);
        let stream = accept(&listener, &mut child)?;
        Ok((Meeting::open(stream)?, Some(child)))
    }
}

fn accept(listener: &TcpListener, child: &mut Process) -> Result<TcpStream, BenchError> {
    listener.set_nonblocking(true)?;
    let started = Instant::now();
    while started.elapsed() < START {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = child.0.try_wait()? {
            let text = format!("it ended before it had begun: {status}");
            return Err(BenchError::Other(text));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::from(ErrorKind::TimedOut).into())
}
