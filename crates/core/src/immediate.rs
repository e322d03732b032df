//! The 32 bits that a write carries to the target's completion queue.
//!
//! ```text
//! | slot: 12 bits | generation: 8 bits | weight: 12 bits |
//! ```
//!
//! Only 32 bits are portable (EFA and verbs give no more). The *slot* names a transfer of the
//! target, the *generation* tells its users apart over time, the *weight* says how many pieces the
//! write holds, so that the target's sum needs neither order nor agreement on how the sender
//! merged pieces.

/// Slots at one target at once.
pub const SLOTS: u16 = 1 << 12;
/// Pieces that one write can carry.
pub const MAX_WEIGHT: u16 = (1 << 12) - 1;

/// Names a transfer at its target, for one use of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotKey {
    slot: u16,
    generation: u8,
}

impl SlotKey {
    /// # Panics
    /// Where `slot` is not below [`SLOTS`].
    #[must_use]
    pub const fn new(slot: u16, generation: u8) -> Self {
        assert!(slot < SLOTS);
        Self { slot, generation }
    }

    /// The slot, below [`SLOTS`].
    #[must_use]
    pub const fn slot(self) -> u16 {
        self.slot
    }

    /// Which use of the slot, modulo 256.
    #[must_use]
    pub const fn generation(self) -> u8 {
        self.generation
    }

    /// The upper 20 bits of every immediate of this transfer, as a number.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        (self.slot as u32) << 8 | self.generation as u32
    }

    /// Reads [`SlotKey::to_bits`]; `None` where there are more than 20 bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits >> 20 != 0 {
            return None;
        }
        Some(Self {
            slot: (bits >> 8) as u16,
            generation: bits as u8,
        })
    }
}

/// An immediate: which transfer, and how many pieces this write holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Immediate {
    key: SlotKey,
    weight: u16,
}

impl Immediate {
    /// # Panics
    /// Where `weight` is over [`MAX_WEIGHT`].
    #[must_use]
    pub const fn new(key: SlotKey, weight: u16) -> Self {
        assert!(weight <= MAX_WEIGHT);
        Self { key, weight }
    }

    /// Which transfer.
    #[must_use]
    pub const fn key(self) -> SlotKey {
        self.key
    }

    /// How many pieces.
    #[must_use]
    pub const fn weight(self) -> u16 {
        self.weight
    }

    /// As it travels.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.key.to_bits() << 12 | self.weight as u32
    }

    /// Every 32 bits are some immediate; whether it counts is the ledger's question.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            key: SlotKey {
                slot: (bits >> 20) as u16,
                generation: (bits >> 12) as u8,
            },
            weight: (bits & MAX_WEIGHT as u32) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_32_bits_survive_a_round_trip(bits: u32) {
            let imm = Immediate::from_bits(bits);
            prop_assert_eq!(imm.to_bits(), bits);
            prop_assert_eq!(Immediate::new(imm.key(), imm.weight()), imm);
            prop_assert_eq!(SlotKey::from_bits(imm.key().to_bits()), Some(imm.key()));
        }
    }

    #[test]
    fn the_fields_do_not_overlap() {
        assert_eq!(
            Immediate::new(SlotKey::new(0xfff, 0), 0).to_bits(),
            0xfff0_0000
        );
        assert_eq!(
            Immediate::new(SlotKey::new(0, 0xff), 0).to_bits(),
            0x000f_f000
        );
        assert_eq!(
            Immediate::new(SlotKey::new(0, 0), 0xfff).to_bits(),
            0x0000_0fff
        );
        assert_eq!(SlotKey::from_bits(1 << 20), None);
    }
}
