//! The certificate that a process shows in new handshakes, and the exchange for a renewed one.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::{MissedTickBehavior, interval};

use super::{Certificate, Identity, IdentityError};
use crate::endpoint::Endpoint;
use crate::task::{Task, spawn};

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shared by a process's dialling and its answering side.
#[derive(Debug)]
pub(crate) struct Current {
    key: RwLock<Arc<CertifiedKey>>,
    /// Seconds since 1970 at which its certificate expires.
    expiry: AtomicU64,
}

impl Current {
    pub(crate) fn new(identity: &Identity) -> Result<Self, IdentityError> {
        Ok(Self {
            key: RwLock::new(Arc::new(identity.certified()?)),
            expiry: AtomicU64::new(identity.certificate()?.not_after),
        })
    }

    /// Seconds since 1970 at which the certificate expires.
    pub(crate) fn expiry(&self) -> u64 {
        self.expiry.load(Ordering::Relaxed)
    }

    /// From the next handshake on. Refused where it proves another role or name than the present one.
    pub(crate) fn exchange(&self, identity: &Identity) -> Result<Certificate, IdentityError> {
        let new = identity.certified()?;
        let parse = |key: &CertifiedKey| {
            let first = key.cert.first().ok_or_else(|| "no certificate".to_owned());
            first
                .and_then(Certificate::parse)
                .map_err(IdentityError::Tls)
        };
        let (says, said) = (parse(&new)?, parse(&self.get())?);
        if says.peer != said.peer {
            let reason = format!("it is {}, this process is {}", says.role(), said.role());
            return Err(IdentityError::Tls(reason));
        }
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        self.expiry.store(says.not_after, Ordering::Relaxed);
        Ok(says)
    }

    fn get(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Has the endpoint show the certificate of those files once they were renewed, for as long as the
/// handle is kept. Connections that are open go on; another authority needs a restart.
pub fn follow_identity(endpoint: &Endpoint, directory: &Path, name: &str) -> Task<()> {
    let (endpoint, directory, name) = (endpoint.clone(), directory.to_owned(), name.to_owned());
    let paths = ["pem", "key"].map(|ending| directory.join(format!("{name}.{ending}")));
    let mut taken = stamps(&paths);
    spawn("identity", async move {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_word = String::new();
        loop {
            looks.tick().await;
            let now = stamps(&paths);
            if now == taken {
                continue;
            }
            // One of two files may be new and the other not yet: then it is tried again.
            let loaded = Identity::load(&directory, &name);
            match loaded.and_then(|identity| endpoint.renew(&identity)) {
                Ok(certificate) => {
                    taken = now;
                    last_word.clear();
                    tracing::info!(until = certificate.until(), "certificate renewed");
                }
                Err(error) => {
                    let word = error.to_string();
                    if word != last_word {
                        tracing::warn!("the old certificate stays in use: {word}");
                    }
                    last_word = word;
                }
            }
        }
    })
}

fn stamps(paths: &[PathBuf; 2]) -> [Option<[i64; 3]>; 2] {
    paths.each_ref().map(|path| {
        let data = std::fs::metadata(path).ok()?;
        Some([data.ctime(), data.ctime_nsec(), data.mtime_nsec()])
    })
}
