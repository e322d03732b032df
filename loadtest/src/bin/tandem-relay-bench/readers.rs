//! Clients that read streams with as little work as can be: no HTTP library, no JSON.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tandem_wire::task::{Task, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::{Error, now_ns};

/// Microseconds up to which each has a counter of its own.
const FINE: usize = 1_000_000;

/// How long something took, in microseconds, many times over.
pub(crate) struct Times {
    counts: Vec<AtomicU64>,
}

impl Times {
    fn new() -> Self {
        Self {
            counts: (0..=FINE).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn add(&self, ns: u64) {
        let at = (ns / 1000).min(FINE as u64) as usize;
        self.counts[at].fetch_add(1, Ordering::Relaxed);
    }

    fn clear(&self) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }

    /// In microseconds.
    pub(crate) fn quantile(&self, q: f64) -> u64 {
        let rank = (self.count() as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (us, count) in self.counts.iter().enumerate() {
            seen += count.load(Ordering::Relaxed);
            if seen >= rank.max(1) {
                return us as u64;
            }
        }
        FINE as u64
    }
}

/// What all readers of a measurement tell.
pub(crate) struct Readings {
    /// From a token's sending at the worker to its event at the client.
    pub(crate) latency: Times,
    /// Between two events of one stream.
    pub(crate) gaps: Times,
    measuring: AtomicBool,
    /// Why the first stream that broke did.
    pub(crate) broken: OnceLock<String>,
}

impl Readings {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            latency: Times::new(),
            gaps: Times::new(),
            measuring: AtomicBool::new(false),
            broken: OnceLock::new(),
        })
    }

    /// From now on everything counts.
    pub(crate) fn begin(&self) {
        self.latency.clear();
        self.gaps.clear();
        self.measuring.store(true, Ordering::Relaxed);
    }

    /// From now on nothing counts.
    pub(crate) fn end(&self) {
        self.measuring.store(false, Ordering::Relaxed);
    }

    fn event(&self, sent: u64, last: &mut u64) {
        let now = now_ns();
        if self.measuring.load(Ordering::Relaxed) {
            self.latency.add(now.saturating_sub(sent));
            if *last > 0 {
                self.gaps.add(now - *last);
            }
        }
        *last = now;
    }
}

/// How a client behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Reads whatever comes.
    Reads,
    /// Reads a few bytes now and then.
    Slow,
    /// Leaves after the first token, and comes again.
    Leaves,
}

/// Opens `count` streams of `tokens` tokens and waits until each has had its first one.
pub(crate) async fn open(
    address: SocketAddr,
    model: &str,
    count: usize,
    tokens: u32,
    manner: Manner,
    readings: &Arc<Readings>,
) -> Result<Vec<Task<()>>, Error> {
    let (begun, mut begins) = mpsc::channel(count.max(1));
    let mut tasks = Vec::with_capacity(count);
    for _ in 0..count {
        let request = request(model, tokens);
        let (readings, begun) = (Arc::clone(readings), begun.clone());
        tasks.push(spawn("reader", async move {
            loop {
                let streamed = stream(address, &request, manner, &readings, &begun).await;
                if let Err(error) = streamed.map_err(|e| e.to_string()) {
                    let _ = readings.broken.set(error);
                }
                if manner != Manner::Leaves {
                    return;
                }
            }
        }));
    }
    for _ in 0..count {
        let first = tokio::time::timeout(Duration::from_secs(60), begins.recv()).await;
        if let Some(why) = readings.broken.get() {
            return Err(why.clone().into());
        }
        first?.ok_or("no stream began")?;
    }
    Ok(tasks)
}

fn request(model: &str, tokens: u32) -> Vec<u8> {
    let body = format!(
        "{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hi\"}}],\
         \"max_tokens\":{tokens},\"stream\":true}}"
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn stream(
    address: SocketAddr,
    request: &[u8],
    manner: Manner,
    readings: &Readings,
    begun: &mpsc::Sender<()>,
) -> Result<(), Error> {
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    socket.write_all(request).await?;
    let mut buffer = vec![0; if manner == Manner::Slow { 16 } else { 4096 }];
    let (mut kept, mut last, mut head, mut first) = (0, 0, true, true);
    loop {
        let read = socket.read(&mut buffer[kept..]).await?;
        if read == 0 {
            return if first {
                Err("no token came".into())
            } else {
                Ok(())
            };
        }
        let filled = kept + read;
        if std::mem::take(&mut head) && !buffer.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&buffer[..filled]).into());
        }
        let (times, used) = times(&buffer[..filled]);
        for sent in times {
            readings.event(sent, &mut last);
            if std::mem::take(&mut first) {
                let _ = begun.try_send(());
                if manner == Manner::Leaves {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    return Ok(());
                }
            }
        }
        if manner == Manner::Slow {
            if std::mem::take(&mut first) {
                let _ = begun.try_send(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            kept = 0;
            continue;
        }
        buffer.copy_within(used..filled, 0);
        kept = filled - used;
        if kept == buffer.len() {
            kept = 0;
        }
    }
}

/// The times in whole events, and how many bytes those take.
fn times(bytes: &[u8]) -> (Vec<u64>, usize) {
    const MARK: &[u8] = b"\"content\":\" ";
    let (mut found, mut used) = (Vec::new(), 0);
    while let Some(end) = find(&bytes[used..], b"\n\n") {
        let event = &bytes[used..used + end];
        used += end + 2;
        if let Some(at) = find(event, MARK) {
            let digits = event[at + MARK.len()..]
                .iter()
                .take_while(|b| b.is_ascii_digit());
            found.push(digits.fold(0, |n, b| n * 10 + u64::from(b - b'0')));
        }
    }
    (found, used)
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|w| w == pattern)
}
