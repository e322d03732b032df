//! Room in an inbox's completion queue.
//!
//! A write with an immediate takes an entry of the target's queue whether the target polls or not, and
//! no provider on hardware protects a queue from overrun: what is over is lost, and the queue with
//! it. So no more pieces are armed at an inbox than its queue has entries. Every write holds a piece
//! at least, so that its peer, which writes to armed slots only, cannot have more entries there than
//! that, whatever its window, its NICs or this thread's delays; a peer that breaks the protocol
//! breaks its own queue and nobody else's.
//!
//! What a slot was armed for is taken until its entries have been read: for a slot whose count is
//! full that is at once. Another one is released when its writer has confirmed that nothing follows;
//! what had come until then may still stand in the queue, so its room comes back when the queue has
//! been read until empty.

use crate::error::ArmError;

/// Entries that software providers begin with. Their queues grow by themselves (libfabric's
/// `ofi_cq_write` puts what is over into a list; `safe::overrun` fills a short one on every version).
const GROWING: usize = 1024;
/// Entries on hardware, unless configured: 4 MiB of ConnectX's 64 bytes.
const FIXED: usize = 1 << 16;

/// How long an inbox's queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSize {
    /// Entries that are asked for.
    pub(crate) entries: usize,
    /// Whether more may come than that.
    grows: bool,
}

impl QueueSize {
    /// As configured, or by the kind of provider.
    pub(crate) fn of(configured: Option<usize>, software: bool) -> Self {
        Self {
            entries: configured.unwrap_or(if software { GROWING } else { FIXED }),
            grows: software && configured.is_none(),
        }
    }
}

/// Room of one inbox: on each NIC its queue is as long, and all writes may come on one of them.
#[derive(Debug)]
pub(crate) struct Room {
    /// `None`: the queue grows.
    entries: Option<u64>,
    /// Pieces of armed slots.
    armed: u64,
    /// Pieces of released slots whose entries may still stand in the queue.
    leaving: u64,
}

impl Room {
    pub(crate) fn new(queue: QueueSize) -> Self {
        Self {
            entries: (!queue.grows).then_some(queue.entries as u64),
            armed: 0,
            leaving: 0,
        }
    }

    /// Whether so many pieces may be armed.
    pub(crate) fn check(&self, pieces: u64) -> Result<(), ArmError> {
        let Some(entries) = self.entries else {
            return Ok(());
        };
        if pieces > entries {
            return Err(ArmError::TooMany { pieces, entries });
        }
        let free = entries - (self.armed + self.leaving);
        if pieces > free {
            return Err(ArmError::NoRoom { pieces, free });
        }
        Ok(())
    }

    /// They are armed.
    ///
    /// # Panics
    /// Where [`Room::check`] refuses them.
    pub(crate) fn take(&mut self, pieces: u64) {
        self.armed = self.armed.saturating_add(pieces);
        let over = |entries| self.armed + self.leaving > entries;
        assert!(!self.entries.is_some_and(over), "a queue could overrun");
    }

    /// Their slot is released; `all_read` where its count was full.
    pub(crate) fn give_back(&mut self, pieces: u64, all_read: bool) {
        assert!(pieces <= self.armed, "more is released than was armed");
        self.armed -= pieces;
        if !all_read {
            self.leaving += pieces;
        }
    }

    /// The queues of all NICs had nothing to read.
    pub(crate) fn seen_empty(&mut self) {
        self.leaving = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn room(entries: usize) -> Room {
        Room::new(QueueSize::of(Some(entries), false))
    }

    #[test]
    fn what_never_fits_and_what_does_not_fit_now_are_told_apart() {
        let mut room = room(100);
        room.check(60).unwrap();
        room.take(60);
        let (pieces, entries) = (101, 100);
        assert_eq!(room.check(101), Err(ArmError::TooMany { pieces, entries }));
        let (pieces, free) = (41, 40);
        assert_eq!(room.check(41), Err(ArmError::NoRoom { pieces, free }));
        room.check(40).unwrap();
    }

    #[test]
    fn a_full_slot_s_room_is_free_at_once_another_one_s_when_the_queue_was_empty() {
        let mut room = room(100);
        room.take(100);
        room.give_back(60, true);
        room.give_back(40, false);
        room.check(60).unwrap();
        assert!(room.check(61).is_err());
        room.seen_empty();
        room.check(100).unwrap();
    }

    #[test]
    fn only_software_s_queues_grow_and_only_where_none_is_configured() {
        let bound = |configured, software| {
            let room = Room::new(QueueSize::of(configured, software));
            room.check(1 << 40).is_err()
        };
        assert!(!bound(None, true));
        assert!(bound(Some(10), true) && bound(Some(10), false) && bound(None, false));
    }

    struct Flow {
        pieces: u64,
        sent: u64,
        counted: u64,
    }

    /// A queue, and peers that write whatever they may, as late as they may.
    struct World {
        room: Room,
        flows: Vec<Flow>,
        /// Pieces of each entry, and whose they are where that flow is still armed.
        queue: VecDeque<(u64, Option<usize>)>,
        random: u64,
    }

    impl World {
        fn random(&mut self, below: u64) -> u64 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % below
        }

        fn step(&mut self) {
            let flows = self.flows.len() as u64;
            match self.random(32) {
                0..4 => {
                    let pieces = 1 + self.random(40);
                    if self.room.check(pieces).is_ok() {
                        self.room.take(pieces);
                        let (sent, counted) = (0, 0);
                        let flow = Flow {
                            pieces,
                            sent,
                            counted,
                        };
                        self.flows.push(flow);
                    }
                }
                4..28 if flows > 0 => {
                    let at = self.random(flows) as usize;
                    let left = self.flows[at].pieces - self.flows[at].sent;
                    if left > 0 {
                        // One piece each, mostly: as many entries as there can be.
                        let weight = 1 + self.random(left.min(2));
                        self.flows[at].sent += weight;
                        self.queue.push_back((weight, Some(at)));
                    }
                }
                28..31 => self.poll(),
                _ if flows > 0 => {
                    // Its writer has confirmed that nothing follows; what it sent may be unread.
                    let at = self.random(flows) as usize;
                    self.release(at);
                }
                _ => {}
            }
        }

        fn poll(&mut self) {
            if self.queue.is_empty() {
                return self.room.seen_empty();
            }
            for _ in 0..4 {
                let Some((weight, Some(at))) = self.queue.pop_front() else {
                    continue;
                };
                self.flows[at].counted += weight;
                if self.flows[at].counted == self.flows[at].pieces {
                    self.release(at);
                }
            }
        }

        fn release(&mut self, at: usize) {
            let flow = self.flows.swap_remove(at);
            let moved = self.flows.len();
            for (_, owner) in &mut self.queue {
                match *owner {
                    Some(o) if o == at => *owner = None,
                    Some(o) if o == moved => *owner = Some(at),
                    _ => {}
                }
            }
            let all_read = flow.counted >= flow.pieces;
            self.room.give_back(flow.pieces, all_read);
        }
    }

    #[test]
    fn no_order_of_arming_writing_reading_and_releasing_overruns_a_queue() {
        const ENTRIES: usize = 64;
        let (mut fullest, mut refused) = (0, 0);
        for seed in 1..=200 {
            let mut world = World {
                room: room(ENTRIES),
                flows: Vec::new(),
                queue: VecDeque::new(),
                random: seed,
            };
            for _ in 0..2_000 {
                world.step();
                assert!(world.queue.len() <= ENTRIES, "seed {seed}");
                fullest = fullest.max(world.queue.len());
                refused += usize::from(world.room.check(1).is_err());
            }
        }
        assert!(fullest > ENTRIES / 2 && refused > 0, "{fullest} {refused}");
    }
}
