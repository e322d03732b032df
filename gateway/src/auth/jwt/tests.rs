//! Tokens as issuers make them, and as those make them who are none.

use super::*;
use crate::app::unix_seconds;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use serde_json::json;

/// An RSA key made for these tests, in PKCS #1.
const RSA: &str = include_str!("rsa-test-key.b64");

struct Issuer {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

fn config(algorithms: &[JwtAlgorithm]) -> JwtConfig {
    JwtConfig {
        jwks: "jwks.json".into(),
        issuer: "https://issuer.example".into(),
        audience: "tandem".into(),
        tenant_claim: "org".into(),
        algorithms: algorithms.to_vec(),
        claims: JwtClaims::default(),
    }
}

impl Issuer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let rsa = STANDARD.decode(RSA.replace('\n', "")).unwrap();
        let signing = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let ec = EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Self {
            rsa: RsaKeyPair::from_der(&rsa).unwrap(),
            ec: EcdsaKeyPair::from_pkcs8(signing, ec.as_ref(), &random).unwrap(),
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(),
        }
    }

    fn jwks(&self) -> Value {
        let ec = self.ec.public_key().as_ref();
        let public: ring::rsa::PublicKeyComponents<Vec<u8>> = self.rsa.public().into();
        json!({"keys": [
            {"kty": "RSA", "kid": "r", "use": "sig", "n": BASE64.encode(public.n), "e": BASE64.encode(public.e)},
            {"kty": "EC", "kid": "e", "crv": "P-256", "x": BASE64.encode(&ec[1..33]), "y": BASE64.encode(&ec[33..])},
            {"kty": "OKP", "kid": "d", "crv": "Ed25519", "alg": "EdDSA", "x": BASE64.encode(self.ed.public_key().as_ref())},
            {"kty": "oct", "kid": "o", "k": BASE64.encode("secret")},
            {"kty": "RSA", "kid": "enc", "use": "enc", "n": BASE64.encode([1; 300]), "e": "AQAB"},
        ]})
    }

    fn tokens(&self, algorithms: &[JwtAlgorithm]) -> Tokens {
        Tokens::parse(self.jwks().to_string().as_bytes(), &config(algorithms)).unwrap()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let random = SystemRandom::new();
        let signature = match header["alg"].as_str().unwrap() {
            "RS256" => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                let bytes = message.as_bytes();
                self.rsa
                    .sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature)
                    .unwrap();
                signature
            }
            "ES256" => self
                .ec
                .sign(&random, message.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
            "EdDSA" => self.ed.sign(message.as_bytes()).as_ref().to_vec(),
            _ => Vec::new(),
        };
        format!("{message}.{}", BASE64.encode(signature))
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer.example",
        "aud": ["other", "tandem"],
        "exp": unix_seconds() + 600,
        "org": "acme",
    })
}

#[test]
fn each_algorithm_opens_with_its_key_and_names_the_tenant() {
    let issuer = Issuer::new();
    let tokens = issuer.tokens(&JwtAlgorithm::ALL);
    for (algorithm, kid) in [("RS256", "r"), ("ES256", "e"), ("EdDSA", "d")] {
        for header in [
            json!({"alg": algorithm, "kid": kid}),
            json!({"alg": algorithm}),
        ] {
            let token = issuer.sign(&header, &claims());
            assert!(Tokens::looks_like_one(&token));
            assert_eq!(
                tokens.admit(&token).map(|c| c.tenant),
                Ok("acme".into()),
                "{header}"
            );
        }
    }
}

#[test]
fn a_signature_of_a_wrong_kind_or_key_opens_nothing() {
    let issuer = Issuer::new();
    let tokens = issuer.tokens(&JwtAlgorithm::ALL);
    let refused = |token: &str| {
        let refused = tokens.admit(token).unwrap_err();
        assert!(matches!(refused, Refused::Token(_)), "{refused:?}");
    };
    // None at all, in every spelling.
    for none in ["none", "None", "NONE"] {
        refused(&issuer.sign(&json!({"alg": none}), &claims()));
    }
    // HMAC with what everyone knows: the public key, or the file's symmetric key.
    let part = |value: &Value| BASE64.encode(value.to_string());
    let public: ring::rsa::PublicKeyComponents<Vec<u8>> = issuer.rsa.public().into();
    let secrets = [
        ("r", public.n),
        ("e", issuer.ec.public_key().as_ref().to_vec()),
        ("d", issuer.ed.public_key().as_ref().to_vec()),
        ("o", b"secret".to_vec()),
    ];
    for (kid, secret) in secrets {
        let message = format!(
            "{}.{}",
            part(&json!({"alg": "HS256", "kid": kid})),
            part(&claims())
        );
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
        let tag = ring::hmac::sign(&key, message.as_bytes());
        refused(&format!("{message}.{}", BASE64.encode(tag.as_ref())));
    }
    // Another's key under our key's name, another algorithm than the named key's, changed claims.
    refused(&Issuer::new().sign(&json!({"alg": "ES256", "kid": "e"}), &claims()));
    refused(&issuer.sign(&json!({"alg": "ES256", "kid": "r"}), &claims()));
    refused(&issuer.sign(&json!({"alg": "ES256", "kid": "gone"}), &claims()));
    let token = issuer.sign(&json!({"alg": "EdDSA"}), &claims());
    let mut parts: Vec<_> = token.split('.').map(str::to_owned).collect();
    let mut other = claims();
    other["org"] = json!("victim");
    parts[1] = part(&other);
    refused(&parts.join("."));
    refused(&format!("{}.{}.", parts[0], parts[1]));
    for text in ["..", "a.b.c", "e30.e30.e30"] {
        refused(text);
    }
}

#[test]
fn an_algorithm_that_is_not_allowed_opens_nothing() {
    let issuer = Issuer::new();
    let tokens = issuer.tokens(&[JwtAlgorithm::Es256]);
    assert!(
        tokens
            .admit(&issuer.sign(&json!({"alg": "ES256"}), &claims()))
            .is_ok()
    );
    for other in ["RS256", "EdDSA"] {
        assert!(
            tokens
                .admit(&issuer.sign(&json!({"alg": other}), &claims()))
                .is_err()
        );
    }
}

#[test]
fn every_claim_is_checked() {
    let issuer = Issuer::new();
    let tokens = issuer.tokens(&JwtAlgorithm::ALL);
    let now = unix_seconds();
    let cases = [
        ("exp", json!(now - 60), "it has expired"),
        ("exp", json!("tomorrow"), "it lacks one of exp, iss and aud"),
        ("exp", Value::Null, "it lacks one of exp, iss and aud"),
        ("nbf", json!(now + 120), "it is not valid yet"),
        ("nbf", json!("never"), "it cannot be read"),
        (
            "iss",
            json!("https://else.example"),
            "it is of another issuer",
        ),
        ("iss", Value::Null, "it lacks one of exp, iss and aud"),
        ("aud", json!("other"), "it is for another audience"),
        ("aud", json!([]), "it is for another audience"),
        ("aud", Value::Null, "it lacks one of exp, iss and aud"),
        ("org", Value::Null, "it names no tenant"),
        ("org", json!(7), "it names no tenant"),
        ("org", json!("a\nb"), "it names no tenant"),
    ];
    for (claim, value, why) in cases {
        let mut claims = claims();
        claims[claim] = value.clone();
        let token = issuer.sign(&json!({"alg": "EdDSA"}), &claims);
        assert_eq!(
            tokens.admit(&token),
            Err(Refused::Token(why)),
            "{claim} {value}"
        );
    }
    let mut claims = claims();
    claims["exp"] = json!(now - 5);
    let token = issuer.sign(&json!({"alg": "EdDSA"}), &claims);
    assert!(tokens.admit(&token).is_ok(), "clocks differ");
}

/// A token's owner, where the configuration names all claims.
fn owner(more: &Value) -> Result<Caller, Refused> {
    let issuer = Issuer::new();
    let named = |name: &str| Some(name.to_owned());
    let config = JwtConfig {
        claims: JwtClaims {
            class: named("slo"),
            classes: named("slos"),
            models: named("scope"),
            requests_per_second: named("rps"),
            tokens_per_minute: named("tpm"),
            concurrency: named("par"),
            ..JwtClaims::default()
        },
        ..config(&JwtAlgorithm::ALL)
    };
    let tokens = Tokens::parse(issuer.jwks().to_string().as_bytes(), &config).unwrap();
    let mut claims = claims();
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    tokens.admit(&issuer.sign(&json!({"alg": "EdDSA"}), &claims))
}

#[test]
fn claims_say_what_an_entry_of_the_file_of_keys_would() {
    let caller = owner(&json!({
        "sub": "ci", "slo": "batch", "slos": ["batch", "chat"], "scope": "m n",
        "rps": 3, "tpm": 1000, "par": 2,
    }))
    .unwrap();
    assert_eq!(caller.key.as_deref(), Some("jwt:acme/ci"));
    assert_eq!(caller.class.as_deref(), Some("batch"));
    assert!(caller.may_use("n") && !caller.may_use("o"));
    let limits = caller.limits;
    assert_eq!(
        (
            limits.requests_per_second,
            limits.tokens_per_minute,
            limits.concurrency
        ),
        (Some(3), Some(1000), Some(2))
    );
    // What a token does not say is as in an entry that does not say it.
    let plain = owner(&json!({})).unwrap();
    assert_eq!(plain, Caller::of("acme"));
    // A subject that is no name stands under another, the same each time.
    let odd = |sub: &str| owner(&json!({"sub": sub, "par": 1})).unwrap().key.unwrap();
    assert_eq!(odd("auth0|1"), odd("auth0|1"));
    assert_ne!(odd("auth0|1"), odd("auth0|2"));
    assert_eq!(odd("auth0|1").len(), "jwt:".len() + 16);
}

#[test]
fn a_claim_that_makes_no_sense_is_not_passed_over() {
    for more in [
        json!({"slo": 1}),
        json!({"slo": "a b"}),
        json!({"slos": "chat", "slo": "batch"}),
        json!({"slos": []}),
        json!({"slos": {}}),
        json!({"scope": [""]}),
        json!({"sub": "a", "rps": 0}),
        json!({"sub": "a", "rps": "3"}),
        json!({"sub": "a", "par": 4_294_967_297_u64}),
        json!({"sub": "a", "tpm": -1}),
        // Nobody's limits would be everybody's, or nobody's.
        json!({"par": 1}),
    ] {
        assert!(matches!(owner(&more), Err(Refused::Token(_))), "{more}");
    }
}

#[test]
fn a_file_without_a_usable_key_is_refused() {
    let parse =
        |text: &str| Tokens::parse(text.as_bytes(), &config(&JwtAlgorithm::ALL)).unwrap_err();
    assert!(parse("[]").starts_with("no JWKS: "));
    let none = r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#;
    assert_eq!(parse(none), "holds no key for RS256, ES256, EdDSA");
    let short = r#"{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}"#;
    assert_eq!(parse(short), "key 1: an RSA key of less than 2048 bits");
}
