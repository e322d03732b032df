//! `[auth]`: who may use the gateway.

use std::path::PathBuf;

use toml::de::DeValue;

use crate::section::{PATH, Section, text};

/// Whom the gateway lets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuthConfig {
    /// The file does not say: everyone, which only a loopback address may do.
    #[default]
    Unsaid,
    /// Everyone, as `mode = "open"` says.
    Open,
    /// Those with a key.
    Keys(Required),
}

/// What opens the gateway: a key of a file, a token, or either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Required {
    /// The file of hashed keys; `None`: there are tokens only.
    pub keys: Option<PathBuf>,
    /// Signed tokens; `None`: there are keys only.
    pub jwt: Option<Box<JwtConfig>>,
    /// Whether `/metrics` needs no key. Default no.
    pub open_metrics: bool,
}

/// Which tokens (JWT, RFC 7519) are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtConfig {
    /// The file of the issuer's public keys (JWKS, RFC 7517).
    pub jwks: PathBuf,
    /// What `iss` must be.
    pub issuer: String,
    /// What `aud` must be or hold.
    pub audience: String,
    /// The claim that names the tenant. Default `tenant`.
    pub tenant_claim: String,
    /// Signatures that are taken. Default all that are known.
    pub algorithms: Vec<JwtAlgorithm>,
    /// The claims that say what else a key's entry in the file would.
    pub claims: JwtClaims,
}

/// Names of a token's claims; a claim that is not named here is not looked at, and one that a token lacks
/// leaves it without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtClaims {
    /// Who the limits are for, within the tenant. Default `sub`.
    pub key: String,
    /// The SLO class of its requests that name none: a text.
    pub class: Option<String>,
    /// SLO classes that it may ask for: a list of texts, or a text of names with blanks between.
    pub classes: Option<String>,
    /// Models that it may use; in the same form.
    pub models: Option<String>,
    /// Requests per second: a whole number.
    pub requests_per_second: Option<String>,
    /// Tokens per minute: a whole number.
    pub tokens_per_minute: Option<String>,
    /// Requests that have not ended: a whole number.
    pub concurrency: Option<String>,
}

impl Default for JwtClaims {
    fn default() -> Self {
        Self {
            key: "sub".to_owned(),
            class: None,
            classes: None,
            models: None,
            requests_per_second: None,
            tokens_per_minute: None,
            concurrency: None,
        }
    }
}

/// A signature of a public key; no other kind is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// RSA, PKCS #1 v1.5, SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl JwtAlgorithm {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Rs256, Self::Es256, Self::EdDsa];

    /// As tokens and configuration write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Keys,
    Open,
}

pub(crate) fn read(section: &mut Section<'_, '_>) -> AuthConfig {
    let mode_line = section.line_of("mode");
    let mode = section.choice("mode", &[("keys", Mode::Keys), ("open", Mode::Open)]);
    let keys = section.read("keys", PATH, |value| text(value).map(PathBuf::from));
    let jwt = jwt(section);
    let open_metrics = section.flag("open_metrics").unwrap_or(false);
    let Some(line) = section.line() else {
        return AuthConfig::Unsaid;
    };
    let nothing = keys.is_none() && jwt.is_none();
    match mode.unwrap_or(Mode::Keys) {
        Mode::Open if nothing => AuthConfig::Open,
        Mode::Open => {
            section.refuse(
                mode_line,
                "mode: \"open\" beside keys or jwks: want one of them",
            );
            AuthConfig::Open
        }
        Mode::Keys => {
            if nothing {
                let message = "needs `keys` (a file that `tandem keys new` fills), `jwks`, or mode = \"open\"";
                section.refuse(Some(line), message);
            }
            AuthConfig::Keys(Required {
                keys: keys.map(|path| section.in_folder(path)),
                jwt: jwt.map(Box::new),
                open_metrics,
            })
        }
    }
}

fn jwt(section: &mut Section<'_, '_>) -> Option<JwtConfig> {
    const BESIDE: [&str; 5] = [
        "jwt_issuer",
        "jwt_audience",
        "jwt_tenant_claim",
        "jwt_algorithms",
        "jwt_claims",
    ];
    let line = section.line_of("jwks");
    let stray = BESIDE
        .into_iter()
        .find_map(|key| Some((key, section.line_of(key)?)));
    let jwks = section.read("jwks", PATH, |value| text(value).map(PathBuf::from));
    let word = |value: &DeValue<'_>| text(value).map(str::to_owned);
    let issuer = section.read("jwt_issuer", "the text of the claim `iss`", word);
    let audience = section.read("jwt_audience", "the text of the claim `aud`", word);
    let tenant = section.read("jwt_tenant_claim", "the name of a claim", word);
    let algorithms = JwtAlgorithm::ALL.map(|algorithm| (algorithm.as_str(), algorithm));
    let algorithms = section.choices("jwt_algorithms", &algorithms);
    let claims = section.table("jwt_claims", claims);
    let Some(jwks) = jwks else {
        if let Some((key, line)) = stray.filter(|_| line.is_none()) {
            section.refuse(Some(line), &format!("{key}: means nothing without jwks"));
        }
        return None;
    };
    for (key, value) in [("jwt_issuer", &issuer), ("jwt_audience", &audience)] {
        // A token that was made for another service must not open this one.
        if value.is_none() {
            section.refuse(line, &format!("jwks: needs {key} beside it"));
        }
    }
    Some(JwtConfig {
        jwks: section.in_folder(jwks),
        issuer: issuer.unwrap_or_default(),
        audience: audience.unwrap_or_default(),
        tenant_claim: tenant.unwrap_or_else(|| "tenant".to_owned()),
        algorithms: algorithms.unwrap_or_else(|| JwtAlgorithm::ALL.to_vec()),
        claims: claims.unwrap_or_default(),
    })
}

fn claims(section: &mut Section<'_, '_>) -> JwtClaims {
    let mut claim = |key| {
        section.read(key, "the name of a claim", |value| {
            text(value).map(str::to_owned)
        })
    };
    JwtClaims {
        key: claim("key").unwrap_or(JwtClaims::default().key),
        class: claim("class"),
        classes: claim("classes"),
        models: claim("models"),
        requests_per_second: claim("requests_per_second"),
        tokens_per_minute: claim("tokens_per_minute"),
        concurrency: claim("concurrency"),
    }
}
