//! Signed tokens (JWT, RFC 7519) of an issuer whose public keys stand in a file (JWKS, RFC 7517).
//!
//! What must hold: a token is taken with a signature of a public key of the file, made with the one
//! algorithm that this key is for; issuer, audience and expiry are always checked (RFC 8725).

mod claims;

use std::path::PathBuf;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tandem_config::{JwtAlgorithm, JwtClaims, JwtConfig, is_name};

use super::refusal::Refused;
use super::ring_provider;
use crate::caller::Caller;

/// Clocks may differ by so many seconds.
const LEEWAY: u64 = 30;
/// A longer one is not read.
const LONGEST: usize = 16 << 10;
/// 2048 bits: shorter moduli are refused.
const SHORTEST_MODULUS: usize = 342;

/// Why the issuer's keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct JwtError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Whose tokens are taken.
#[derive(Debug)]
pub(crate) struct Tokens {
    keys: Vec<IssuerKey>,
    issuer: String,
    audience: String,
    tenant_claim: String,
    claims: JwtClaims,
}

#[derive(Debug)]
struct IssuerKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Tokens {
    pub(crate) fn load(config: &JwtConfig) -> Result<Self, JwtError> {
        let fail = |reason: String| JwtError {
            path: config.jwks.clone(),
            reason,
        };
        let text = std::fs::read(&config.jwks).map_err(|error| fail(error.to_string()))?;
        Self::parse(&text, config).map_err(fail)
    }

    fn parse(text: &[u8], config: &JwtConfig) -> Result<Self, String> {
        ring_provider::install();
        let set: JwkSet =
            serde_json::from_slice(text).map_err(|error| format!("no JWKS: {error}"))?;
        let mut keys = Vec::new();
        for (index, jwk) in set.keys.iter().enumerate() {
            let key = issuer_key(jwk, &config.algorithms);
            keys.extend(key.map_err(|reason| format!("key {}: {reason}", index + 1))?);
        }
        if keys.is_empty() {
            let wanted: Vec<_> = config.algorithms.iter().map(|a| a.as_str()).collect();
            return Err(format!("holds no key for {}", wanted.join(", ")));
        }
        Ok(Self {
            keys,
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            tenant_claim: config.tenant_claim.clone(),
            claims: config.claims.clone(),
        })
    }

    /// Whether a text has a token's form: three parts.
    pub(crate) fn looks_like_one(text: &str) -> bool {
        text.len() <= LONGEST && text.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// Who shows this token.
    pub(crate) fn admit(&self, token: &str) -> Result<Caller, Refused> {
        let header = decode_header(token).map_err(|error| refused(error.kind()))?;
        let fits = |key: &&IssuerKey| {
            key.algorithm == header.alg && (header.kid.is_none() || key.id == header.kid)
        };
        let mut last = Refused::Token("no key of the issuer fits it");
        for key in self.keys.iter().filter(fits) {
            match decode::<Map<String, Value>>(token, &key.key, &self.validation(key.algorithm)) {
                Ok(data) => return self.caller(&data.claims),
                Err(error) => last = refused(error.kind()),
            }
        }
        Err(last)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.audience]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation
    }

    fn caller(&self, claims: &Map<String, Value>) -> Result<Caller, Refused> {
        let tenant = claims.get(&self.tenant_claim).and_then(Value::as_str);
        let tenant = tenant.filter(|tenant| is_name(tenant));
        let tenant = tenant.ok_or(Refused::Token("it names no tenant"))?;
        claims::caller(tenant, &self.claims, claims)
    }
}

/// What a key of the file is for; `None` where it is for something else than our tokens.
fn issuer_key(jwk: &Jwk, allowed: &[JwtAlgorithm]) -> Result<Option<IssuerKey>, String> {
    let of_kind = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) if rsa.n.len() < SHORTEST_MODULUS => {
            return Err("an RSA key of less than 2048 bits".to_owned());
        }
        AlgorithmParameters::RSA(_) => JwtAlgorithm::Rs256,
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
            JwtAlgorithm::Es256
        }
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            JwtAlgorithm::EdDsa
        }
        _ => return Ok(None),
    };
    let named = jwk
        .common
        .key_algorithm
        .map(|algorithm| algorithm.to_string());
    let for_signatures = jwk
        .common
        .public_key_use
        .as_ref()
        .is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    let other = named.is_some_and(|named| named != of_kind.as_str());
    if other || !for_signatures || !allowed.contains(&of_kind) {
        return Ok(None);
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|error| error.to_string())?;
    let algorithm = match of_kind {
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    };
    Ok(Some(IssuerKey {
        id: jwk.common.key_id.clone(),
        algorithm,
        key,
    }))
}

const fn refused(kind: &ErrorKind) -> Refused {
    Refused::Token(match kind {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "it is of another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::MissingRequiredClaim(_) => "it lacks one of exp, iss and aud",
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => {
            "its algorithm is not allowed"
        }
        _ => "it cannot be read",
    })
}

#[cfg(test)]
mod tests;
