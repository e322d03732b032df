//! Who sends a request, and so where it stands in the queue.
//!
//! The layer that lets requests in (`auth`) puts a [`Caller`] among their extensions; without keys all
//! are one anonymous caller that may name any class.

use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName};
use tandem_config::KeyEntry;
use tandem_core::admission::{AdmissionSettings, ClassId, Limits, TenantId};
use tandem_core::front_door::KeyLimits;
use tandem_core::pairing::session;
use tandem_policies::SessionHeader;

use crate::api::error::ApiError;

/// Names the class of a request.
pub(crate) const CLASS: HeaderName = HeaderName::from_static("x-tandem-class");

/// Longest name of a session, in bytes.
const LONGEST_SESSION: usize = 256;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Who pays, and shares fairly with others. `[admission.tenant.NAME]` says how.
    pub(crate) tenant: Arc<str>,
    /// A name of the API key, never the key; `limits` are its own.
    pub(crate) key: Option<Arc<str>>,
    pub(crate) limits: Limits,
    /// The class of its requests that name none; `None`: `default_class`.
    pub(crate) class: Option<Arc<str>>,
    /// The classes that it may name; `None`: any.
    pub(crate) classes: Option<Arc<[Arc<str>]>>,
    /// The models that it may use; `None`: any.
    pub(crate) models: Option<Arc<[Arc<str>]>>,
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            tenant: "anonymous".into(),
            key: None,
            limits: Limits::default(),
            class: None,
            classes: None,
            models: None,
        }
    }
}

impl Caller {
    /// Someone of a tenant, without bounds of their own.
    pub(crate) fn of(tenant: impl Into<Arc<str>>) -> Self {
        Self {
            tenant: tenant.into(),
            ..Self::default()
        }
    }

    /// Someone who has shown a key.
    pub(crate) fn with_key(entry: &KeyEntry) -> Self {
        let list = |names: &Option<Vec<String>>| {
            let names = names.as_ref()?.iter();
            Some(names.map(|name| name.as_str().into()).collect())
        };
        Self {
            tenant: entry.tenant.as_str().into(),
            key: Some(entry.id.as_str().into()),
            limits: entry.limits,
            class: entry.class.as_deref().map(Into::into),
            classes: list(&entry.classes),
            models: list(&entry.models),
        }
    }

    /// Whether it may use the model.
    pub(crate) fn may_use(&self, model: &str) -> bool {
        let is_it = |name: &Arc<str>| **name == *model;
        self.models
            .as_ref()
            .is_none_or(|models| models.iter().any(is_it))
    }
}

/// A request's place in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) tenant: TenantId,
    pub(crate) key: Option<KeyLimits>,
    pub(crate) class: ClassId,
    /// A hash of the session that a header names.
    pub(crate) session: Option<u64>,
}

impl Standing {
    /// Of a request with these headers and extensions.
    pub(crate) fn of(
        headers: &HeaderMap,
        extensions: &Extensions,
        settings: &AdmissionSettings,
        session_header: &SessionHeader,
    ) -> Result<Self, ApiError> {
        let anonymous = Caller::default();
        let caller = extensions.get::<Caller>().unwrap_or(&anonymous);
        let key = caller.key.as_ref().map(|key| KeyLimits {
            key: Arc::clone(key),
            limits: caller.limits,
        });
        Ok(Self {
            tenant: TenantId::new(Arc::clone(&caller.tenant)),
            key,
            class: class(headers, caller, settings)?,
            session: session_named(headers, session_header)?,
        })
    }
}

/// Which session the header names; what makes no sense is refused, since its sender would not notice.
fn session_named(headers: &HeaderMap, header: &SessionHeader) -> Result<Option<u64>, ApiError> {
    let Some(header) = header.name() else {
        return Ok(None);
    };
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let name = value.to_str().ok().map(str::trim);
    let name = name.filter(|name| (1..=LONGEST_SESSION).contains(&name.len()));
    match (name, values.next()) {
        (Some(name), None) => Ok(Some(session(name))),
        _ => {
            let message = format!(
                "Invalid header '{header}': want one name of a session, 1 to {LONGEST_SESSION} characters \
                 of ASCII."
            );
            Err(ApiError::value(header, message))
        }
    }
}

fn class(
    headers: &HeaderMap,
    caller: &Caller,
    settings: &AdmissionSettings,
) -> Result<ClassId, ApiError> {
    let Some(header) = headers.get(CLASS) else {
        let Some(name) = caller.class.as_deref() else {
            return Ok(settings.default_class);
        };
        return settings.class_named(name).ok_or_else(|| {
            ApiError::internal(format!(
                "The class {name} of this API key or token is not configured."
            ))
        });
    };
    let name = header.to_str().unwrap_or_default();
    let allowed = |name: &str| {
        caller
            .classes
            .as_ref()
            .is_none_or(|classes| classes.iter().any(|class| **class == *name))
    };
    if let Some(class) = settings.class_named(name).filter(|_| allowed(name)) {
        return Ok(class);
    }
    let names = settings.nameable().map(|(_, class)| class.name.as_str());
    let names: Vec<&str> = names.filter(|name| allowed(name)).collect();
    let shown: String = name.chars().take(64).collect();
    let message = format!(
        "Invalid header '{CLASS}': there is no class '{shown}' for this caller, only {}.",
        names.join(", ")
    );
    Err(ApiError::value(CLASS.as_str(), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use tandem_core::admission::ClassSettings;

    fn settings() -> AdmissionSettings {
        let names = ["chat", "batch", "bulk"];
        AdmissionSettings {
            classes: names.map(|name| ClassSettings::new(name, 10)).into(),
            default_class: ClassId(1),
            ..AdmissionSettings::one_class(10)
        }
    }

    fn class_of(caller: Option<Caller>, header: Option<&'static str>) -> Result<ClassId, ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(CLASS, HeaderValue::from_static(header));
        }
        let mut extensions = Extensions::new();
        if let Some(caller) = caller {
            extensions.insert(caller);
        }
        let header = SessionHeader::default();
        Standing::of(&headers, &extensions, &settings(), &header).map(|standing| standing.class)
    }

    #[test]
    fn the_header_goes_before_the_key_and_the_key_before_the_configuration() {
        let caller = || Caller {
            class: Some("bulk".into()),
            ..Caller::default()
        };
        assert_eq!(class_of(None, None), Ok(ClassId(1)));
        assert_eq!(class_of(None, Some("chat")), Ok(ClassId(0)));
        assert_eq!(class_of(Some(caller()), None), Ok(ClassId(2)));
        assert_eq!(class_of(Some(caller()), Some("chat")), Ok(ClassId(0)));
    }

    #[test]
    fn a_class_that_is_unknown_or_not_allowed_is_refused_with_those_that_are() {
        let error = class_of(None, Some("gold")).unwrap_err();
        assert_eq!(error.status, 400);
        assert_eq!(error.param.as_deref(), Some("x-tandem-class"));
        assert!(
            error.message.ends_with("only chat, batch, bulk."),
            "{}",
            error.message
        );
        let caller = Caller {
            classes: Some(["batch".into()].into()),
            ..Caller::default()
        };
        let error = class_of(Some(caller.clone()), Some("chat")).unwrap_err();
        assert!(error.message.ends_with("only batch."), "{}", error.message);
        assert_eq!(class_of(Some(caller), Some("batch")), Ok(ClassId(1)));
    }

    #[test]
    fn a_header_names_the_session_once_and_within_bounds() {
        let named = |values: &[&[u8]], header: &SessionHeader| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-session-id", HeaderValue::from_bytes(value).unwrap());
            }
            session_named(&headers, header).map_err(|error| error.param.unwrap())
        };
        let header = SessionHeader::default();
        assert_eq!(named(&[], &header), Ok(None));
        assert_eq!(named(&[b" a b "], &header), Ok(Some(session("a b"))));
        assert_eq!(named(&[&[b'x'; 257]], &SessionHeader::none()), Ok(None));
        for bad in [
            &[&b""[..]][..],
            &[b" "],
            &[&[b'x'; 257]],
            &["\u{e9}".as_bytes()],
            &[b"a", b"a"],
        ] {
            assert_eq!(
                named(bad, &header),
                Err("x-session-id".to_owned()),
                "{bad:?}"
            );
        }
    }
}
