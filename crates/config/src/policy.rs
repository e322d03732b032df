//! `[policy]`: which workers serve a request. Its shape belongs to the policies; this module only
//! gives their errors a place in the file.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use tandem_policies::PolicySettings;
use toml::Spanned;
use toml::de::ValueDeserializer;

use crate::error::unknown;
use crate::section::Document;

/// The table, if the file has it and it is right; what is wrong with it is noted.
pub(crate) fn read(document: &mut Document<'_>) -> Option<PolicySettings> {
    let table = document.take("policy")?;
    let value = Spanned::new(table.span.clone(), table.value);
    let deserializer: ValueDeserializer<'_> = value.into_deserializer();
    match PolicySettings::deserialize(deserializer) {
        Ok(settings) => Some(settings),
        Err(error) => {
            let span = error.span().unwrap_or(table.span);
            document.problem_at(Some(span), explain(error.message()));
            Some(PolicySettings::default())
        }
    }
}

/// Serde's words in those of this crate: "unknown field `a`, expected one of `b`, `c`" has the
/// names in backticks.
fn explain(message: &str) -> String {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match names.split_first() {
        Some((name, known)) if message.starts_with("unknown field") => {
            unknown("key", name, " in [policy]", known)
        }
        Some((name, known)) if message.starts_with("unknown variant") => {
            unknown("choice", name, " in [policy]", known)
        }
        _ => {
            let message = message.replace('\n', "; ");
            let message = message.replace("struct PolicySettings", "a table");
            format!("[policy]: {}", message.replace("u64", "a whole number"))
        }
    }
}
