//! JSON as clients may send it: bounded in depth and in memory, and no key twice in an object.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What a body's values may take, in bytes, as counted below. `{"a":1}` is seven bytes of a body and takes
/// a hundred times as many, so a body's length alone bounds nothing. A prompt of a million token ids fits, as
/// do 70,000 messages.
const MAX_MEMORY: usize = 96 << 20;
/// What a value takes, beside the text that it may be.
const VALUE: usize = size_of::<Value>();
/// What an object takes once it has a key: room for four, and a table of them.
const OBJECT: usize = 640;
/// What a further key takes, with room for the next ones.
const KEY: usize = 160;

/// Why a body is no JSON.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Without a full stop.
    pub(crate) message: String,
    /// The key that stands twice, or the one of the whole body's object whose value is wrong.
    pub(crate) key: Option<String>,
}

/// Reads one value. Its depth is bounded by `serde_json` (128).
pub(crate) fn parse(body: &[u8]) -> Result<Value, Malformed> {
    let state = State {
        left: Cell::new(MAX_MEMORY),
        depth: Cell::new(0),
        key: RefCell::new(None),
    };
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Strict(&state).deserialize(&mut reader);
    let whole = value.and_then(|value| reader.end().map(|()| value));
    whole.map_err(|error| Malformed {
        message: error.to_string(),
        key: state.key.take(),
    })
}

struct State {
    /// Bytes that may still be taken.
    left: Cell<usize>,
    /// Objects and arrays that have begun and not ended.
    depth: Cell<usize>,
    /// That an error will be about.
    key: RefCell<Option<String>>,
}

#[derive(Clone, Copy)]
struct Strict<'a>(&'a State);

impl Strict<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.left.get().checked_sub(bytes);
        let most = MAX_MEMORY >> 20;
        let left = left.ok_or_else(|| E::custom(format!("its values take over {most} MiB")))?;
        self.0.left.set(left);
        Ok(())
    }

    /// Runs `read` one level deeper.
    fn inside<T, E>(self, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let depth = self.0.depth.get();
        self.0.depth.set(depth + 1);
        let value = read()?;
        self.0.depth.set(depth);
        Ok(value)
    }

    /// Remembers a key of the whole body's object while its value is read.
    fn enter(self, key: &str) {
        if self.0.depth.get() == 1 {
            self.0.key.replace(Some(shown(key)));
        }
    }

    fn leave(self) {
        if self.0.depth.get() == 1 {
            self.0.key.replace(None);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        self.take(VALUE)?;
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
        self.inside(|| {
            let mut array = Vec::new();
            while let Some(entry) = entries.next_element_seed(self)? {
                array.push(entry);
            }
            Ok(Value::Array(array))
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        self.inside(|| {
            let mut object = Map::new();
            while let Some(key) = members.next_key::<String>()? {
                self.take(if object.is_empty() { OBJECT } else { KEY })?;
                if object.contains_key(&key) {
                    let shown = shown(&key);
                    let message = format!("the key '{shown}' stands twice in one object");
                    self.0.key.replace(Some(shown));
                    return Err(A::Error::custom(message));
                }
                self.enter(&key);
                let value = members.next_value_seed(self)?;
                self.leave();
                object.insert(key, value);
            }
            Ok(Value::Object(object))
        })
    }
}

fn shown(key: &str) -> String {
    key.chars().take(64).collect()
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
    fn depth_and_memory_are_bounded() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = open.repeat(20_000) + "1" + &close.repeat(20_000);
            let error = parse(deep.as_bytes()).unwrap_err();
            assert!(error.message.starts_with("recursion limit"), "{error:?}");
        }
        let tokens = format!("[{}0]", "0,".repeat(1 << 20));
        assert!(parse(tokens.as_bytes()).is_ok());
        let numbers = format!("[{}0]", "0,".repeat(MAX_MEMORY / VALUE));
        let objects = format!("[{}0]", "{\"a\":{}},".repeat(MAX_MEMORY / OBJECT));
        for many in [numbers, objects] {
            let error = parse(many.as_bytes()).unwrap_err();
            assert!(
                error.message.starts_with("its values take over"),
                "{error:?}"
            );
        }
    }

    #[test]
    fn the_field_that_is_no_json_is_named() {
        let deep = format!("{{\"a\":1,\"deep\":{}", "[".repeat(200));
        for (body, key) in [
            (
                r#"{"a":{"b":1},"messages":[{"content":"\ud800 x"}]}"#,
                Some("messages"),
            ),
            (r#"{"temperature":1e999}"#, Some("temperature")),
            (deep.as_str(), Some("deep")),
            (r#"{"a":[1],"b":}"#, Some("b")),
            (r#"{"a":[1] "b":1}"#, None),
            (r#"[{"a":}]"#, None),
        ] {
            assert_eq!(
                parse(body.as_bytes()).unwrap_err().key.as_deref(),
                key,
                "{body}"
            );
        }
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
