//! QUIC connections with mutual TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ring::hmac;
use rustls_pki_types::CertificateDer;
use tandem_core::WorkerId;

use crate::channel::Channel;
use crate::identity::{self, Certificate, Current, Identity, IdentityError};
use crate::transport;

/// Limits of the control plane.
#[derive(Clone, Copy, Debug)]
pub struct ControlOptions {
    /// A connection says something at least this often.
    pub keep_alive: Duration,
    /// A peer that says nothing for so long is lost.
    pub idle_timeout: Duration,
    /// Streams that one peer may have open at once.
    pub max_streams: u32,
}

impl Default for ControlOptions {
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(3),
            max_streams: 8192,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The local address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Certificates.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The peer cannot be reached, or it or we refuse the other's certificate.
    #[error("no connection with {address}: {reason}")]
    Peer {
        /// Which.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
}

/// A UDP port that dials and answers.
#[derive(Clone, Debug)]
pub struct Endpoint {
    inner: quinn::Endpoint,
    client: quinn::ClientConfig,
    /// What both sides show.
    current: Arc<Current>,
    /// Seconds since 1970 at which the first of the authorities that it trusts expires.
    authority_expiry: u64,
}

impl Endpoint {
    /// Listens on `address` (port 0 takes a free one) and dials from there.
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        options: ControlOptions,
    ) -> Result<Self, ConnectError> {
        let transport = transport::config(options);
        let current = Arc::new(Current::new(identity)?);
        let tls = QuicServerConfig::try_from(identity.server_tls(&current)?)
            .map_err(|e| IdentityError::Tls(e.to_string()))?;
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(tls));
        server.transport_config(Arc::clone(&transport));
        let tls = QuicClientConfig::try_from(identity.client_tls(&current)?)
            .map_err(|e| IdentityError::Tls(e.to_string()))?;
        let mut client = quinn::ClientConfig::new(Arc::new(tls));
        client.transport_config(transport);
        let fail = |source| ConnectError::Bind { address, source };
        let socket = std::net::UdpSocket::bind(address).map_err(fail)?;
        transport::widen(&socket).map_err(fail)?;
        let runtime = quinn::default_runtime()
            .ok_or_else(|| fail(std::io::Error::other("outside of a tokio runtime")))?;
        let inner =
            quinn::Endpoint::new(resets(identity), Some(server), socket, runtime).map_err(fail)?;
        Ok(Self {
            inner,
            client,
            current,
            authority_expiry: identity.authority_expiry()?,
        })
    }

    /// Shows a renewed certificate in handshakes from now on. Refused where it proves another role or
    /// name than the present one.
    pub fn renew(&self, identity: &Identity) -> Result<Certificate, IdentityError> {
        self.current.exchange(identity)
    }

    /// Seconds since 1970 at which the certificate expires that it shows in handshakes now.
    #[must_use]
    pub fn expiry(&self) -> u64 {
        self.current.expiry()
    }

    /// Seconds since 1970 at which the first of the authorities expires that it trusts: nobody's
    /// certificate proves anything after that.
    #[must_use]
    pub const fn authority_expiry(&self) -> u64 {
        self.authority_expiry
    }

    /// The address it has.
    ///
    /// # Panics
    /// Where the system does not know it, which no supported system does.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.inner
            .local_addr()
            .expect("a bound socket has an address")
    }

    /// Dials a worker. Fails within the idle timeout where nobody answers.
    pub async fn connect(&self, address: SocketAddr) -> Result<Connection, ConnectError> {
        let fail = |reason: String| ConnectError::Peer { address, reason };
        let connecting = self
            .inner
            .connect_with(self.client.clone(), address, identity::WORKER_NAME)
            .map_err(|e| fail(e.to_string()))?;
        let connection = connecting.await.map_err(|e| fail(e.to_string()))?;
        Connection::new(connection).ok_or_else(|| fail("it showed no certificate".into()))
    }

    /// The next peer that dials us. `None` once the endpoint is closed. Peers that fail the
    /// handshake are logged and dropped.
    pub async fn accept(&self) -> Option<Incoming> {
        self.inner.accept().await.map(Incoming)
    }

    /// Ends all connections at once.
    pub fn close(&self) {
        self.inner.close(0u32.into(), b"stopping");
    }

    /// Waits until the peers know of the end.
    pub async fn closed(&self) {
        self.inner.wait_idle().await;
    }
}

/// How packets of unknown connections are answered: with a stateless reset (RFC 9000, section 10.3)
/// whose tokens come from the process's private key. A process that was killed and is back at its port
/// so tells its peers at once that their connections are gone, instead of leaving them to the idle
/// timeout.
fn resets(identity: &Identity) -> quinn::EndpointConfig {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, identity.secret());
    let key = hmac::sign(&secret, b"tandem stateless reset");
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
    let mut config = quinn::EndpointConfig::new(Arc::new(key));
    // The default generator knows its own life's ids, and drops those of an earlier one unanswered.
    config.cid_generator(|| Box::new(quinn_proto::RandomConnectionIdGenerator::default()));
    config
}

/// A peer that has dialled and not yet proven who it is.
#[derive(Debug)]
pub struct Incoming(quinn::Incoming);

impl Incoming {
    /// Ends the handshake.
    pub async fn accept(self) -> Result<Connection, ConnectError> {
        let address = self.0.remote_address();
        let fail = |reason: String| ConnectError::Peer { address, reason };
        let connection = self.0.await.map_err(|e| fail(e.to_string()))?;
        Connection::new(connection).ok_or_else(|| fail("it showed no certificate".into()))
    }
}

/// A connection with a peer whose certificate the authority signed.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: quinn::Connection,
    certificate: CertificateDer<'static>,
}

impl Connection {
    fn new(inner: quinn::Connection) -> Option<Self> {
        let chain = inner
            .peer_identity()?
            .downcast::<Vec<CertificateDer<'static>>>()
            .ok()?;
        let certificate = chain.into_iter().next()?;
        Some(Self { inner, certificate })
    }

    /// Whether the peer has proven to be a gateway.
    #[must_use]
    pub fn is_gateway(&self) -> bool {
        identity::is_gateway(&self.certificate)
    }

    /// Whether the peer has proven to be the worker `id`.
    #[must_use]
    pub fn is_worker(&self, id: &WorkerId) -> bool {
        identity::is_worker(&self.certificate, id)
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// Opens a stream. Waits while the peer's limit of streams is reached.
    pub async fn open(&self) -> Result<Channel, crate::ChannelError> {
        let stream = self.inner.open_bi().await;
        stream
            .map(Channel::new)
            .map_err(|e| crate::ChannelError::Lost(e.to_string()))
    }

    /// The next stream that the peer opens; an error once the connection has ended.
    pub async fn accept(&self) -> Result<Channel, crate::ChannelError> {
        let stream = self.inner.accept_bi().await;
        stream
            .map(Channel::new)
            .map_err(|e| crate::ChannelError::Lost(e.to_string()))
    }

    /// Waits until the connection has ended, and says why.
    pub async fn lost(&self) -> String {
        self.inner.closed().await.to_string()
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.close_reason().is_some()
    }

    /// Ends it.
    pub fn close(&self, reason: &str) {
        self.inner.close(0u32.into(), reason.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Authority, PeerRole};
    use crate::proto;

    fn localhost() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn identity(folder: &std::path::Path, role: &PeerRole) -> Identity {
        Authority::open_or_create(folder)
            .unwrap()
            .issue(role)
            .unwrap();
        Identity::load(folder, role.file_stem()).unwrap()
    }

    fn bind(folder: &std::path::Path, role: &PeerRole) -> Endpoint {
        Endpoint::bind(
            localhost(),
            &identity(folder, role),
            ControlOptions::default(),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_message_crosses_and_the_peer_is_who_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let id = WorkerId::new("decode-0").unwrap();
        let worker = bind(folder.path(), &PeerRole::Worker(id.clone()));
        let gateway = bind(folder.path(), &PeerRole::Gateway);
        let address = worker.address();
        let serve = async {
            let connection = worker.accept().await.unwrap().accept().await.unwrap();
            assert!(connection.is_gateway());
            let mut channel = connection.accept().await.unwrap();
            let open: proto::Open = channel.recv.expect().await.unwrap();
            channel.send.send(&open).await.unwrap();
            channel.send.finish();
            assert!(channel.recv.next::<proto::Open>().await.unwrap().is_none());
            connection
        };
        let dial = async {
            let connection = gateway.connect(address).await.unwrap();
            assert!(connection.is_worker(&id));
            assert!(!connection.is_gateway());
            let mut channel = connection.open().await.unwrap();
            let hello = proto::Hello {
                version: 1,
                name: "gateway".into(),
                incarnation: 5,
            };
            let open = proto::Open {
                kind: Some(proto::open::Kind::Control(hello)),
            };
            channel.send.send(&open).await.unwrap();
            let back: proto::Open = channel.recv.expect().await.unwrap();
            assert_eq!(back, open);
            channel.send.finish();
            assert!(channel.recv.next::<proto::Open>().await.unwrap().is_none());
            connection
        };
        // Whoever is through first must not close: the other one may not have read the last message.
        let _open = tokio::join!(serve, dial);
    }

    #[tokio::test]
    async fn a_certificate_of_another_authority_gets_nothing() {
        let ours = tempfile::tempdir().unwrap();
        let theirs = tempfile::tempdir().unwrap();
        let worker = bind(ours.path(), &PeerRole::Worker(WorkerId::new("w").unwrap()));
        let stranger = bind(theirs.path(), &PeerRole::Gateway);
        let address = worker.address();
        let accept = async { worker.accept().await.unwrap().accept().await.is_err() };
        let dial = async {
            match stranger.connect(address).await {
                Err(_) => true,
                // The client may finish first; its first use of the connection then fails.
                Ok(connection) => connection.accept().await.is_err(),
            }
        };
        let (refused, failed) = tokio::join!(accept, dial);
        assert!(failed && refused);
    }

    #[test]
    fn peers_of_a_killed_process_hear_of_it_as_soon_as_it_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let role = PeerRole::Worker(WorkerId::new("w").unwrap());
        let worker = identity(folder.path(), &role);
        let gateway = identity(folder.path(), &PeerRole::Gateway);
        // Long enough that nothing but the reset can end the connection.
        let options = ControlOptions {
            keep_alive: Duration::from_millis(100),
            idle_timeout: Duration::from_secs(600),
            ..ControlOptions::default()
        };
        let runtime = || tokio::runtime::Runtime::new().unwrap();
        let (first_life, ours) = (runtime(), runtime());
        let bind = |address, identity| Endpoint::bind(address, identity, options).unwrap();
        let first = first_life.block_on(async { bind(localhost(), &worker) });
        let address = first.address();
        let serve = async move {
            let connection = first.accept().await.unwrap().accept().await.unwrap();
            let mut channel = connection.accept().await.unwrap();
            let open: proto::Open = channel.recv.expect().await.unwrap();
            channel.send.send(&open).await.unwrap();
            connection.lost().await
        };
        first_life.spawn(serve);
        let dialler = ours.block_on(async { bind(localhost(), &gateway) });
        let connection = ours.block_on(dialler.connect(address)).unwrap();
        // A handshake that only one side has ended is resumed with packets that nobody resets.
        ours.block_on(async {
            let mut channel = connection.open().await.unwrap();
            channel.send.send(&proto::Open::default()).await.unwrap();
            channel.recv.expect::<proto::Open>().await.unwrap();
        });
        // Its tasks end wherever they are, and say nothing to anybody: as if it was killed.
        first_life.shutdown_timeout(Duration::from_secs(10));
        let why = ours.block_on(async {
            let _second = bind(address, &worker);
            tokio::time::timeout(Duration::from_secs(60), connection.lost()).await
        });
        assert_eq!(why.expect("a reset"), "reset by peer");
    }

    #[tokio::test]
    async fn a_gateways_certificate_does_not_answer_for_a_worker() {
        let folder = tempfile::tempdir().unwrap();
        let impostor = bind(folder.path(), &PeerRole::Gateway);
        let dialler = bind(folder.path(), &PeerRole::Gateway);
        let accept = async { impostor.accept().await.unwrap().accept().await.is_err() };
        let (refused, dialled) = tokio::join!(accept, dialler.connect(impostor.address()));
        assert!(refused && dialled.is_err());
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_shown_in_new_handshakes_and_open_connections_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let id = WorkerId::new("w").unwrap();
        let worker = bind(folder.path(), &PeerRole::Worker(id.clone()));
        let gateway = bind(folder.path(), &PeerRole::Gateway);
        let meet = async || {
            let dialled = gateway.connect(worker.address());
            let accepted = async { worker.accept().await.unwrap().accept().await.unwrap() };
            let (dialled, accepted) = tokio::join!(dialled, accepted);
            (dialled.unwrap(), accepted)
        };
        let (before, accepted) = meet().await;
        let _following = crate::identity::follow_identity(&worker, folder.path(), "w");
        let authority = Authority::open(folder.path()).unwrap();
        authority.renew("w", Some(7), true).unwrap();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
        let (after, _accepted) = loop {
            let (after, accepted) = meet().await;
            if after.certificate != before.certificate {
                break (after, accepted);
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "not renewed in time"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(after.is_worker(&id));
        let renewed = Certificate::read(&folder.path().join("w.pem")).unwrap();
        assert_eq!(worker.expiry(), renewed.not_after);
        assert!(renewed.not_after < worker.authority_expiry());
        assert!(!before.is_lost() && !accepted.is_lost());
        // Another's certificate takes nobody's place.
        let stranger = identity(
            folder.path(),
            &PeerRole::Worker(WorkerId::new("x").unwrap()),
        );
        let refused = worker.renew(&stranger).unwrap_err().to_string();
        assert!(
            refused.contains("it is worker x, this process is worker w"),
            "{refused}"
        );
        let promoted = identity(folder.path(), &PeerRole::Gateway);
        assert!(worker.renew(&promoted).is_err());
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let first = bind(folder.path(), &PeerRole::Gateway);
        let identity = identity(folder.path(), &PeerRole::Gateway);
        let second = Endpoint::bind(first.address(), &identity, ControlOptions::default());
        let text = second.unwrap_err().to_string();
        assert!(text.contains(&first.address().to_string()), "{text}");
    }

    #[tokio::test]
    async fn an_oversized_message_is_refused_by_its_length_alone() {
        let folder = tempfile::tempdir().unwrap();
        let worker = bind(
            folder.path(),
            &PeerRole::Worker(WorkerId::new("w").unwrap()),
        );
        let gateway = bind(folder.path(), &PeerRole::Gateway);
        let address = worker.address();
        let serve = async {
            let connection = worker.accept().await.unwrap().accept().await.unwrap();
            let mut channel = connection.accept().await.unwrap();
            let error = channel.recv.next::<proto::Open>().await.unwrap_err();
            assert!(matches!(error, crate::ChannelError::TooLarge(_)), "{error}");
        };
        let dial = async {
            let connection = gateway.connect(address).await.unwrap();
            let (mut send, _recv) = connection.inner.open_bi().await.unwrap();
            send.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
            connection.lost().await
        };
        tokio::select! { () = serve => {}, _ = dial => panic!("lost") }
    }
}
