//! New settings in the place of old ones while requests wait and run.
//!
//! A class is known by its number everywhere, so a number never comes to mean another class: a class of
//! the same name keeps it, one that is new gets the next. One that is gone keeps it too, with its last
//! settings, for as long as the gateway runs: its requests end as they began, and nobody can name it.

use super::{AdmissionSettings, ClassId, ClassSettings};

/// Classes that can be told apart from the start of a gateway on.
pub const MOST_CLASSES_EVER: usize = 256;

/// The numbers of classes are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "class: {found} names since the gateway's start, of which {MOST_CLASSES_EVER} can be told apart: \
     restart it"
)]
pub struct TooManyClasses {
    found: usize,
}

impl AdmissionSettings {
    /// These settings with the classes numbered as in `before`.
    pub fn following(self, before: &Self) -> Result<Self, TooManyClasses> {
        let default = self.class(self.default_class).name.clone();
        let mut new = self.classes;
        let keep = |old: &ClassSettings| {
            let at = new.iter().position(|class| class.name == old.name);
            at.map_or_else(
                || ClassSettings {
                    gone: true,
                    ..old.clone()
                },
                |at| new.remove(at),
            )
        };
        let mut classes: Vec<ClassSettings> = before.classes.iter().map(keep).collect();
        classes.extend(new);
        if classes.len() > MOST_CLASSES_EVER {
            return Err(TooManyClasses {
                found: classes.len(),
            });
        }
        let mut settings = Self { classes, ..self };
        let default = settings.class_named(&default);
        settings.default_class = default.expect("its own classes are all there");
        Ok(settings)
    }

    /// The classes that requests may name.
    pub fn nameable(&self) -> impl Iterator<Item = (ClassId, &ClassSettings)> {
        let all = (0..).map(ClassId).zip(&self.classes);
        all.filter(|(_, class)| !class.gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(names: &[&str], default: &str) -> AdmissionSettings {
        let classes = names.iter().map(|name| ClassSettings::new(*name, 9));
        let mut settings = AdmissionSettings {
            classes: classes.collect(),
            ..AdmissionSettings::one_class(9)
        };
        settings.default_class = settings.class_named(default).unwrap();
        settings
    }

    fn names(settings: &AdmissionSettings) -> Vec<(&str, bool)> {
        let classes = settings.classes.iter();
        classes.map(|c| (c.name.as_str(), c.gone)).collect()
    }

    #[test]
    fn a_class_keeps_its_number_and_one_that_is_gone_cannot_be_named() {
        let before = settings(&["chat", "batch"], "chat");
        let mut after = settings(&["bulk", "batch"], "batch");
        after.classes[1].priority = 7;
        let after = after.following(&before).unwrap();
        assert_eq!(
            names(&after),
            [("chat", true), ("batch", false), ("bulk", false)]
        );
        assert_eq!(after.default_class, ClassId(1));
        assert_eq!(after.class(ClassId(1)).priority, 7);
        assert_eq!(after.class_named("chat"), None);
        let named: Vec<ClassId> = after.nameable().map(|(id, _)| id).collect();
        assert_eq!(named, [ClassId(1), ClassId(2)]);
        // It comes back as what it was.
        let back = settings(&["chat"], "chat").following(&after).unwrap();
        assert_eq!(back.default_class, ClassId(0));
        assert_eq!(
            names(&back),
            [("chat", false), ("batch", true), ("bulk", true)]
        );
    }

    #[test]
    fn numbers_are_not_given_out_without_end() {
        let mut live = settings(&["a"], "a");
        for n in 1..MOST_CLASSES_EVER {
            let name = n.to_string();
            live = settings(&[&name], &name).following(&live).unwrap();
        }
        let error = settings(&["z"], "z").following(&live).unwrap_err();
        assert!(error.to_string().contains("257 names"), "{error}");
        assert!(settings(&["7"], "7").following(&live).is_ok());
    }
}
