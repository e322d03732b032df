//! Whether a worker's reports follow one another without a gap.

/// What to make of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It follows the one before: take it.
    Next,
    /// It tells everything anew: forget what was known, then take it.
    Anew,
    /// Something is missing: forget what was known, and ask for everything.
    Gap,
    /// Something is missing, and everything was asked for already.
    Waiting,
}

/// Follows one worker's numbered reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheFollower {
    /// Number of the next change; `None` until everything was told.
    next: Option<u64>,
    asked: bool,
}

impl CacheFollower {
    /// A report whose first change has the number `first`, with so many numbered changes in it.
    pub const fn hear(&mut self, first: u64, changes: u64, reset: bool) -> Heard {
        let expected = match self.next {
            Some(next) => next == first,
            None => false,
        };
        if reset || expected {
            self.next = Some(first + changes);
            self.asked = false;
            return if reset { Heard::Anew } else { Heard::Next };
        }
        self.next = None;
        if self.asked {
            return Heard::Waiting;
        }
        self.asked = true;
        Heard::Gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_asks_once_for_everything_and_a_reset_ends_it() {
        let mut reader = CacheFollower::default();
        assert_eq!(reader.hear(1, 0, true), Heard::Anew);
        assert_eq!(reader.hear(1, 3, false), Heard::Next);
        assert_eq!(reader.hear(4, 1, false), Heard::Next);
        assert_eq!(reader.hear(6, 1, false), Heard::Gap);
        assert_eq!(reader.hear(7, 1, false), Heard::Waiting);
        assert_eq!(reader.hear(8, 2, true), Heard::Anew);
        assert_eq!(reader.hear(10, 1, false), Heard::Next);
    }

    #[test]
    fn changes_before_everything_was_told_are_a_gap() {
        assert_eq!(CacheFollower::default().hear(1, 1, false), Heard::Gap);
    }

    #[test]
    fn each_gap_is_asked_about_once() {
        let mut follower = CacheFollower::default();
        assert_eq!(follower.hear(0, 3, true), Heard::Anew);
        assert_eq!(follower.hear(3, 2, false), Heard::Next);
        assert_eq!(follower.hear(6, 1, false), Heard::Gap);
        assert_eq!(follower.hear(7, 1, false), Heard::Waiting);
        assert_eq!(follower.hear(8, 4, true), Heard::Anew);
        assert_eq!(follower.hear(12, 0, false), Heard::Next);
        assert_eq!(follower.hear(11, 1, false), Heard::Gap, "and this one too");
    }
}
