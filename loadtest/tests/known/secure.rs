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

#[test]
fn https_is_spoken_with_a_server_whose_authority_is_given_and_with_no_other() {
    let server = Server::answering(|_| SCRIPT);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = server
        .runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let _front = server
        .runtime
        .spawn(front(listener, acceptor, server.known.address()));
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let url = format!("https://localhost:{port}");
    let trusting = |url: &str, http2| Target {
        ca: Some(ca.clone()),
        http2,
        ..target(url)
    };
    let harness = Harness::start(trusting(&url, false), Api::Chat, None).unwrap();
    let plan = RunPlan {
        requests: Some(6),
        ..plan(&harness, closed(2), synthetic("1", "0s"))
    };
    let counts = run(&harness, &plan).run.phases.measured.all.counts;
    assert_eq!(counts.attained, 6);
    let refused = |target: Target| match Harness::start(target, Api::Chat, None) {
        Ok(_) => panic!("started"),
        Err(error) => error.to_string(),
    };
    let error = refused(target(&url));
    assert!(
        error.contains("of an authority that is not known here") && error.contains("--ca"),
        "{error}"
    );
    let by_address = format!("https://127.0.0.1:{port}");
    let error = refused(trusting(&by_address, false));
    assert!(error.contains("is not for 127.0.0.1: ask by"), "{error}");
    let error = refused(trusting(&url, true));
    assert!(
        error.contains("it speaks no HTTP/2: ask without"),
        "{error}"
    );
    let error = refused(target(&format!("http://localhost:{port}")));
    assert!(error.contains("does it speak TLS?"), "{error}");
    let plain = format!("https://localhost:{}", server.known.address().port());
    let error = refused(trusting(&plain, false));
    assert!(error.contains("ask with http://"), "{error}");
    let error = refused(Target {
        ca: Some(ca.clone()),
        ..server.target()
    });
    assert!(
        error.contains("the URL is http://, want https://"),
        "{error}"
    );
}
