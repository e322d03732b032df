//! TLS: the server's certificate is checked, and figures are as without.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tandem_loadtest::body::Api;
use tandem_loadtest::plan::RunPlan;
use tandem_loadtest::{Harness, Target};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::support::{SCRIPT, Server, closed, plan, run, synthetic, target};

/// Ends TLS before a plain server; the certificate is for `localhost`.
async fn front(listener: TcpListener, acceptor: TlsAcceptor, behind: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            let mut secure = acceptor.accept(stream).await.ok()?;
            let mut plain = TcpStream::connect(behind).await.ok()?;
            tokio::io::copy_bidirectional(&mut secure, &mut plain)
                .await
                .ok()
        });
    }
}

/// A server behind TLS with this certificate, and its port.
struct Secure {
    server: Server,
    port: u16,
    folder: tempfile::TempDir,
}

impl Secure {
    fn start(made: &rcgen::Certificate, key: &rcgen::KeyPair) -> Self {
        let server = Server::answering(|_| SCRIPT);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0");
        let listener = server.runtime.block_on(listener).unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        server
            .runtime
            .spawn(front(listener, acceptor, server.known.address()));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), made.pem()).unwrap();
        Self {
            server,
            port,
            folder,
        }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// With the certificate as what is trusted.
    fn trusting(&self, url: &str, http2: bool) -> Target {
        Target {
            ca: Some(self.folder.path().join("ca.pem")),
            http2,
            ..target(url)
        }
    }
}

fn refused(target: Target) -> String {
    match Harness::start(target, Api::Chat, None) {
        Ok(_) => panic!("started"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_certificate_that_is_its_own_authority_is_trusted_where_it_is_named() {
    // As `openssl req -x509` makes them.
    let key = rcgen::KeyPair::generate().unwrap();
    let mut own = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    own.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let secure = Secure::start(&own.self_signed(&key).unwrap(), &key);
    let url = secure.url();
    let harness = Harness::start(secure.trusting(&url, false), Api::Chat, None).unwrap();
    let plan = RunPlan {
        requests: Some(3),
        ..plan(&harness, closed(1), synthetic("1", "0s"))
    };
    let counts = run(&harness, &plan).run.phases.measured.all.counts;
    assert_eq!(counts.attained, 3);
    let error = refused(target(&url));
    assert!(
        error.contains("give that very certificate with --ca"),
        "{error}"
    );
    let by_address = format!("https://127.0.0.1:{}", secure.port);
    let error = refused(secure.trusting(&by_address, false));
    assert!(error.contains("is not for 127.0.0.1: ask by"), "{error}");
}

#[test]
fn https_is_spoken_with_a_server_whose_authority_is_given_and_with_no_other() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let secure = Secure::start(&made.cert, &made.signing_key);
    let url = secure.url();
    let trusting = |url: &str, http2| secure.trusting(url, http2);
    let harness = Harness::start(trusting(&url, false), Api::Chat, None).unwrap();
    let plan = RunPlan {
        requests: Some(6),
        ..plan(&harness, closed(2), synthetic("1", "0s"))
    };
    let counts = run(&harness, &plan).run.phases.measured.all.counts;
    assert_eq!(counts.attained, 6);
    let error = refused(target(&url));
    assert!(
        error.contains("of an authority that is not known here") && error.contains("--ca"),
        "{error}"
    );
    let by_address = format!("https://127.0.0.1:{}", secure.port);
    let error = refused(trusting(&by_address, false));
    assert!(error.contains("is not for 127.0.0.1: ask by"), "{error}");
    let error = refused(trusting(&url, true));
    assert!(
        error.contains("it speaks no HTTP/2: ask without"),
        "{error}"
    );
    let error = refused(target(&format!("http://localhost:{}", secure.port)));
    assert!(error.contains("does it speak TLS?"), "{error}");
    let plain = format!("https://localhost:{}", secure.server.known.address().port());
    let error = refused(trusting(&plain, false));
    assert!(error.contains("ask with http://"), "{error}");
    let clear = format!("http://{}", secure.server.known.address());
    let error = refused(trusting(&clear, false));
    assert!(
        error.contains("the URL is http://, want https://"),
        "{error}"
    );
}
