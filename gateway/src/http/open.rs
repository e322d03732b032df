//! Opening what clients connect to.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use tandem_config::GatewayConfig;
use tandem_wire::task::Task;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use super::connection::ConnectionLimits;
use super::http1::Patience;
use super::http3;
use super::layers::head_limits;
use super::pace::Pace;
use super::server::{Front, Limits};
use super::tls::{Tls, TlsError, Whom};
use crate::metrics::Metrics;
use crate::reload::{Commit, Part};

/// Connections that the system keeps until they are accepted.
const BACKLOG: u32 = 1024;
/// Of a connection, in the system, for what its client does not read. Linux doubles it. Events are
/// small, and what waits here is late.
const SEND_BUFFER: u32 = 16 << 10;
/// Port 0 takes any TCP port that is free; another process may have the UDP port of that number.
const TRIES: usize = 16;

/// Why clients cannot connect.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// An address is not to be had.
    Listen {
        address: SocketAddr,
        protocol: &'static str,
        source: io::Error,
    },
    /// Certificates.
    Tls(TlsError),
}

/// What is open.
pub(crate) struct Opened {
    /// Of TCP, and of UDP where HTTP/3 is served.
    pub(crate) address: SocketAddr,
    pub(crate) front: Front,
    /// Changes the bounds of new connections.
    pub(crate) limits: FollowsLimits,
    /// Certificates, while they are looked at.
    pub(crate) watch: Vec<Task<()>>,
}

impl Opened {
    /// Where HTTP/3 is served.
    pub(crate) fn http3_port(&self) -> Option<u16> {
        self.front.quic.as_ref().map(|_| self.address.port())
    }
}

/// Listens as the configuration says.
pub(crate) fn open(config: &GatewayConfig, metrics: &Arc<Metrics>) -> Result<Opened, OpenError> {
    let limits = limits(config);
    let follows = FollowsLimits(watch::Sender::new(limits));
    let tls = match &config.tls {
        Some(tls) => Some(Tls::open(Whom::Clients, tls, metrics).map_err(OpenError::Tls)?),
        None => None,
    };
    let mut watch: Vec<_> = tls.iter().map(Tls::watch).collect();
    let (listener, quic) = match tls.as_ref().filter(|_| config.http.http3) {
        None => (listen(config.listen)?, None),
        Some(tls) => {
            let (listener, socket) = listen_twice(config.listen)?;
            let address = local(&listener, config.listen)?;
            let quic = http3::open(socket, tls, limits.each);
            let quic = quic.map_err(|source| unheard(address, "UDP", source))?;
            let bounds = follows.0.subscribe();
            watch.push(http3::watch(tls, quic.clone(), bounds));
            (listener, Some(quic))
        }
    };
    Ok(Opened {
        address: local(&listener, config.listen)?,
        front: Front {
            listener,
            tls,
            quic,
            limits: follows.0.subscribe(),
            metrics: Arc::clone(metrics),
        },
        limits: follows,
        watch,
    })
}

/// Follows the configuration for new connections, but for the bounds of heads, which the layers have
/// too, and of addresses.
#[derive(Clone)]
pub(crate) struct FollowsLimits(watch::Sender<Limits>);

impl Part for FollowsLimits {
    fn prepare(&self, _: &GatewayConfig, new: &GatewayConfig) -> Result<Option<Commit>, String> {
        let (sender, new) = (self.0.clone(), limits(new));
        Ok(Some(Box::pin(async move {
            sender.send_modify(|limits| {
                let (per_address, head) = (limits.per_address, limits.each.head);
                *limits = Limits { per_address, ..new };
                limits.each.head = head;
            });
        })))
    }
}

const fn limits(config: &GatewayConfig) -> Limits {
    let http = &config.http;
    Limits {
        connections: config.max_connections,
        per_address: http.max_connections_per_address,
        each: ConnectionLimits {
            head: head_limits(http),
            patience: Patience {
                head: config.header_timeout,
                idle: http.idle_timeout,
            },
            pace: Pace {
                grace: config.header_timeout,
                rate: http.min_body_rate,
            },
            write_timeout: config.request_timeout,
            streams: http.max_streams,
        },
    }
}

const fn unheard(address: SocketAddr, protocol: &'static str, source: io::Error) -> OpenError {
    OpenError::Listen {
        address,
        protocol,
        source,
    }
}

fn local(listener: &TcpListener, asked: SocketAddr) -> Result<SocketAddr, OpenError> {
    let local = listener.local_addr();
    local.map_err(|source| unheard(asked, "TCP", source))
}

fn listen(address: SocketAddr) -> Result<TcpListener, OpenError> {
    let listen = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        // Accepted sockets inherit it.
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| unheard(address, "TCP", source))
}

/// The same port of TCP and UDP.
fn listen_twice(address: SocketAddr) -> Result<(TcpListener, UdpSocket), OpenError> {
    let mut left = if address.port() == 0 { TRIES } else { 1 };
    loop {
        let listener = listen(address)?;
        let both = local(&listener, address)?;
        match UdpSocket::bind(both) {
            Ok(socket) => return Ok((listener, socket)),
            Err(source) if left == 1 => return Err(unheard(both, "UDP", source)),
            Err(_) => left -= 1,
        }
    }
}
