//! What a token says of its owner beside that it is one.

use ring::digest;
use serde_json::{Map, Value};
use tandem_config::{JwtClaims, Limits, is_name};

use crate::auth::refusal::Refused;
use crate::caller::Caller;

/// As an entry of the file of keys may have.
const MOST_REQUESTS: u64 = 1_000_000;
const MOST_TOKENS: u64 = 1 << 40;
/// Names in a list.
const MOST_NAMES: usize = 64;
/// Digits of the hash that stands for what is no name.
const DIGITS: usize = 16;

/// Someone of a tenant, with what the claims say.
pub(super) fn caller(
    tenant: &str,
    names: &JwtClaims,
    claims: &Map<String, Value>,
) -> Result<Caller, Refused> {
    let claim = |name: &Option<String>| name.as_ref().and_then(|name| claims.get(name));
    let class = claim(&names.class).map(name).transpose()?;
    let classes = claim(&names.classes).map(list).transpose()?;
    let models = claim(&names.models).map(list).transpose()?;
    let number = |name, most| claim(name).map(|value| number(value, most)).transpose();
    let small = |name| {
        let number = number(name, MOST_REQUESTS)?;
        Ok(number.and_then(|n| u32::try_from(n).ok()))
    };
    let limits = Limits {
        requests_per_second: small(&names.requests_per_second)?,
        tokens_per_minute: number(&names.tokens_per_minute, MOST_TOKENS)?,
        concurrency: small(&names.concurrency)?,
    };
    let key = claims.get(&names.key).and_then(Value::as_str);
    let key = key
        .filter(|key| !key.is_empty())
        .map(|key| owner(tenant, key));
    if limits != Limits::default() && key.is_none() {
        return Err(Refused::Token("it has limits and does not say whose"));
    }
    let chosen = class.as_ref().zip(classes.as_ref());
    if chosen.is_some_and(|(class, classes)| !classes.contains(class)) {
        return Err(Refused::Token("its class is none of its classes"));
    }
    let shared = |names: Vec<String>| names.into_iter().map(Into::into).collect();
    Ok(Caller {
        key: key.map(Into::into),
        limits,
        class: class.map(Into::into),
        classes: classes.map(shared),
        models: models.map(shared),
        ..Caller::of(tenant)
    })
}

/// A name for the log and the meters that no key of the file has. Issuers' subjects may hold what a name
/// may not.
fn owner(tenant: &str, key: &str) -> String {
    let named = format!("jwt:{tenant}/{key}");
    if is_name(&named) {
        return named;
    }
    let digest = digest::digest(&digest::SHA256, named.as_bytes());
    let hex: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!("jwt:{}", &hex[..DIGITS])
}

fn name(value: &Value) -> Result<String, Refused> {
    let name = value.as_str().filter(|name| is_name(name));
    let name = name.map(str::to_owned);
    name.ok_or(Refused::Token("one of its claims wants a name"))
}

/// A list, or a text with blanks between, as OAuth's `scope` is.
fn list(value: &Value) -> Result<Vec<String>, Refused> {
    let names: Result<Vec<String>, Refused> = match value {
        Value::Array(names) => names.iter().map(name).collect(),
        Value::String(text) => {
            let words = text.split_ascii_whitespace();
            words.map(|word| name(&Value::from(word))).collect()
        }
        _ => Err(Refused::Token("one of its claims wants a list of names")),
    };
    let fits = |names: &Vec<String>| (1..=MOST_NAMES).contains(&names.len());
    Some(names?).filter(fits).ok_or(Refused::Token(
        "one of its claims wants a list of 1 to 64 names",
    ))
}

fn number(value: &Value, most: u64) -> Result<u64, Refused> {
    let number = value.as_u64().filter(|n| (1..=most).contains(n));
    number.ok_or(Refused::Token(
        "one of its limits is no whole number in range",
    ))
}
