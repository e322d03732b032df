//! The keys that are known now, and whether one opens the gateway.

use std::collections::HashMap;
use std::sync::Arc;

use subtle::ConstantTimeEq;
use tandem_config::{ApiKey, AuthConfig, ConfigError, KeyEntry, KeyFile, Sha256};
use tokio::sync::watch;

use super::jwt::{JwtError, Tokens};
use super::refusal::Refused;
use crate::caller::Caller;

/// Why the keys cannot be used. For the operator to mend.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The file of keys.
    #[error(transparent)]
    Keys(#[from] ConfigError),
    /// The file of the issuer's keys.
    #[error(transparent)]
    Jwt(#[from] JwtError),
}

/// The rules in force, which a reload exchanges as a whole.
#[derive(Debug)]
pub(crate) struct Gate {
    rules: watch::Sender<Arc<Rules>>,
}

impl Gate {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules: watch::Sender::new(Arc::new(rules)),
        }
    }

    /// From the next request on.
    pub(crate) fn exchange(&self, rules: Rules) {
        self.rules.send_replace(Arc::new(rules));
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.borrow())
    }
}

/// Who may come in.
#[derive(Debug)]
pub(crate) enum Rules {
    /// Everyone.
    Open,
    /// Those who show a key.
    Keys(Ring),
}

/// Keys by their ids, and whose tokens are taken.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    keys: HashMap<String, Held>,
    tokens: Option<Box<Tokens>>,
    open_metrics: bool,
}

#[derive(Debug)]
struct Held {
    hash: Sha256,
    expires: Option<u64>,
    caller: Caller,
}

impl Rules {
    /// Reads the files that the configuration names.
    pub(crate) fn load(config: &AuthConfig) -> Result<Self, AuthError> {
        let AuthConfig::Keys(required) = config else {
            return Ok(Self::Open);
        };
        let keys = match &required.keys {
            Some(path) => KeyFile::load(path)?.keys,
            None => Vec::new(),
        };
        let tokens = required.jwt.as_deref().map(Tokens::load).transpose()?;
        let mut ring = Ring::of(keys);
        ring.tokens = tokens.map(Box::new);
        ring.open_metrics = required.open_metrics;
        Ok(Self::Keys(ring))
    }

    /// Whether figures need no key.
    pub(crate) const fn open_metrics(&self) -> bool {
        match self {
            Self::Open => true,
            Self::Keys(ring) => ring.open_metrics,
        }
    }

    /// Whether anybody shows one.
    pub(crate) const fn asks_for_keys(&self) -> bool {
        matches!(self, Self::Keys(_))
    }

    /// How many keys of the file open it; `None` where none is asked for.
    pub(crate) fn keys(&self) -> Option<usize> {
        match self {
            Self::Open => None,
            Self::Keys(ring) => Some(ring.keys.len()),
        }
    }

    /// Who shows `credential` at `now`, in seconds since 1970.
    pub(crate) fn admit(&self, credential: Option<&str>, now: u64) -> Result<Caller, Refused> {
        match self {
            Self::Open => Ok(Caller::default()),
            Self::Keys(ring) => ring.admit(credential.ok_or(Refused::Missing)?, now),
        }
    }
}

impl Ring {
    fn of(keys: Vec<KeyEntry>) -> Self {
        let held = |entry: KeyEntry| {
            let held = Held {
                hash: entry.hash,
                expires: entry.expires,
                caller: Caller::with_key(&entry),
            };
            (entry.id, held)
        };
        Self {
            keys: keys.into_iter().map(held).collect(),
            ..Self::default()
        }
    }

    fn admit(&self, credential: &str, now: u64) -> Result<Caller, Refused> {
        let Some(id) = ApiKey::id_of(credential) else {
            return match &self.tokens {
                Some(tokens) if Tokens::looks_like_one(credential) => tokens.admit(credential),
                _ => Err(Refused::Unknown),
            };
        };
        let held = self.keys.get(id).ok_or(Refused::Unknown)?;
        if !is_same(&held.hash, &ApiKey::hash_of(credential)) {
            return Err(Refused::Unknown);
        }
        if held.expires.is_some_and(|expires| expires <= now) {
            return Err(Refused::Expired);
        }
        Ok(held.caller.clone())
    }
}

/// In the same time wherever they differ.
pub(crate) fn is_same(a: &Sha256, b: &Sha256) -> bool {
    a.0.ct_eq(&b.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_config::Limits;

    fn key(n: u8) -> ApiKey {
        ApiKey::from_random([n; ApiKey::RANDOM_BYTES])
    }

    fn entry(key: &ApiKey, tenant: &str, expires: Option<u64>) -> KeyEntry {
        KeyEntry {
            id: key.id().to_owned(),
            tenant: tenant.to_owned(),
            name: None,
            hash: ApiKey::hash_of(key.reveal()),
            expires,
            class: None,
            classes: None,
            models: Some(vec!["m".to_owned()]),
            limits: Limits::default(),
        }
    }

    #[test]
    fn a_key_opens_for_its_tenant_until_it_expires_and_no_other_text_does() {
        let (old, new) = (key(1), key(2));
        let keys = vec![entry(&old, "acme", Some(100)), entry(&new, "acme", None)];
        let rules = Rules::Keys(Ring::of(keys));
        let admit = |text: &str, now| rules.admit(Some(text), now);
        let caller = admit(old.reveal(), 99).unwrap();
        assert_eq!(
            (&*caller.tenant, caller.key.as_deref()),
            ("acme", Some(old.id()))
        );
        assert!(caller.may_use("m") && !caller.may_use("other"));
        assert_eq!(admit(old.reveal(), 100), Err(Refused::Expired));
        assert!(admit(new.reveal(), u64::MAX).is_ok());
        // The id is right and the secret is not: all but the last digit.
        let mut wrong = new.reveal().to_owned();
        wrong.replace_range(wrong.len() - 1.., "f");
        assert_eq!(admit(&wrong, 0), Err(Refused::Unknown));
        for text in [
            "",
            "tandem-",
            key(3).reveal(),
            "a.b.c",
            &ApiKey::hash_of(new.reveal()).to_string(),
        ] {
            assert_eq!(admit(text, 0), Err(Refused::Unknown), "{text}");
        }
        assert_eq!(rules.admit(None, 0), Err(Refused::Missing));
    }

    #[test]
    fn without_keys_everyone_is_anonymous() {
        let caller = Rules::Open.admit(None, 0).unwrap();
        assert_eq!(
            (&*caller.tenant, caller.key.as_deref()),
            ("anonymous", None)
        );
    }
}
