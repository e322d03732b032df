//! Counting immediates at the target.
//!
//! What must hold: a late immediate of an ended transfer counts towards no other (I3). Three
//! guards: the slot must be armed, the generation must be the current one, and the immediate must
//! have come in at the endpoint of the peer that the slot was armed for.

use crate::EndpointId;
use crate::immediate::{Immediate, SLOTS, SlotKey};

/// Slots of one target, and what each still waits for.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct InboundLedger {
    slots: Vec<Slot>,
    /// Free slots, the longest unused first, so that a generation comes round as late as possible.
    free: std::collections::VecDeque<u16>,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Slot {
    generation: u8,
    count: Option<Count>,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Count {
    endpoint: EndpointId,
    expected: u64,
    received: u64,
}

/// A slot that waits for immediates. Give it back with [`InboundLedger::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
#[must_use]
pub struct Armed {
    /// What the sender writes into its immediates.
    pub key: SlotKey,
}

/// What an immediate did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It counted; more will come.
    Partial {
        /// Pieces that have arrived.
        received: u64,
        /// Pieces that will.
        expected: u64,
    },
    /// It was the last one: every byte of the transfer is in memory.
    Full,
    /// More arrived than the transfer has: the peer broke the protocol. The transfer must fail.
    Overfull {
        /// Pieces that have arrived.
        received: u64,
        /// Pieces that should have.
        expected: u64,
    },
    /// It belongs to no transfer that waits at this endpoint, and counted for none.
    Stale(Stale),
}

/// Why an immediate counted for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Nothing waits in that slot.
    Unarmed,
    /// The slot has been used again since.
    Generation,
    /// It came in at another peer's endpoint.
    Endpoint,
}

/// All slots are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {slots} transfer slots are in use")]
pub struct NoSlot {
    /// How many there are.
    pub slots: u16,
}

impl InboundLedger {
    /// A ledger of `slots` slots.
    ///
    /// # Panics
    /// Where `slots` is 0 or over [`SLOTS`].
    #[must_use]
    pub fn new(slots: u16) -> Self {
        assert!(slots > 0 && slots <= SLOTS);
        Self {
            slots: (0..slots)
                .map(|_| Slot {
                    generation: 0,
                    count: None,
                })
                .collect(),
            free: (0..slots).collect(),
        }
    }

    /// Takes a slot and waits for `expected` pieces at `endpoint`.
    ///
    /// # Panics
    /// Where `expected` is 0: a transfer of nothing needs no slot.
    pub fn arm(&mut self, endpoint: EndpointId, expected: u64) -> Result<Armed, NoSlot> {
        assert!(expected > 0, "a transfer of nothing needs no slot");
        let slots = self.slots.len() as u16;
        let slot = self.free.pop_front().ok_or(NoSlot { slots })?;
        let entry = &mut self.slots[usize::from(slot)];
        assert!(entry.count.is_none(), "a free slot counts for nobody");
        entry.generation = entry.generation.wrapping_add(1);
        entry.count = Some(Count {
            endpoint,
            expected,
            received: 0,
        });
        Ok(Armed {
            key: SlotKey::new(slot, entry.generation),
        })
    }

    /// Counts one immediate that came in at `endpoint`.
    pub fn count(&mut self, endpoint: EndpointId, immediate: Immediate) -> Counted {
        let key = immediate.key();
        let Some(slot) = self.slots.get_mut(usize::from(key.slot())) else {
            return Counted::Stale(Stale::Unarmed);
        };
        if slot.generation != key.generation() {
            return Counted::Stale(Stale::Generation);
        }
        let Some(count) = slot.count.as_mut() else {
            return Counted::Stale(Stale::Unarmed);
        };
        if count.endpoint != endpoint {
            return Counted::Stale(Stale::Endpoint);
        }
        count.received = count.received.saturating_add(u64::from(immediate.weight()));
        let (received, expected) = (count.received, count.expected);
        match received.cmp(&expected) {
            std::cmp::Ordering::Less => Counted::Partial { received, expected },
            std::cmp::Ordering::Equal => Counted::Full,
            std::cmp::Ordering::Greater => Counted::Overfull { received, expected },
        }
    }

    /// Frees a slot: its transfer is full, drained or fenced. Later immediates of it are stale.
    ///
    /// # Panics
    /// Where `armed` does not wait in its slot: it was released already.
    pub fn release(&mut self, armed: Armed) {
        let slot = &mut self.slots[usize::from(armed.key.slot())];
        assert_eq!(slot.generation, armed.key.generation(), "released twice");
        assert!(slot.count.take().is_some(), "released twice");
        self.free.push_back(armed.key.slot());
    }

    /// Pieces received and expected, for a transfer that still waits.
    #[must_use]
    pub fn progress(&self, armed: Armed) -> Option<(u64, u64)> {
        let slot = &self.slots[usize::from(armed.key.slot())];
        let count = slot.count.as_ref()?;
        (slot.generation == armed.key.generation()).then_some((count.received, count.expected))
    }

    /// Slots in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P0: EndpointId = EndpointId(0);
    const P1: EndpointId = EndpointId(1);

    fn imm(armed: Armed, weight: u16) -> Immediate {
        Immediate::new(armed.key, weight)
    }

    #[test]
    fn a_transfer_is_full_when_all_its_pieces_have_arrived_in_any_grouping() {
        let mut ledger = InboundLedger::new(2);
        let armed = ledger.arm(P0, 6).unwrap();
        assert_eq!(
            ledger.count(P0, imm(armed, 3)),
            Counted::Partial {
                received: 3,
                expected: 6
            }
        );
        assert_eq!(
            ledger.count(P0, imm(armed, 1)),
            Counted::Partial {
                received: 4,
                expected: 6
            }
        );
        assert_eq!(ledger.count(P0, imm(armed, 2)), Counted::Full);
    }

    #[test]
    fn a_late_immediate_never_counts_for_another_transfer() {
        let mut ledger = InboundLedger::new(1);
        let first = ledger.arm(P0, 2).unwrap();
        ledger.release(first);
        assert_eq!(
            ledger.count(P0, imm(first, 1)),
            Counted::Stale(Stale::Unarmed)
        );
        let second = ledger.arm(P0, 2).unwrap();
        assert_eq!(
            ledger.count(P0, imm(first, 1)),
            Counted::Stale(Stale::Generation)
        );
        assert_eq!(ledger.progress(second), Some((0, 2)));
    }

    #[test]
    fn an_immediate_counts_only_at_the_endpoint_of_its_peer() {
        let mut ledger = InboundLedger::new(1);
        let armed = ledger.arm(P0, 1).unwrap();
        assert_eq!(
            ledger.count(P1, imm(armed, 1)),
            Counted::Stale(Stale::Endpoint)
        );
        assert_eq!(ledger.count(P0, imm(armed, 1)), Counted::Full);
    }

    #[test]
    fn too_many_pieces_are_a_fault_not_a_wrap() {
        let mut ledger = InboundLedger::new(1);
        let armed = ledger.arm(P0, 3).unwrap();
        assert_eq!(
            ledger.count(P0, imm(armed, 4)),
            Counted::Overfull {
                received: 4,
                expected: 3
            }
        );
    }

    #[test]
    fn slots_are_bounded_and_reused_oldest_first() {
        let mut ledger = InboundLedger::new(2);
        let a = ledger.arm(P0, 1).unwrap();
        let b = ledger.arm(P0, 1).unwrap();
        assert_eq!(ledger.arm(P0, 1), Err(NoSlot { slots: 2 }));
        ledger.release(b);
        ledger.release(a);
        assert_eq!(ledger.arm(P0, 1).unwrap().key.slot(), b.key.slot());
        assert_eq!(ledger.in_use(), 1);
    }

    proptest! {
        /// Whatever the order in which two transfers' immediates arrive, each becomes full exactly
        /// once, with its own last piece.
        #[test]
        fn interleaved_transfers_count_apart(order in Just((0..40u8).collect::<Vec<_>>()).prop_shuffle()) {
            let mut ledger = InboundLedger::new(4);
            let transfers = [ledger.arm(P0, 20).unwrap(), ledger.arm(P1, 20).unwrap()];
            let mut left = [20, 20];
            for which in order {
                let i = usize::from(which % 2);
                left[i] -= 1;
                let endpoint = [P0, P1][i];
                let counted = ledger.count(endpoint, imm(transfers[i], 1));
                prop_assert_eq!(counted == Counted::Full, left[i] == 0);
            }
        }
    }
}
