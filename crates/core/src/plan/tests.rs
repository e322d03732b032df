use super::*;
use crate::flow::{Flow, flows};
use crate::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use crate::layout::{Shard, layer_names};
use proptest::prelude::*;

#[test]
fn a_grain_is_what_both_page_sizes_are_made_of() {
    assert_eq!(grain(16, 16), 16);
    assert_eq!(grain(64, 16), 16);
    assert_eq!(grain(24, 16), 8);
    assert_eq!(grain(7, 16), 1);
}

#[test]
fn whole_grains_travel_from_the_first_token_that_is_not_held() {
    assert_eq!(travelling(0, 20, 16), 0..32);
    assert_eq!(travelling(20, 30, 16), 20..32);
    assert_eq!(travelling(30, 30, 16), 30..30);
    assert_eq!(grains(&(20..32), 16), 1);
    assert_eq!(grains(&(15..33), 16), 3);
}

const G: KvGeometry = KvGeometry {
    layers: 3,
    kv_heads: 2,
    head_dim: 8,
    page_tokens: 16,
    dtype: KvDtype::F16,
    kind: KvKind::Heads,
    order: KvOrder::Together,
    context_bytes: 0,
};

fn indices(pages: &[u32]) -> Vec<PageIndex> {
    pages.iter().copied().map(PageIndex).collect()
}

/// `(bytes, pieces)` of the writes of equal, unsharded sides.
fn sizes(source: &[u32], target: &[u32], max_bytes: u32) -> Vec<(u32, u16)> {
    let arena = ArenaLayout::new(G, 16);
    let (from, to) = (indices(source), indices(target));
    let side = |pages| Side {
        arena: &arena,
        pages,
        from: 0,
        head: 0,
    };
    let tokens = 0..16 * source.len() as u32;
    let writes = templates(side(&from), side(&to), 2, tokens, max_bytes);
    writes.iter().map(|w| (w.bytes, w.pieces)).collect()
}

#[test]
fn neighbours_on_both_sides_share_a_write() {
    let piece = G.piece_bytes() as u32;
    assert_eq!(sizes(&[0, 1, 2], &[7, 8, 9], 1 << 20), [(3 * piece, 12)]);
    assert_eq!(
        sizes(&[0, 1, 2], &[7, 9, 10], 1 << 20),
        [(piece, 4), (2 * piece, 8)]
    );
    assert_eq!(sizes(&[2, 1], &[4, 3], 1 << 20), [(piece, 4); 2]);
}

#[test]
fn a_write_stays_below_the_limit_but_holds_a_piece() {
    let piece = G.piece_bytes() as u32;
    let run = [0, 1, 2, 3, 4];
    assert_eq!(
        sizes(&run, &run, 2 * piece),
        [(2 * piece, 8), (2 * piece, 8), (piece, 4)]
    );
    assert_eq!(sizes(&run, &run, 1), [(piece / 4, 1); 20]);
}

/// One way to cut and page a model of `layers` layers and `heads` heads.
fn cut(
    kind: KvKind,
    layers: u16,
    heads: u16,
    context_bytes: u32,
) -> impl Strategy<Value = WorkerLayout> {
    let ranks: Vec<u16> = (1..=8)
        .filter(|r| heads.is_multiple_of(*r) || r.is_multiple_of(heads))
        .collect();
    (
        proptest::sample::select(ranks),
        proptest::sample::select(vec![1u16, 3, 4, 7, 8, 16, 24]),
        any::<bool>(),
        0..=layers - 1,
        1..=2u16,
        any::<bool>(),
    )
        .prop_map(move |(ranks, page_tokens, apart, stage, data, turned)| {
            let geometry = KvGeometry {
                layers,
                kv_heads: heads,
                head_dim: 2,
                page_tokens,
                dtype: KvDtype::F16,
                kind,
                order: if apart && kind == KvKind::Heads {
                    KvOrder::Apart
                } else {
                    KvOrder::Together
                },
                context_bytes,
            };
            let flat = WorkerLayout::tensor_parallel(geometry, 40, ranks).unwrap();
            let stages = [0..stage, stage..layers];
            let mut shards = Vec::new();
            for data_rank in 0..data {
                for layers in stages.iter().filter(|s| !s.is_empty()) {
                    shards.extend(flat.shards().iter().map(|s| Shard {
                        data_rank,
                        layers: layers.clone(),
                        heads: s.heads.clone(),
                    }));
                }
            }
            let mut names = layer_names(layers).to_vec();
            if turned {
                names.reverse();
            }
            WorkerLayout::new(geometry, names.into(), 40, shards).unwrap()
        })
}

fn pairing() -> impl Strategy<Value = (WorkerLayout, WorkerLayout)> {
    let models = vec![
        (KvKind::Latent, 1),
        (KvKind::Heads, 1),
        (KvKind::Heads, 2),
        (KvKind::Heads, 3),
        (KvKind::Heads, 4),
        (KvKind::Heads, 8),
    ];
    let contexts = proptest::sample::select(vec![0u32, 6, 64]);
    (proptest::sample::select(models), 1..4u16, contexts).prop_flat_map(
        |((kind, heads), layers, context)| {
            (
                cut(kind, layers, heads, context),
                cut(kind, layers, heads, context),
            )
        },
    )
}

/// What the model's cache holds: two bytes that tell each number of it apart.
fn truth(layer: &str, plane: u16, head: u16, token: u32, number: u16) -> [u8; 2] {
    let layer: u16 = layer.trim_start_matches("layers.").parse().unwrap();
    let parts = [
        u32::from(layer),
        u32::from(plane),
        u32::from(head),
        token,
        u32::from(number),
    ];
    let hash = parts.iter().fold(17u32, |h, p| {
        (h ^ p).wrapping_mul(0x0100_0193).rotate_left(7)
    });
    ((hash >> 8) as u16 | 1).to_le_bytes()
}

/// Calls `f` with the arena offset and the bytes of every number that a shard holds of `tokens`:
/// the straightforward way, number by number.
fn each_number(
    layout: &WorkerLayout,
    shard: u16,
    pages: &[PageIndex],
    tokens: Range<u32>,
    mut f: impl FnMut(usize, [u8; 2]),
) {
    let (arena, part) = (layout.arena(shard), &layout.shards()[usize::from(shard)]);
    let g = *layout.geometry();
    for layer in part.layers.clone() {
        for plane in 0..g.kind.planes() {
            for head in part.heads.clone() {
                for token in tokens.clone() {
                    let page = pages[(token / u32::from(g.page_tokens)) as usize];
                    let slot = (token % u32::from(g.page_tokens)) as usize;
                    let local = usize::from(head - part.heads.start);
                    let row = local * usize::from(g.page_tokens) + slot;
                    let start = arena.offset(layer - part.layers.start, plane, page)
                        + row * usize::from(g.head_dim) * 2;
                    for number in 0..g.head_dim {
                        let name = &layout.layers()[usize::from(layer)];
                        let bytes = truth(name, plane, head, token, number);
                        f(start + usize::from(number) * 2, bytes);
                    }
                }
            }
        }
    }
}

/// A request's pages: a shuffled or a contiguous part of the arena.
fn pages(count: usize, seed: u64) -> Vec<PageIndex> {
    let mut all: Vec<u32> = (0..40).collect();
    if !seed.is_multiple_of(3) {
        all.sort_by_key(|p| {
            (u64::from(*p) + 1)
                .wrapping_mul(seed | 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23)
        });
    }
    indices(&all[..count])
}

/// Every byte of a context.
const CONTEXT: u8 = 0xc7;

/// Where a shard has the context of a request.
fn context_of(layout: &WorkerLayout, shard: u16, pages: &[PageIndex]) -> Range<usize> {
    let arena = layout.arena(shard);
    let start = arena.context(*pages.last().unwrap());
    start..start + arena.geometry().context_bytes as usize
}

struct Moved {
    arenas: Vec<Vec<u8>>,
    pieces: Vec<u64>,
    written_twice: bool,
    flows: Vec<Flow>,
}

impl Moved {
    /// Carries a write from a source's bytes into a target shard.
    fn carry(&mut self, from: &[u8], target: usize, write: PlannedWrite) {
        let range = |at: u64| at as usize..at as usize + write.bytes as usize;
        let into = &mut self.arenas[target][range(write.target)];
        self.written_twice |= into.iter().any(|b| *b != 0);
        let out = &from[range(write.source)];
        // Marks even a byte that is 0 as written.
        into.iter_mut().zip(out).for_each(|(i, o)| *i = (*o).max(1));
        self.pieces[target] += u64::from(write.pieces);
    }
}

/// Executes the plan on byte arrays, in steps that end at `ends`.
fn execute(
    (source, target): (&WorkerLayout, &WorkerLayout),
    (from, to): (&[PageIndex], &[PageIndex]),
    steps: &[Range<u32>],
    turn: u64,
    max_bytes: u32,
) -> Moved {
    let (sr, tr) = (
        turn as u16 % source.data_ranks(),
        (turn >> 8) as u16 % target.data_ranks(),
    );
    let mut filled: Vec<Vec<u8>> = Vec::new();
    for (shard, _) in (0u16..).zip(source.shards()) {
        let mut bytes = vec![0xee; source.arena(shard).bytes()];
        let held = from.len() as u32 * u32::from(source.geometry().page_tokens);
        each_number(source, shard, from, 0..held, |at, number| {
            bytes[at..at + 2].copy_from_slice(&number);
        });
        bytes[context_of(source, shard, from)].fill(CONTEXT);
        filled.push(bytes);
    }
    let mut moved = Moved {
        arenas: Vec::new(),
        pieces: vec![0; target.shards().len()],
        written_twice: false,
        flows: flows((source, sr), (target, tr), turn).unwrap(),
    };
    for (shard, _) in (0u16..).zip(target.shards()) {
        moved.arenas.push(vec![0; target.arena(shard).bytes()]);
    }
    for flow in moved.flows.clone() {
        let (sa, ta) = (source.arena(flow.source), target.arena(flow.target));
        let part = |l: &WorkerLayout, s: u16| l.shards()[usize::from(s)].heads.start;
        let side = |arena, pages, first| Side {
            arena,
            pages,
            from: 0,
            head: flow.heads.start - first,
        };
        let out = &filled[usize::from(flow.source)];
        let into = usize::from(flow.target);
        if flow.context && !steps.is_empty() {
            let last = |pages: &[PageIndex]| *pages.last().unwrap();
            moved.carry(out, into, context((&sa, last(from)), (&ta, last(to))));
        }
        for tokens in steps {
            let writes = templates(
                side(&sa, from, part(source, flow.source)),
                side(&ta, to, part(target, flow.target)),
                flow.heads.len() as u16,
                tokens.clone(),
                max_bytes,
            );
            for layer in 0..source.geometry().layers {
                let Some((ls, lt)) = flow.layer(layer) else {
                    continue;
                };
                for w in &writes {
                    let s = w.source + u64::from(ls) * sa.layer_bytes() as u64;
                    let t = w.target + u64::from(lt) * ta.layer_bytes() as u64;
                    let write = PlannedWrite {
                        source: s,
                        target: t,
                        ..*w
                    };
                    moved.carry(out, into, write);
                }
            }
        }
    }
    moved
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For any two ways to cut, order and page one model, any prefix held, any steps and any largest
    /// write: executed on byte arrays, the plan gives every target shard the numbers that are its,
    /// touches nothing else, writes nothing twice, and its pieces add up to what the target
    /// computes without it.
    #[test]
    fn a_plan_equals_resharding_number_by_number(
        (source, target) in pairing(),
        tokens in 1..39u32,
        held in 0..39u32,
        chunk in 1..40u32,
        turn in any::<u64>(),
        max_bytes in 1..400u32,
    ) {
        let count = |l: &WorkerLayout| l.geometry().pages_for(tokens as usize);
        let (from, to) = (pages(count(&source), turn), pages(count(&target), turn >> 7));
        let grain = grain(source.geometry().page_tokens, target.geometry().page_tokens);
        let held = held.min(tokens);
        let travels = travelling(held, tokens, grain);
        // Steps end where source pages end, but for the last one.
        let page = u32::from(source.geometry().page_tokens);
        let mut steps = Vec::new();
        let mut start = travels.start;
        while start < travels.end {
            let end = (start / page + chunk.div_ceil(page)) * page;
            steps.push(start..end.min(travels.end));
            start = end.min(travels.end);
        }
        let moved = execute((&source, &target), (&from, &to), &steps, turn, max_bytes);
        prop_assert!(!moved.written_twice);
        let rank = (turn >> 8) as u16 % target.data_ranks();
        for (shard, part) in (0u16..).zip(target.shards()) {
            let mut wanted = vec![0u8; target.arena(shard).bytes()];
            let mut pieces = 0;
            if part.data_rank == rank {
                each_number(&target, shard, &to, travels.clone(), |at, number| {
                    wanted[at..at + 2].copy_from_slice(&number.map(|b| b.max(1)));
                });
                if target.wants_context(shard) && !travels.is_empty() {
                    wanted[context_of(&target, shard, &to)].fill(CONTEXT);
                }
                pieces = expected(&target, shard, &travels, grain);
            }
            prop_assert_eq!(&moved.arenas[usize::from(shard)], &wanted, "shard {}", shard);
            prop_assert_eq!(moved.pieces[usize::from(shard)], pieces);
        }
        // Every target copy of a part is served by a source copy, and they share the work.
        let mut served = std::collections::HashMap::new();
        for flow in &moved.flows {
            *served.entry((flow.source, flow.heads.clone())).or_insert(0u32) += 1;
        }
        let copies = |l: &WorkerLayout, of: u16| {
            let mine = &l.shards()[usize::from(of)];
            l.of_rank(mine.data_rank).filter(|(_, s)| s.layers == mine.layers && s.heads == mine.heads).count()
        };
        for flow in &moved.flows {
            let most = copies(&target, flow.target).div_ceil(copies(&source, flow.source));
            let stages = 2 * source.geometry().layers as usize;
            prop_assert!(served[&(flow.source, flow.heads.clone())] as usize <= most * stages);
        }
    }
}
