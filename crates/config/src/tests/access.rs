//! `[auth]` and `[admin]`.

use super::*;

#[test]
fn a_gateway_that_others_reach_says_who_may_use_it() {
    let open = GATEWAY.replace("[gateway]\n", "[gateway]\nlisten = \"0.0.0.0:80\"\n");
    assert_complaint(
        &open,
        "2: [gateway] listen: other machines reach 0.0.0.0:80, and without [auth] all of them may use it: want \
         [auth] with keys = \"keys.toml\" (see `tandem keys new`), or with mode = \"open\"",
    );
    let auth =
        |text: &str| parse(&format!("{open}[auth]\n{text}")).map(|c| c.gateway.unwrap().auth);
    assert_eq!(auth("mode = \"open\"\n"), Ok(AuthConfig::Open));
    let keys = auth("keys = \"k.toml\"\nopen_metrics = true\n").unwrap();
    let want = Required {
        keys: Some("etc/k.toml".into()),
        jwt: None,
        open_metrics: true,
    };
    assert_eq!(keys, AuthConfig::Keys(want));
    assert_eq!(
        parse(GATEWAY).unwrap().gateway.unwrap().auth,
        AuthConfig::Unsaid
    );
}

#[test]
fn who_may_use_a_gateway_is_said_once_and_whole() {
    let auth = |text: &str| complaints(&format!("{GATEWAY}[auth]\n{text}"));
    assert_eq!(
        auth(""),
        [
            "etc/t.toml:4: [auth] needs `keys` (a file that `tandem keys new` fills), `jwks`, or mode = \"open\""
        ]
    );
    assert_eq!(
        auth("mode = \"open\"\nkeys = \"k\"\n"),
        ["etc/t.toml:5: [auth] mode: \"open\" beside keys or jwks: want one of them"]
    );
    assert_eq!(
        auth("jwks = \"j\"\njwt_issuer = \"i\"\njwt_algorithms = [\"RS256\", \"HS256\"]\n"),
        [
            "etc/t.toml:5: [auth] jwks: needs jwt_audience beside it",
            "etc/t.toml:7: [auth] jwt_algorithms: want a list of at least one of \"RS256\", \"ES256\", \"EdDSA\", \
             found the text \"HS256\" in it; did you mean \"RS256\"?",
        ]
    );
    assert_eq!(
        auth("keys = \"k\"\n[auth.jwt_claims]\nclas = \"c\"\n"),
        [
            "etc/t.toml:6: [auth] jwt_claims: means nothing without jwks",
            "etc/t.toml:7: unknown key `clas` in [auth.jwt_claims]; did you mean `class`?",
        ]
    );
    assert_eq!(
        auth("keys = \"k\"\njwt_issuer = \"i\"\n"),
        ["etc/t.toml:6: [auth] jwt_issuer: means nothing without jwks"]
    );
}

#[test]
fn operators_get_a_listener_and_outside_of_the_machine_a_key() {
    let admin = |text: &str| parse(&format!("{GATEWAY}[admin]\n{text}"));
    let config = admin("").unwrap().gateway.unwrap().admin.unwrap();
    assert_eq!(config.listen, "127.0.0.1:8081".parse().unwrap());
    assert!(config.key_hashes.is_empty());
    assert_eq!(parse(GATEWAY).unwrap().gateway.unwrap().admin, None);
    assert_complaint(
        &format!("{GATEWAY}[admin]\nlisten = \"[::]:8081\"\n"),
        "5: [admin] listen: other machines reach [::]:8081: want key_hash, which `tandem keys new --admin` makes",
    );
    let hash = format!("\"sha256:{}\"", "ab".repeat(32));
    let text = format!("listen = \"[::]:1\"\nkey_hash = [{hash}, {hash}]\n");
    let config = admin(&text).unwrap().gateway.unwrap().admin.unwrap();
    assert_eq!(config.key_hashes.len(), 2);
    let tls = admin("tls = { certificate = \"c.pem\", key = \"k.pem\" }\n").unwrap();
    let tls = tls.gateway.unwrap().admin.unwrap().tls.unwrap();
    assert_eq!(tls.certificate, PathBuf::from("etc/c.pem"));
    assert_complaint(
        &format!("{GATEWAY}[admin]\ntls = {{ certificate = \"c.pem\" }}\n"),
        "5: [admin.tls] needs `key`: a path, relative to this file's folder or absolute",
    );
    assert!(admin("key_hash = \"geheim\"\n").is_err());
    assert!(admin("key_hash = []\n").is_err());
}

#[test]
fn claims_of_a_token_are_named_or_not_looked_at() {
    let claims = |rest: &str| {
        let jwt = "jwks = \"j\"\njwt_issuer = \"i\"\njwt_audience = \"a\"\n";
        let config = parse(&format!("{GATEWAY}[auth]\n{jwt}{rest}")).unwrap();
        match config.gateway.unwrap().auth {
            AuthConfig::Keys(required) => required.jwt.unwrap().claims,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(claims(""), JwtClaims::default());
    let named = claims(
        "jwt_claims = { key = \"email\", class = \"https://x/slo\", concurrency = \"par\" }\n",
    );
    let want = JwtClaims {
        key: "email".into(),
        class: Some("https://x/slo".into()),
        concurrency: Some("par".into()),
        ..JwtClaims::default()
    };
    assert_eq!(named, want);
}
