//! Labels of workers as small numbers, so that a choice compares numbers.

use std::collections::BTreeMap;

/// A key and a value, in one fleet at one time. 0 is no label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(u16);

impl LabelId {
    /// No label.
    pub const NONE: Self = Self(0);
}

/// A key of labels, in one fleet at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelKey(u16);

/// All labels of a fleet's workers.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct Labels {
    ids: BTreeMap<String, (LabelKey, BTreeMap<String, LabelId>)>,
    /// Of each label, from number 1 on.
    keys: Vec<LabelKey>,
}

impl Labels {
    pub(super) fn of<'w>(workers: impl Iterator<Item = &'w BTreeMap<String, String>>) -> Self {
        let mut labels = Self::default();
        for (key, value) in workers.flatten() {
            let next = LabelKey(labels.ids.len() as u16);
            let of_key = labels.ids.entry(key.clone());
            let (key, values) = of_key.or_insert_with(|| (next, BTreeMap::new()));
            values.entry(value.clone()).or_insert_with(|| {
                labels.keys.push(*key);
                LabelId(labels.keys.len() as u16)
            });
        }
        labels
    }

    /// The number of a label; [`LabelId::NONE`] where no worker has it.
    #[must_use]
    pub fn id(&self, key: &str, value: &str) -> LabelId {
        let id = self.ids.get(key).and_then(|(_, values)| values.get(value));
        id.copied().unwrap_or(LabelId::NONE)
    }

    /// The number of a key; `None` where no worker has a label of it.
    #[must_use]
    pub fn key(&self, key: &str) -> Option<LabelKey> {
        self.ids.get(key).map(|(key, _)| *key)
    }

    /// The key of a label.
    #[must_use]
    pub fn key_of(&self, label: LabelId) -> Option<LabelKey> {
        let index = usize::from(label.0).checked_sub(1)?;
        self.keys.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_number_and_its_key_another() {
        let worker = |host: &str| {
            let labels = [("host", host), ("rack", "host")];
            labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        };
        let workers: [BTreeMap<_, _>; 2] = ["a", "b"].map(worker);
        let labels = Labels::of(workers.iter());
        let ids = [("host", "a"), ("host", "b"), ("rack", "host")].map(|(k, v)| labels.id(k, v));
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && !ids.contains(&LabelId::NONE));
        let keys = ids.map(|id| labels.key_of(id));
        assert_eq!(keys, ["host", "host", "rack"].map(|key| labels.key(key)));
        assert_ne!(keys[0], keys[2]);
        assert_eq!(labels.key_of(LabelId::NONE), None);
        assert_eq!(
            (labels.key("a"), labels.id("a", "a")),
            (None, LabelId::NONE)
        );
    }
}
