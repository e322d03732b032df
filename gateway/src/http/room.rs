//! Memory for request bodies that are being read, of all clients together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// There is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// So much and no more.
#[derive(Debug)]
pub(crate) struct BodyRoom {
    most: u64,
    taken: AtomicU64,
}

/// A body's part of it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    room: Arc<BodyRoom>,
    bytes: u64,
}

impl BodyRoom {
    pub(crate) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: AtomicU64::new(0),
        })
    }

    pub(crate) fn hold(self: &Arc<Self>) -> Held {
        Held {
            room: Arc::clone(self),
            bytes: 0,
        }
    }
}

impl Held {
    /// Holds `bytes` in all from now on, which are no fewer than before.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let more = bytes.saturating_sub(self.bytes);
        let grown = |taken: u64| taken.checked_add(more).filter(|all| *all <= self.room.most);
        self.room
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .map_err(|_| NoRoom)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_the_room_and_give_it_back() {
        let room = BodyRoom::new(10);
        let (mut one, mut other) = (room.hold(), room.hold());
        assert_eq!(one.grow(6), Ok(()));
        assert_eq!(other.grow(4), Ok(()));
        assert_eq!(one.grow(7), Err(NoRoom));
        assert_eq!(one.grow(6), Ok(()));
        drop(other);
        assert_eq!(one.grow(10), Ok(()));
        drop(one);
        assert_eq!(room.hold().grow(10), Ok(()));
    }
}
