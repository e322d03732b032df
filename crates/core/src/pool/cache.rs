//! Pages that hold whole blocks and can be found again by the block's name.
//!
//! A cached page is held by requests that read it, or idle. An idle one counts as free: it is given
//! away when no free page is left, the longest unused first.

use std::collections::BTreeMap;

use crate::blocks::BlockHash;

/// Which page holds which block.
#[derive(Debug, Default)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Cache {
    by_hash: BTreeMap<BlockHash, u32>,
    entries: BTreeMap<u32, Entry>,
    /// Idle pages by when they were last let go.
    idle: BTreeMap<u64, u32>,
    next_stamp: u64,
    changes: Vec<CacheChange>,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Entry {
    hash: BlockHash,
    holders: u32,
    /// When it became idle.
    stamp: u64,
}

/// A block that can be found from now on, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheChange {
    /// It is in a page.
    Stored(BlockHash),
    /// Its page was given away.
    Evicted(BlockHash),
}

impl Cache {
    /// A page now holds a block, and somebody holds the page. Not where another page has it already.
    pub(super) fn store(&mut self, page: u32, hash: BlockHash) {
        if self.by_hash.contains_key(&hash) || self.entries.contains_key(&page) {
            return;
        }
        self.by_hash.insert(hash, page);
        let entry = Entry {
            hash,
            holders: 1,
            stamp: 0,
        };
        self.entries.insert(page, entry);
        self.changes.push(CacheChange::Stored(hash));
    }

    /// Holds the page of a block. Returns it, and whether it was idle.
    pub(super) fn hold(&mut self, hash: BlockHash) -> Option<(u32, bool)> {
        let page = *self.by_hash.get(&hash)?;
        let entry = self.entries.get_mut(&page)?;
        let idle = entry.holders == 0;
        if idle {
            self.idle.remove(&entry.stamp);
        }
        entry.holders += 1;
        Some((page, idle))
    }

    /// One holder lets go. `None` where the page is not cached; otherwise whether it is idle now.
    pub(super) fn let_go(&mut self, page: u32) -> Option<bool> {
        let entry = self.entries.get_mut(&page)?;
        assert!(entry.holders > 0, "page {page} is let go twice");
        entry.holders -= 1;
        if entry.holders > 0 {
            return Some(false);
        }
        entry.stamp = self.next_stamp;
        self.next_stamp += 1;
        self.idle.insert(entry.stamp, page);
        Some(true)
    }

    /// Forgets the page that has been idle longest.
    pub(super) fn evict(&mut self) -> Option<u32> {
        let (_, page) = self.idle.pop_first()?;
        if let Some(entry) = self.entries.remove(&page) {
            self.by_hash.remove(&entry.hash);
            self.changes.push(CacheChange::Evicted(entry.hash));
        }
        Some(page)
    }

    /// What has changed since the last call, in order.
    pub(super) fn take_changes(&mut self) -> Vec<CacheChange> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn holds(&self, page: u32) -> bool {
        self.entries.contains_key(&page)
    }
}
