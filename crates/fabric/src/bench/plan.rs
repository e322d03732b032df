//! Which cases to measure.

use super::case::{Case, Layout};

/// Everything that [`super::run()`] measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// As in [`crate::FabricOptions::provider`], for latencies.
    pub provider: String,
    /// Throughput.
    pub cases: Vec<Case>,
    /// Rounds of each case, at least 1.
    pub rounds: usize,
    /// Bytes of the writes whose latency is measured; as [`Case::piece_bytes`].
    pub latency_bytes: Vec<u32>,
    /// Such writes of each size, 1 to 1000.
    pub samples: u32,
    /// libfabric's names of this side's NICs, in order; the provider's first one where there are none.
    pub nic_names: Vec<String>,
}

impl Plan {
    /// Pieces of 16, 64 and 256 KiB, scattered and contiguous; runs of four; four NICs. Each case
    /// moves 512 MiB; five rounds.
    #[must_use]
    pub fn standard(provider: &str) -> Self {
        Self {
            rounds: 5,
            samples: 1000,
            ..Self::of(provider, 512 << 20)
        }
    }

    /// The same with 16 MiB each and one round: whether all of it works, not how fast it is.
    #[must_use]
    pub fn quick(provider: &str) -> Self {
        Self {
            rounds: 1,
            samples: 100,
            ..Self::of(provider, 16 << 20)
        }
    }

    fn of(provider: &str, bytes: u32) -> Self {
        let scattered = |kib: u32| Case::new(provider, kib << 10, bytes / (kib << 10));
        let contiguous = |kib| Case {
            layout: Layout::Contiguous,
            ..scattered(kib)
        };
        let mut cases = Vec::new();
        for kib in [16, 64, 256] {
            cases.extend([scattered(kib), contiguous(kib)]);
        }
        cases.push(Case {
            run_pages: 4,
            ..scattered(16)
        });
        for kib in [16, 64] {
            cases.push(Case {
                nics: 4,
                ..scattered(kib)
            });
        }
        Self {
            provider: provider.into(),
            cases,
            rounds: 1,
            latency_bytes: vec![64, 16 << 10, 64 << 10],
            samples: 1,
            nic_names: Vec::new(),
        }
    }
}
