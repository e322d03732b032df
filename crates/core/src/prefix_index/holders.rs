//! Sets of places: who holds a block.

/// Places of workers in the index, at most. Twice as many as workers: a worker that begins anew gets
/// another place while its old one is being cleared.
pub(super) const PLACES: usize = 2048;
const WORDS: usize = PLACES / 64;
/// Holders that a block has without a set of its own.
const FEW: usize = 5;

/// A set of places as bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bits([u64; WORDS]);

impl Bits {
    pub(super) const EMPTY: Self = Self([0; WORDS]);

    pub(super) const fn insert(&mut self, place: u16) {
        self.0[place as usize / 64] |= 1 << (place % 64);
    }

    pub(super) const fn remove(&mut self, place: u16) {
        self.0[place as usize / 64] &= !(1 << (place % 64));
    }

    pub(super) const fn contains(&self, place: u16) -> bool {
        self.0[place as usize / 64] & (1 << (place % 64)) != 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Writes `value` at each place of `all`, which has one for every place.
    pub(super) fn fill(&self, all: &mut [u32], value: u32) {
        for (word, places) in self.0.iter().zip(all.chunks_exact_mut(64)) {
            if *word == u64::MAX {
                places.fill(value);
            } else if *word != 0 {
                // No branch for each: several at a time.
                for (bit, place) in places.iter_mut().enumerate() {
                    let set = word & (1 << bit) != 0;
                    *place = if set { value } else { *place };
                }
            }
        }
    }

    /// Each place, in ascending order.
    pub(super) fn places(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some((at * 64) as u16 + bit as u16)
            })
        })
    }
}

/// A few places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Few {
    count: u8,
    places: [u16; FEW],
}

impl Few {
    pub(super) fn places(&self) -> &[u16] {
        &self.places[..usize::from(self.count)]
    }

    /// Whether there was room for it, or it was there.
    pub(super) fn insert(&mut self, place: u16) -> bool {
        let there = self.places().contains(&place);
        let room = usize::from(self.count) < FEW;
        if !there && room {
            self.places[usize::from(self.count)] = place;
            self.count += 1;
        }
        there || room
    }

    pub(super) fn filtered(&self, keep: impl Fn(u16) -> bool) -> Self {
        let mut kept = Self::default();
        for place in self.places() {
            if keep(*place) {
                kept.insert(*place);
            }
        }
        kept
    }
}

/// A block's holders: a few by number, many as bits in a table of such sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holders {
    Few(Few),
    Many { at: u32 },
}

/// Some places, while a chain is looked up.
#[allow(
    clippy::large_enum_variant,
    reason = "one of them, on the stack, for one lookup"
)]
pub(super) enum Group {
    Few(Few),
    Many(Bits),
}

impl Group {
    pub(super) const NOBODY: Self = Self::Few(Few {
        count: 0,
        places: [0; FEW],
    });

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(few) => few.places().is_empty(),
            Self::Many(bits) => bits.is_empty(),
        }
    }

    pub(super) fn contains(&self, place: u16) -> bool {
        match self {
            Self::Few(few) => few.places().contains(&place),
            Self::Many(bits) => bits.contains(place),
        }
    }

    pub(super) fn and(&self, other: &Bits) -> Self {
        match self {
            Self::Few(few) => Self::Few(few.filtered(|place| other.contains(place))),
            Self::Many(bits) => Self::Many(bits.and(other)),
        }
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Few(few), _) => Self::Few(few.filtered(|place| !other.contains(place))),
            (Self::Many(bits), Self::Many(others)) => Self::Many(bits.without(others)),
            (Self::Many(bits), Self::Few(few)) => {
                let mut bits = bits.clone();
                few.places().iter().for_each(|place| bits.remove(*place));
                Self::Many(bits)
            }
        }
    }
}
