//! JSON as clients may send it: bounded in depth and in values, and no key twice in an object.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value takes some dozens of bytes of memory and two of a body, so a body's length alone bounds
/// nothing. A prompt of a million token ids fits.
const MAX_VALUES: usize = 2 << 20;

/// Why a body is no JSON.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Without a full stop.
    pub(crate) message: String,
    /// The key that stands twice.
    pub(crate) key: Option<String>,
}

/// Reads one value. Its depth is bounded by `serde_json` (128).
pub(crate) fn parse(body: &[u8]) -> Result<Value, Malformed> {
    let state = State {
        left: Cell::new(MAX_VALUES),
        twice: RefCell::new(None),
    };
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Strict(&state).deserialize(&mut reader);
    let whole = value.and_then(|value| reader.end().map(|()| value));
    whole.map_err(|error| Malformed {
        message: error.to_string(),
        key: state.twice.take(),
    })
}

struct State {
    /// Values that may still come.
    left: Cell<usize>,
    twice: RefCell<Option<String>>,
}

#[derive(Clone, Copy)]
struct Strict<'a>(&'a State);

impl Strict<'_> {
    fn count<E: Error>(self) -> Result<(), E> {
        let left = self.0.left.get().checked_sub(1);
        let left = left.ok_or_else(|| E::custom(format!("more than {MAX_VALUES} values")))?;
        self.0.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        self.count()?;
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        let number = Number::from_f64(number).ok_or_else(|| E::custom("number out of range"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(entry) = entries.next_element_seed(self)? {
            array.push(entry);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            self.count()?;
            if object.contains_key(&key) {
                let shown: String = key.chars().take(64).collect();
                let message = format!("the key '{shown}' stands twice in one object");
                self.0.twice.replace(Some(shown));
                return Err(A::Error::custom(message));
            }
            object.insert(key, members.next_value_seed(self)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_named() {
        let error = parse(br#"{"a":1,"b":{"c":1,"c":2}}"#).unwrap_err();
        assert_eq!(error.key.as_deref(), Some("c"));
        assert!(error.message.starts_with("the key 'c' stands twice"));
        assert_eq!(parse(br#"{"a":{"a":1},"b":{"a":1}}"#).unwrap()["b"]["a"], 1);
    }

    #[test]
    fn depth_and_values_are_bounded() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = open.repeat(20_000) + "1" + &close.repeat(20_000);
            let error = parse(deep.as_bytes()).unwrap_err();
            assert!(error.message.starts_with("recursion limit"), "{error:?}");
        }
        let many = format!("[{}0]", "0,".repeat(MAX_VALUES));
        let error = parse(many.as_bytes()).unwrap_err();
        assert!(error.message.starts_with("more than"), "{error:?}");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let bad = [
            "NaN",
            "1e400",
            "-1e400",
            "\"\\ud800\"",
            "\"\\udc00x\"",
            "[1,]",
            "{\"a\"}",
            "1 2",
            "",
            "\u{feff}1",
            "01",
            "+1",
            "'a'",
            "{\"\\ud800\":1}",
            "Infinity",
            "\"\u{1}\"",
        ];
        for bad in bad {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            (-1e9..1e9_f64).prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|members| json!(members)),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_json_reads(value in values()) {
            let text = value.to_string();
            let plain: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(parse(text.as_bytes()).unwrap(), plain);
        }
    }
}
