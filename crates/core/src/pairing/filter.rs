//! Which workers a request can go to at all.

use crate::fleet::{Figures, is};

/// Why a worker is no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filtered {
    /// It does something else.
    Role,
    /// It is going away.
    Stopping,
    /// Its operator lets it finish, and no more.
    Draining,
    /// Its operator has switched it off.
    Disabled,
    /// It does not answer as it should.
    Unhealthy,
    /// It lacks a label that the policy wants.
    Label,
    /// It refused for want of room since its latest report.
    Full,
    /// It has too few free pages.
    NoRoom,
    /// Too many prompt tokens wait there already.
    Busy,
    /// It failed this request before, fails everybody, or is kept for another.
    Avoided,
}

/// Reasons that there are.
pub const FILTERS: usize = 10;

impl Filtered {
    /// All of them, by their numbers.
    pub const ALL: [Self; FILTERS] = [
        Self::Role,
        Self::Stopping,
        Self::Draining,
        Self::Disabled,
        Self::Unhealthy,
        Self::Label,
        Self::Full,
        Self::NoRoom,
        Self::Busy,
        Self::Avoided,
    ];

    /// As in messages and labels of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Stopping => "stopping",
            Self::Draining => "draining",
            Self::Disabled => "disabled",
            Self::Unhealthy => "unhealthy",
            Self::Label => "label",
            Self::Full => "full",
            Self::NoRoom => "no_room",
            Self::Busy => "busy",
            Self::Avoided => "avoided",
        }
    }

    /// Whether it may be otherwise after the next report.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Full | Self::NoRoom | Self::Busy | Self::Avoided)
    }
}

/// Whether a worker of these flags generates and takes new requests.
#[inline]
#[must_use]
pub const fn takes_decode(flags: u8) -> bool {
    flags & (is::DECODE | is::AWAY | is::FULL) == is::DECODE
}

/// Whether a worker of these flags computes prompts for others and takes new requests.
#[inline]
#[must_use]
pub const fn takes_prefill(flags: u8) -> bool {
    flags & (is::PREFILL | is::AWAY) == is::PREFILL
}

/// Whether a worker can generate an answer that takes so many pages (`fleet::pages_for`).
#[inline]
pub const fn of_decode(worker: &Figures, pages: u32) -> Result<(), Filtered> {
    if !takes_decode(worker.flags) {
        return Err(not(is::DECODE, worker.flags));
    }
    if worker.free_pages < pages {
        return Err(Filtered::NoRoom);
    }
    Ok(())
}

/// Whether a worker can compute this request's prompt for another.
#[inline]
pub const fn of_prefill(worker: &Figures) -> Result<(), Filtered> {
    if !takes_prefill(worker.flags) {
        return Err(not(is::PREFILL, worker.flags));
    }
    Ok(())
}

#[cold]
const fn not(role: u8, flags: u8) -> Filtered {
    if flags & role == 0 {
        Filtered::Role
    } else if flags & is::DISABLED != 0 {
        Filtered::Disabled
    } else if flags & is::DRAINING != 0 {
        Filtered::Draining
    } else if flags & is::STOPPING != 0 {
        Filtered::Stopping
    } else if flags & is::UNHEALTHY != 0 {
        Filtered::Unhealthy
    } else {
        Filtered::Full
    }
}
