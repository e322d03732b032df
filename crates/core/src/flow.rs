//! Which source shard sends what to which target shard.
//!
//! Both sides compute it from both layouts and a number that they share, so both know who writes
//! where. Where the source has several copies of a part, each target copy is served by one of them:
//! neighbours by neighbours, turned by the shared number, so that over the requests (and, where
//! there are as many targets, within one) every device and NIC has its share.

use std::ops::Range;

use crate::layout::{GeometryMismatch, Shard, WorkerLayout};

/// What one source shard sends to one target shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The source's shard.
    pub source: u16,
    /// The target's shard.
    pub target: u16,
    /// KV heads, by their index in the model.
    pub heads: Range<u16>,
    /// The source's first layer, by its index in the source's layers.
    first_layer: u16,
    /// For each of the source shard's layers, the target shard's own index of it.
    layers: Vec<Option<u16>>,
    /// Whether the context goes to the target's shard in this flow, behind the layer that is computed
    /// last: one of each shard's flows has it.
    pub context: bool,
}

impl Flow {
    /// A layer of the source (by its index in the source's layers) as the two shards number it:
    /// `(source, target)`. `None` where this flow has no part of it.
    #[must_use]
    pub fn layer(&self, layer: u16) -> Option<(u16, u16)> {
        let local = layer.checked_sub(self.first_layer)?;
        let target = self.layers.get(usize::from(local))?;
        target.map(|target| (local, target))
    }
}

/// All flows from a data-parallel rank of `source` to one of `target`, in the order of the targets.
///
/// `turn` is the number that both sides share: the same request gives the same one.
///
/// # Panics
/// Where a data-parallel rank is not there: ranks are checked when they are chosen.
pub fn flows(
    (source, source_rank): (&WorkerLayout, u16),
    (target, target_rank): (&WorkerLayout, u16),
    turn: u64,
) -> Result<Vec<Flow>, GeometryMismatch> {
    target.matches(source)?;
    assert!(source_rank < source.data_ranks() && target_rank < target.data_ranks());
    // The target's index of each source layer. Names are equal and unique: `matches` said so.
    let position = |name: &String| target.layers().iter().position(|n| n == name);
    let names = source.layers().iter();
    let targets: Vec<u16> = names.filter_map(position).map(|i| i as u16).collect();
    let mut flows = Vec::new();
    for (index, shard) in target.of_rank(target_rank) {
        let copy = u64::from(target.copy(index));
        for (first, part) in source.of_rank(source_rank) {
            if source.copy(first) > 0 {
                continue;
            }
            let heads = cut(&part.heads, &shard.heads);
            let layers = matched(part, shard, &targets);
            if heads.is_empty() || layers.iter().all(Option::is_none) {
                continue;
            }
            let last = Some(shard.layers.len() as u16 - 1);
            let context = target.wants_context(index)
                && heads.start == shard.heads.start
                && layers.contains(&last);
            let copies = copies_of(source, source_rank, part);
            let chosen = (copy % copies.len() as u64 + turn % copies.len() as u64) as usize;
            flows.push(Flow {
                source: copies[chosen % copies.len()],
                target: index,
                heads,
                first_layer: part.layers.start,
                layers,
                context,
            });
        }
    }
    Ok(flows)
}

fn copies_of(layout: &WorkerLayout, rank: u16, part: &Shard) -> Vec<u16> {
    let same = |s: &Shard| s.layers == part.layers && s.heads == part.heads;
    layout
        .of_rank(rank)
        .filter(|(_, s)| same(s))
        .map(|(i, _)| i)
        .collect()
}

/// For each layer of the source's part, the target shard's own index.
fn matched(part: &Shard, shard: &Shard, targets: &[u16]) -> Vec<Option<u16>> {
    let local = |layer: u16| {
        let target = targets[usize::from(layer)];
        let inside = shard.layers.contains(&target);
        inside.then(|| target - shard.layers.start)
    };
    part.layers.clone().map(local).collect()
}

fn cut(a: &Range<u16>, b: &Range<u16>) -> Range<u16> {
    a.start.max(b.start)..a.end.min(b.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};

    fn tp(kv_heads: u16, ranks: u16) -> WorkerLayout {
        let kind = if kv_heads == 1 {
            KvKind::Latent
        } else {
            KvKind::Heads
        };
        let geometry = KvGeometry {
            layers: 3,
            kv_heads,
            head_dim: 8,
            page_tokens: 16,
            dtype: KvDtype::F16,
            kind,
            order: KvOrder::Together,
            context_bytes: 8,
        };
        WorkerLayout::tensor_parallel(geometry, 4, ranks).unwrap()
    }

    fn pairs(source: &WorkerLayout, target: &WorkerLayout, turn: u64) -> Vec<(u16, u16)> {
        let flows = flows((source, 0), (target, 0), turn).unwrap();
        flows.iter().map(|f| (f.source, f.target)).collect()
    }

    #[test]
    fn equal_shardings_pair_rank_by_rank() {
        assert_eq!(
            pairs(&tp(4, 4), &tp(4, 4), 7),
            [(0, 0), (1, 1), (2, 2), (3, 3)]
        );
    }

    #[test]
    fn a_wider_prefill_reassembles_and_a_wider_decode_splits() {
        assert_eq!(
            pairs(&tp(4, 4), &tp(4, 2), 0),
            [(0, 0), (1, 0), (2, 1), (3, 1)]
        );
        let split = flows((&tp(4, 2), 0), (&tp(4, 4), 0), 0).unwrap();
        let heads: Vec<_> = split
            .iter()
            .map(|f| (f.source, f.target, f.heads.clone()))
            .collect();
        assert_eq!(
            heads,
            [(0, 0, 0..1), (0, 1, 1..2), (1, 2, 2..3), (1, 3, 3..4)]
        );
    }

    #[test]
    fn every_copy_of_a_latent_serves_another_target_and_turns_with_the_request() {
        assert_eq!(
            pairs(&tp(1, 4), &tp(1, 4), 0),
            [(0, 0), (1, 1), (2, 2), (3, 3)]
        );
        assert_eq!(
            pairs(&tp(1, 4), &tp(1, 4), 3),
            [(3, 0), (0, 1), (1, 2), (2, 3)]
        );
        assert_eq!(pairs(&tp(1, 4), &tp(1, 1), 6), [(2, 0)]);
        assert_eq!(pairs(&tp(1, 2), &tp(1, 4), u64::MAX).len(), 4);
    }

    #[test]
    fn replicated_heads_are_served_by_copies_of_their_own_part() {
        // Two heads on eight ranks: ranks 0 to 3 hold the first one.
        assert_eq!(pairs(&tp(2, 8), &tp(2, 2), 1), [(1, 0), (5, 1)]);
        assert_eq!(
            pairs(&tp(2, 8), &tp(2, 4), 1),
            [(1, 0), (2, 1), (5, 2), (6, 3)]
        );
    }

    #[test]
    fn pipeline_stages_send_the_layers_that_the_target_owns() {
        let whole = tp(4, 1);
        let stage = |layers: Range<u16>| Shard {
            data_rank: 0,
            layers,
            heads: 0..4,
        };
        let staged = |cut: u16| {
            let shards = vec![stage(0..cut), stage(cut..3)];
            WorkerLayout::new(*whole.geometry(), whole.layers().clone(), 4, shards).unwrap()
        };
        let flows = flows((&staged(1), 0), (&staged(2), 0), 0).unwrap();
        let layers = |f: &Flow| (0..3).filter_map(|l| f.layer(l)).collect::<Vec<_>>();
        let found: Vec<_> = flows
            .iter()
            .map(|f| (f.source, f.target, layers(f)))
            .collect();
        let all = [
            (0, 0, vec![(0, 0)]),
            (1, 0, vec![(0, 1)]),
            (1, 1, vec![(1, 0)]),
        ];
        assert_eq!(found, all);
        let context: Vec<bool> = flows.iter().map(|f| f.context).collect();
        assert_eq!(context, [false, false, true], "the last stage gets it");
    }

    #[test]
    fn every_target_shard_gets_the_context_once() {
        for (sources, targets) in [(1, 1), (4, 2), (2, 4), (8, 1), (1, 8), (8, 8)] {
            for heads in [1, 2, 4, 8] {
                let (source, target) = (tp(heads, sources), tp(heads, targets));
                let flows = flows((&source, 0), (&target, 0), 3).unwrap();
                let mut got = vec![0; usize::from(targets)];
                for flow in flows.iter().filter(|f| f.context) {
                    got[usize::from(flow.target)] += 1;
                }
                assert_eq!(got, vec![1; usize::from(targets)], "{sources} to {targets}");
            }
        }
    }

    #[test]
    fn many_requests_load_every_copy_alike() {
        let (source, target) = (tp(1, 8), tp(1, 2));
        let mut served = [0u32; 8];
        for turn in 0..80 {
            for (source, _) in pairs(&source, &target, turn) {
                served[usize::from(source)] += 1;
            }
        }
        assert_eq!(served, [20; 8]);
    }
}
