//! What must never happen.

use tandem_core::PageIndex;

use crate::names::Attempt;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// I1: a request decodes while bytes of its prompt are not there.
    EarlyDecode {
        /// Whose.
        attempt: Attempt,
        /// Where they are missing, and what is there.
        page: PageIndex,
        /// Whose bytes are there instead.
        found: Option<Attempt>,
    },
    /// I2: a write landed in a page that is free, or another request's.
    ForeignWrite {
        /// Whose write.
        attempt: Attempt,
        /// Where.
        page: PageIndex,
        /// Whose page.
        owner: Option<Attempt>,
    },
    /// I2: a page was leased that somebody still has.
    LeasedTwice {
        /// Who got it.
        attempt: Attempt,
        /// Which.
        page: PageIndex,
        /// Who has it.
        owner: Attempt,
    },
    /// I2, of the source: a write read a page that its transfer no longer holds.
    ForeignRead {
        /// Whose write.
        attempt: Attempt,
        /// Which page.
        page: PageIndex,
        /// Whose page.
        owner: Option<Attempt>,
    },
    /// I3: an immediate counted towards another transfer.
    StaleCount {
        /// Whose immediate.
        attempt: Attempt,
        /// What it counted for.
        counted_for: Attempt,
    },
    /// I4: nothing happens any more, and something has not come back.
    Leak(String),
    /// I6: nothing happens any more, and a request has not ended.
    Unended(Attempt),
    /// An assertion of the core failed.
    Panicked(String),
}

impl Violation {
    /// Which invariant it breaks.
    #[must_use]
    pub const fn invariant(&self) -> &'static str {
        match self {
            Self::EarlyDecode { .. } => "I1",
            Self::ForeignWrite { .. } | Self::LeasedTwice { .. } | Self::ForeignRead { .. } => "I2",
            Self::StaleCount { .. } => "I3",
            Self::Leak(_) => "I4",
            Self::Unended(_) => "I6",
            Self::Panicked(_) => "assertion",
        }
    }
}
