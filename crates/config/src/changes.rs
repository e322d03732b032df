//! What two texts of one file say differently.

use std::collections::BTreeSet;

use toml::{Table, Value};

/// The keys (`gateway.listen`, `policy.decode.choose`) whose values differ, in their order; those that only
/// one of the texts has too. `None` where a text is no TOML. Comments and order are no difference.
#[must_use]
pub fn changed_keys(before: &str, after: &str) -> Option<Vec<String>> {
    let (before, after): (Table, Table) = (before.parse().ok()?, after.parse().ok()?);
    let mut changed = BTreeSet::new();
    compare("", &before, &after, &mut changed);
    Some(changed.into_iter().collect())
}

fn compare(place: &str, before: &Table, after: &Table, changed: &mut BTreeSet<String>) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let empty = Table::new();
    for name in names {
        let path = format!("{place}{name}");
        let inner = |table: Option<&Value>| match table {
            None => Some(empty.clone()),
            Some(Value::Table(table)) => Some(table.clone()),
            Some(_) => None,
        };
        let (old, new) = (before.get(name), after.get(name));
        match (inner(old), inner(new)) {
            _ if old == new => {}
            // A table that comes or goes and is empty says something too: `[admin]`.
            (Some(old), Some(new)) if !(old.is_empty() && new.is_empty()) => {
                compare(&format!("{path}."), &old, &new, changed);
            }
            _ => {
                changed.insert(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let before = "[gateway]\nlisten = \"a\"\nworkers = [1]\n[policy.decode]\nchoose = \"x\"\n[log]\nlevel = 1\n";
        let after = "# new\n[policy]\ndecode = { choose = \"y\" }\n[gateway]\nworkers = [1, 2]\nlisten = \"a\"\n";
        let changed = changed_keys(before, after).unwrap();
        assert_eq!(
            changed,
            ["gateway.workers", "log.level", "policy.decode.choose"]
        );
        assert_eq!(changed_keys(before, before), Some(vec![]));
        assert_eq!(
            changed_keys("", "[admin]\n"),
            Some(vec!["admin".to_owned()])
        );
        assert_eq!(changed_keys(before, "x = = 1"), None);
    }
}
