//! Labels of workers as small numbers, so that a choice compares numbers.

use std::collections::BTreeMap;

/// A key and a value, in one fleet at one time. 0 is no label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(u16);

impl LabelId {
    /// No label.
    pub const NONE: Self = Self(0);
}

/// All labels of a fleet's workers.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct Labels {
    ids: BTreeMap<String, BTreeMap<String, LabelId>>,
}

impl Labels {
    pub(super) fn of<'w>(workers: impl Iterator<Item = &'w BTreeMap<String, String>>) -> Self {
        let mut labels = Self::default();
        let mut next = 1;
        for (key, value) in workers.flatten() {
            let values = labels.ids.entry(key.clone()).or_default();
            values.entry(value.clone()).or_insert_with(|| {
                next += 1;
                LabelId(next - 1)
            });
        }
        labels
    }

    /// The number of a label; [`LabelId::NONE`] where no worker has it.
    #[must_use]
    pub fn id(&self, key: &str, value: &str) -> LabelId {
        let id = self.ids.get(key).and_then(|values| values.get(value));
        id.copied().unwrap_or(LabelId::NONE)
    }
}
