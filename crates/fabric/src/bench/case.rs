//! What is pushed.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{ARENA, BenchError};
use crate::options::{FabricOptions, IdlePolicy, MAX_NICS};

/// How a request's pages lie in both arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Runs of [`Case::run_pages`] pages, no two of which are neighbours on both sides.
    Scattered,
    /// All together, in order.
    Contiguous,
}

impl Layout {
    /// As written in tables and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scattered => "scattered",
            Self::Contiguous => "contiguous",
        }
    }
}

/// One load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// As in [`FabricOptions::provider`].
    pub provider: String,
    /// Bytes of a page in one layer: a multiple of 64, up to 1 MiB.
    pub piece_bytes: u32,
    /// Pages to push, 1 to 16 million.
    pub pieces: u32,
    /// How they lie.
    pub layout: Layout,
    /// Scattered pages lie together in runs of so many, at least 1.
    pub run_pages: u32,
    /// NICs of each side, 1 to [`MAX_NICS`].
    pub nics: u16,
    /// Writes in flight for each NIC, 1 to 1024.
    pub window: u32,
    /// Pages that lie together share a write of at most so many bytes, 4 KiB to 1 GiB.
    pub max_write_bytes: u32,
}

impl Case {
    /// Scattered pages, one by one, over one NIC, as workers push them by default.
    #[must_use]
    pub fn new(provider: &str, piece_bytes: u32, pieces: u32) -> Self {
        Self {
            provider: provider.into(),
            piece_bytes,
            pieces,
            layout: Layout::Scattered,
            run_pages: 1,
            nics: 1,
            window: 64,
            max_write_bytes: 1 << 20,
        }
    }

    /// Bytes pushed.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.piece_bytes as u64 * self.pieces as u64
    }

    /// Whether every size is within its bounds: cases also come from the other process.
    pub(super) fn check(&self) -> Result<(), BenchError> {
        let bad = |what: &str| Err(BenchError::Case(what.into()));
        if !self.piece_bytes.is_multiple_of(64) || !(64..=1 << 20).contains(&self.piece_bytes) {
            return bad("piece_bytes must be a multiple of 64, up to 1 MiB");
        }
        if !(1..=1 << 24).contains(&self.pieces) {
            return bad("pieces must be 1 to 16777216");
        }
        if self.run_pages == 0 {
            return bad("run_pages must be at least 1");
        }
        if !(1..=MAX_NICS).contains(&usize::from(self.nics)) {
            return bad("nics must be 1 to 4");
        }
        if !(1..=1024).contains(&self.window) {
            return bad("window must be 1 to 1024");
        }
        if !(4 << 10..=1 << 30).contains(&self.max_write_bytes) {
            return bad("max_write_bytes must be 4 KiB to 1 GiB");
        }
        if self.provider.len() > 64 {
            return bad("the provider's name is too long");
        }
        Ok(())
    }

    /// Pages of either arena: whole runs.
    pub(super) fn arena_pages(&self) -> u32 {
        let pages = self.most_pages();
        pages - pages % self.run()
    }

    /// Pages of a run.
    pub(super) fn run(&self) -> u32 {
        let pages = self.most_pages();
        match self.layout {
            Layout::Scattered => self.run_pages.min(pages),
            Layout::Contiguous => pages,
        }
    }

    fn most_pages(&self) -> u32 {
        (ARENA as u32 / self.piece_bytes).min(self.pieces)
    }

    /// Bytes of either arena.
    pub(super) fn arena_bytes(&self) -> usize {
        self.arena_pages() as usize * self.piece_bytes as usize
    }

    /// How either side opens its fabric: at the address where it meets the other, with these NICs
    /// (the first ones of the provider where there are no names).
    pub(super) fn options(&self, bind: IpAddr, nic_names: &[String]) -> FabricOptions {
        let default = FabricOptions::default();
        let nics = usize::from(self.nics);
        FabricOptions {
            provider: self.provider.clone(),
            nics: (0..nics).map(|n| nic_names.get(n).cloned()).collect(),
            bind: Some(bind),
            in_flight_writes: self.window,
            // As the bare loop, which never sleeps.
            idle: IdlePolicy::dedicated(),
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_out_of_bounds_are_named() {
        let good = || Case::new("tcp", 16 << 10, 1);
        assert!(good().check().is_ok());
        let refused = |name: &str, case: Case| {
            let error = case.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        };
        refused(
            "piece_bytes",
            Case {
                piece_bytes: 100,
                ..good()
            },
        );
        refused(
            "pieces",
            Case {
                pieces: 0,
                ..good()
            },
        );
        refused(
            "run_pages",
            Case {
                run_pages: 0,
                ..good()
            },
        );
        refused("nics", Case { nics: 5, ..good() });
        refused(
            "window",
            Case {
                window: 0,
                ..good()
            },
        );
        refused(
            "max_write_bytes",
            Case {
                max_write_bytes: 64,
                ..good()
            },
        );
    }
}
