//! Leases: pages that belong to one request, in a state that the compiler knows.
//!
//! ```text
//! Leased -> Exposed (address given out) -> Ready (count full) -> Active -> Free
//!               |                                                  ^ |
//!               v                                       Leased ----+ | holds a whole block
//!           Draining (cancel sent) -- confirmed: Free                v
//!               |  peer lost                                      Cached (counts as free)
//!           Quarantined -- fenced --> Free
//! ```
//!
//! Only [`crate::pool::PagePool`] moves a lease, and only along these arrows: there is no function
//! that frees an exposed page.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::PageIndex;

/// Where a page is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PageState {
    /// Nobody's.
    Free,
    /// A request's; nobody else knows its address.
    Leased,
    /// A prefill worker has its address and may write it.
    Exposed,
    /// Complete; nobody writes it.
    Ready,
    /// The engine reads and writes it.
    Active,
    /// The writer was asked to stop.
    Draining,
    /// The writer is lost and not yet fenced.
    Quarantined,
    /// Nobody's, and holds a block that a request may find again. Counts as free.
    Cached,
}

impl PageState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Free,
        Self::Leased,
        Self::Exposed,
        Self::Ready,
        Self::Active,
        Self::Draining,
        Self::Quarantined,
        Self::Cached,
    ];

    /// As a metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Leased => "leased",
            Self::Exposed => "exposed",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Quarantined => "quarantined",
            Self::Cached => "cached",
        }
    }
}

/// A state as a type.
pub trait LeaseState {
    /// Its name in a page's record.
    const STATE: PageState;
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        #[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
        pub enum $name {}

        impl LeaseState for $name {
            const STATE: PageState = PageState::$name;
        }
    )+};
}

states! {
    /// A request's; nobody else knows the address.
    Leased,
    /// A prefill worker may write.
    Exposed,
    /// Complete.
    Ready,
    /// The engine's.
    Active,
    /// The writer was asked to stop.
    Draining,
    /// The writer is lost.
    Quarantined,
}

/// Pages of one request. Give it back to the pool that made it: dropping it loses the pages.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
#[must_use = "a dropped lease is a leak: give it back to its pool"]
pub struct Lease<S: LeaseState> {
    pages: Arc<[PageIndex]>,
    state: PhantomData<S>,
}

impl<S: LeaseState> Lease<S> {
    pub(crate) const fn new(pages: Arc<[PageIndex]>) -> Self {
        Self {
            pages,
            state: PhantomData,
        }
    }

    pub(crate) fn into_pages(self) -> Arc<[PageIndex]> {
        self.pages
    }

    /// The pages, in the order of their tokens.
    #[must_use]
    pub const fn pages(&self) -> &Arc<[PageIndex]> {
        &self.pages
    }
}
