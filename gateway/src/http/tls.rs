//! The certificate that clients, or operators, see, and its exchange for a newer one while the gateway runs.
//!
//! What must hold: what is in use was right when it was loaded, certificate, key and authorities
//! together; files that are not right change nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::crypto::rustls::QuicServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tandem_config::TlsConfig;
use tandem_wire::task::{Task, spawn};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at};

use crate::metrics::Metrics;

/// Larger ones are no certificates.
const LONGEST_FILE: u64 = 1 << 20;

/// Why certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds no PEM of the wanted kind.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The files can be read, and do not go together.
    #[error("{} and {}: {why}", certificate.display(), key.display())]
    Unfit {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Certificates in use.
#[derive(Clone)]
pub(crate) struct Loaded {
    /// For TCP, with what is spoken inside.
    pub(crate) tcp: Arc<ServerConfig>,
    /// For UDP.
    pub(crate) quic: Arc<QuicServerConfig>,
    /// Seconds since 1970 at which the certificate expires.
    expiry: i64,
}

/// Holds what is in use. Clones share it.
#[derive(Clone)]
pub(crate) struct Tls {
    inner: Arc<Inner>,
}

/// Whom a certificate is shown to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    Clients,
    Operators,
}

impl Whom {
    /// The table that names the files.
    pub(crate) const fn table(self) -> &'static str {
        match self {
            Self::Clients => "tls",
            Self::Operators => "admin.tls",
        }
    }
}

struct Inner {
    whom: Whom,
    config: TlsConfig,
    metrics: Arc<Metrics>,
    loaded: watch::Sender<Loaded>,
    known: Mutex<Known>,
}

/// The files, as far as they are known.
struct Known {
    /// Those in use.
    used: Files,
    /// What was looked at last, good or bad: each change is judged once.
    seen: Result<Files, TlsError>,
}

/// What the files hold and is not in use yet. It is right.
pub(crate) struct NextCertificate {
    files: Files,
    loaded: Loaded,
}

/// What the files hold.
#[derive(Clone, PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// What came of a look at the files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reload {
    /// They are as they were.
    Unchanged,
    /// New connections see what they hold now.
    Loaded,
    /// They are not right, and what was in use stays.
    Kept(TlsError),
}

impl Tls {
    /// Loads the files.
    pub(crate) fn open(
        whom: Whom,
        config: &TlsConfig,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, TlsError> {
        let files = Files::read(config)?;
        let loaded = files.load(config)?;
        let expiry = loaded.expiry;
        let inner = Inner {
            whom,
            config: config.clone(),
            metrics: Arc::clone(metrics),
            loaded: watch::Sender::new(loaded),
            known: Mutex::new(Known {
                used: files.clone(),
                seen: Ok(files),
            }),
        };
        let tls = Self {
            inner: Arc::new(inner),
        };
        tls.tell(expiry);
        Ok(tls)
    }

    /// Operators' expiry is told with the other certificates of the fleet's own.
    fn tell(&self, expiry: i64) {
        if self.inner.whom == Whom::Clients {
            self.inner.metrics.http.certificate(expiry);
        }
    }

    pub(crate) fn whom(&self) -> Whom {
        self.inner.whom
    }

    /// Seconds since 1970 at which what is in use expires.
    pub(crate) fn expiry(&self) -> i64 {
        self.inner.loaded.borrow().expiry
    }

    /// What is in use.
    pub(crate) fn loaded(&self) -> Loaded {
        self.inner.loaded.borrow().clone()
    }

    /// Learns of what is used from then on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Loaded> {
        self.inner.loaded.subscribe()
    }

    pub(crate) fn config(&self) -> &TlsConfig {
        &self.inner.config
    }

    /// What the files hold, where that is something else than what is in use. Changes nothing. Reads
    /// files: not for a thread that others wait for.
    pub(crate) fn look(&self) -> Result<Option<NextCertificate>, TlsError> {
        let files = Files::read(&self.inner.config)?;
        if files == self.known().used {
            return Ok(None);
        }
        let loaded = files.load(&self.inner.config)?;
        Ok(Some(NextCertificate { files, loaded }))
    }

    /// New connections see it.
    pub(crate) fn take(&self, next: NextCertificate) {
        let NextCertificate { files, loaded } = next;
        let inner = &*self.inner;
        *self.known() = Known {
            used: files.clone(),
            seen: Ok(files),
        };
        inner.metrics.http.reloaded(true);
        self.tell(loaded.expiry);
        inner.loaded.send_replace(loaded);
        tracing::info!(certificate = %inner.config.certificate.display(), "new certificate");
    }

    /// Nothing panics while it is held.
    fn known(&self) -> MutexGuard<'_, Known> {
        let known = self.inner.known.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the files, and takes what is new in them. Reads files: not for a thread that others
    /// wait for.
    pub(crate) fn reload(&self) -> Reload {
        let files = Files::read(&self.inner.config);
        let mut known = self.known();
        if files == known.seen {
            return Reload::Unchanged;
        }
        known.seen.clone_from(&files);
        drop(known);
        let load = |files: Files| {
            let loaded = files.load(&self.inner.config)?;
            Ok(NextCertificate { files, loaded })
        };
        match files.and_then(load) {
            Ok(next) => {
                self.take(next);
                Reload::Loaded
            }
            Err(error) => {
                self.inner.metrics.http.reloaded(false);
                tracing::error!(%error, "the certificate stays as it was");
                Reload::Kept(error)
            }
        }
    }

    /// Looks at the files from time to time.
    pub(crate) fn watch(&self) -> Task<()> {
        let tls = self.clone();
        spawn("certificates", async move {
            let every = tls.inner.config.reload_interval;
            // They have just been read.
            let mut ticks = interval_at(Instant::now() + every, every);
            loop {
                ticks.tick().await;
                let tls = tls.clone();
                // Fails only where the gateway ends.
                let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
            }
        })
    }
}

impl Files {
    fn read(config: &TlsConfig) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&config.certificate)?,
            key: read(&config.key)?,
            client_ca: config.client_ca.as_deref().map(read).transpose()?,
        })
    }

    fn load(&self, config: &TlsConfig) -> Result<Loaded, TlsError> {
        let chain = certificates(&config.certificate, &self.certificate)?;
        let expiry = expiry(&config.certificate, &chain[0])?;
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|error| TlsError::file(&config.key, &error))?;
        let client_ca = config.client_ca.as_deref().zip(self.client_ca.as_deref());
        let unfit = |error: rustls::Error| TlsError::Unfit {
            certificate: config.certificate.clone(),
            key: config.key.clone(),
            why: error.to_string(),
        };
        let build = |protocols: &[&[u8]]| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .map_err(unfit)?;
            let builder = match client_ca {
                None => builder.with_no_client_auth(),
                Some((path, pem)) => {
                    let mut roots = RootCertStore::empty();
                    for root in certificates(path, pem)? {
                        roots
                            .add(root)
                            .map_err(|error| TlsError::file(path, &error))?;
                    }
                    let verifier =
                        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                            .build()
                            .map_err(|error| TlsError::file(path, &error))?;
                    builder.with_client_cert_verifier(verifier)
                }
            };
            let mut tls = builder
                .with_single_cert(chain.clone(), key.clone_key())
                .map_err(unfit)?;
            tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Ok(tls)
        };
        let quic = QuicServerConfig::try_from(build(&[b"h3"])?)
            .map_err(|error| unfit(rustls::Error::General(error.to_string())))?;
        Ok(Loaded {
            tcp: Arc::new(build(&[b"h2", b"http/1.1"])?),
            quic: Arc::new(quic),
            expiry,
        })
    }
}

impl TlsError {
    fn file(path: &Path, why: &impl ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let fail = |error: io::Error| TlsError::file(path, &error);
    let length = fs::metadata(path).map_err(fail)?.len();
    if length > LONGEST_FILE {
        let why = format!("{length} bytes: want at most {LONGEST_FILE}");
        return Err(TlsError::file(path, &why));
    }
    fs::read(path).map_err(fail)
}

/// At least one.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| TlsError::file(path, &error))?;
    if chain.is_empty() {
        return Err(TlsError::file(path, &"holds no certificate in PEM"));
    }
    Ok(chain)
}

fn expiry(path: &Path, certificate: &CertificateDer<'_>) -> Result<i64, TlsError> {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    let (_, parsed) = parsed.map_err(|error| TlsError::file(path, &error))?;
    Ok(parsed.validity().not_after.timestamp())
}
