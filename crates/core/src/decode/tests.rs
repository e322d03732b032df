//! The decode agent, case by case; [`world`] has it live through orders of events at random.

mod world;

use std::time::Duration;

use super::*;
use crate::blocks::BlockHash;
use crate::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use crate::immediate::SlotKey;
use crate::lease::PageState;

/// Twelve pages in each of two shards, a KV head each.
const PAGES: u32 = 12;
const GEOMETRY: KvGeometry = KvGeometry {
    layers: 2,
    kv_heads: 2,
    head_dim: 2,
    page_tokens: 4,
    dtype: KvDtype::F16,
    kind: KvKind::Heads,
    order: KvOrder::Together,
    context_bytes: 0,
};

fn layout(page_tokens: u16, ranks: u16) -> Arc<WorkerLayout> {
    let geometry = KvGeometry {
        page_tokens,
        ..GEOMETRY
    };
    Arc::new(WorkerLayout::tensor_parallel(geometry, PAGES, ranks).unwrap())
}

fn agent() -> DecodeAgent {
    DecodeAgent::new(DecodeLimits {
        layout: layout(4, 2),
        requests: 8,
        drain_timeout: Duration::from_millis(100),
    })
}

fn peer(n: u64) -> Peer {
    Peer {
        worker: WorkerId::new("p").unwrap(),
        incarnation: Incarnation(n),
    }
}

fn id(n: u128) -> RequestId {
    RequestId(n)
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn reserve(n: u128, tokens: u32, prefill: Option<Peer>) -> Input {
    Input::Reserve(Reserve {
        request: id(n),
        tokens,
        blocks: [].into(),
        new_tokens: 4,
        prefill: prefill.map(|peer| Writer {
            peer,
            layout: layout(8, 1),
        }),
        deadline: at(1000),
    })
}

fn outputs(agent: &mut DecodeAgent) -> Vec<Output> {
    std::iter::from_fn(|| agent.poll()).collect()
}

/// A slot of each shard.
fn armed(n: u16) -> Arc<[Armed]> {
    let slot = |shard: u16| Armed {
        key: SlotKey::new(n + 100 * shard, 1),
    };
    [slot(0), slot(1)].into()
}

/// An agent whose request 1 has been dispatched to peer 0.
fn dispatched() -> DecodeAgent {
    let mut agent = agent();
    agent.handle(at(0), reserve(1, 9, Some(peer(0))));
    agent.handle(
        at(0),
        Input::Armed {
            request: id(1),
            armed: armed(0),
        },
    );
    outputs(&mut agent);
    agent
}

#[test]
fn a_request_is_dispatched_only_when_its_counter_is_armed() {
    let mut agent = agent();
    agent.handle(at(0), reserve(1, 9, Some(peer(0))));
    let out = outputs(&mut agent);
    assert!(matches!(out[0], Output::Admit { .. }));
    // 8 prefilled tokens are 2 grains, of a head in 2 planes of 2 layers each.
    assert_eq!(
        out[1],
        Output::Arm {
            request: id(1),
            peer: peer(0),
            pieces: [8, 8].into()
        }
    );
    assert_eq!(out.len(), 2);
    assert_eq!(agent.pages().of(PageState::Leased), 3);
    agent.handle(
        at(0),
        Input::Armed {
            request: id(1),
            armed: armed(0),
        },
    );
    let out = outputs(&mut agent);
    assert_eq!(
        out[0],
        Output::Reserved {
            request: id(1),
            pages: 3,
            held: 0
        }
    );
    assert!(matches!(&out[1], Output::Dispatch { pages, .. } if pages.len() == 2));
    assert_eq!(agent.pages().of(PageState::Exposed), 3);
}

#[test]
fn decoding_starts_when_the_count_is_full_and_pages_return_at_the_end() {
    let mut agent = dispatched();
    agent.handle(
        at(1),
        Input::WriterGone {
            request: id(1),
            how: WriterEnd::Done,
        },
    );
    assert_eq!(outputs(&mut agent), []);
    let full = |shard| Input::Full {
        request: id(1),
        shard,
    };
    let released = |shard: u16| Output::ReleaseSlot {
        shard,
        armed: armed(0)[usize::from(shard)],
    };
    agent.handle(at(1), full(1));
    assert_eq!(outputs(&mut agent), [released(1)]);
    agent.handle(at(1), full(1));
    assert_eq!(outputs(&mut agent), [], "one shard is full once");
    agent.handle(at(1), full(0));
    let out = outputs(&mut agent);
    assert_eq!(out[0], released(0));
    assert!(matches!(out[1], Output::MakeReady { .. }));
    let how = SequenceEnd::Finished([].into());
    agent.handle(
        at(2),
        Input::SequenceEnded {
            request: id(1),
            which: Which::Decode,
            how,
        },
    );
    assert_eq!(outputs(&mut agent), [Output::Gone { request: id(1) }]);
    assert_eq!(agent.pages().of(PageState::Free), 12);
}

#[test]
fn a_cancelled_request_keeps_its_pages_until_writer_and_engine_have_confirmed() {
    for engine_first in [true, false] {
        let mut agent = dispatched();
        agent.handle(at(1), Input::Cancel { request: id(1) });
        let out = outputs(&mut agent);
        assert!(out.contains(&Output::CancelPrefill { request: id(1) }));
        assert!(out.contains(&Output::Fail {
            request: id(1),
            why: Failure::Cancelled
        }));
        assert_eq!(agent.pages().of(PageState::Draining), 3);
        let engine = Input::SequenceEnded {
            request: id(1),
            which: Which::Decode,
            how: SequenceEnd::Cancelled,
        };
        let writer = Input::WriterGone {
            request: id(1),
            how: WriterEnd::Drained,
        };
        let (first, second) = if engine_first {
            (engine, writer)
        } else {
            (writer, engine)
        };
        agent.handle(at(2), first);
        assert_eq!(agent.pages().of(PageState::Free), 9);
        assert_eq!(outputs(&mut agent), []);
        agent.handle(at(3), second);
        assert_eq!(agent.pages().of(PageState::Free), 12);
        assert!(outputs(&mut agent).contains(&Output::Gone { request: id(1) }));
    }
}

#[test]
fn a_full_count_of_a_cancelled_request_starts_nothing_and_frees_nothing() {
    let mut agent = dispatched();
    agent.handle(at(1), Input::Cancel { request: id(1) });
    outputs(&mut agent);
    for shard in 0..2 {
        let request = id(1);
        agent.handle(at(1), Input::Full { request, shard });
    }
    assert_eq!(outputs(&mut agent), []);
    assert_eq!(agent.pages().of(PageState::Draining), 3);
}

#[test]
fn a_lost_writer_is_fenced_before_its_pages_return() {
    let mut agent = dispatched();
    agent.handle(
        at(1),
        Input::WriterLost {
            request: id(1),
            why: "gone".into(),
        },
    );
    let out = outputs(&mut agent);
    assert!(out.contains(&Output::Fence { peer: peer(0) }));
    assert!(out.contains(&Output::Fail {
        request: id(1),
        why: Failure::PrefillLost("gone".into())
    }));
    assert_eq!(agent.pages().of(PageState::Quarantined), 3);
    let how = SequenceEnd::Cancelled;
    agent.handle(
        at(2),
        Input::SequenceEnded {
            request: id(1),
            which: Which::Decode,
            how,
        },
    );
    // A late word of the writer frees nothing: only the fence does.
    agent.handle(
        at(2),
        Input::WriterGone {
            request: id(1),
            how: WriterEnd::Drained,
        },
    );
    assert_eq!(agent.pages().of(PageState::Quarantined), 3);
    agent.handle(at(2), reserve(2, 9, Some(peer(0))));
    assert!(matches!(
        outputs(&mut agent)[0],
        Output::Refuse {
            why: Refusal::Busy(_),
            ..
        }
    ));
    agent.handle(at(3), Input::Fenced { peer: peer(0) });
    assert_eq!(agent.pages().of(PageState::Free), 12);
}

#[test]
fn a_writer_that_does_not_confirm_is_fenced_after_the_drain_timeout() {
    let mut agent = dispatched();
    agent.handle(at(1), Input::Cancel { request: id(1) });
    outputs(&mut agent);
    assert_eq!(agent.deadline(), Some(at(101)));
    agent.handle(at(100), Input::Tick);
    assert_eq!(outputs(&mut agent), []);
    agent.handle(at(101), Input::Tick);
    assert_eq!(outputs(&mut agent), [Output::Fence { peer: peer(0) }]);
}

#[test]
fn a_fence_fails_what_waits_at_the_same_endpoint_and_nothing_else() {
    let mut agent = dispatched();
    agent.handle(at(0), reserve(2, 9, Some(peer(1))));
    agent.handle(
        at(0),
        Input::Armed {
            request: id(2),
            armed: armed(1),
        },
    );
    agent.handle(at(0), reserve(3, 9, Some(peer(0))));
    outputs(&mut agent);
    agent.handle(
        at(1),
        Input::WriterLost {
            request: id(1),
            why: "gone".into(),
        },
    );
    let failed: Vec<_> = outputs(&mut agent)
        .into_iter()
        .filter_map(|o| {
            if let Output::Fail { request, .. } = o {
                Some(request)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(failed, [id(1), id(3)]);
    assert_eq!(agent.pages().of(PageState::Exposed), 3);
}

#[test]
fn every_request_ends_by_its_deadline() {
    let mut agent = dispatched();
    agent.handle(at(1000), Input::Tick);
    let why = Failure::Deadline("before all pages had arrived");
    assert!(outputs(&mut agent).contains(&Output::Fail {
        request: id(1),
        why
    }));
}

#[test]
fn a_prompt_of_one_token_needs_no_transfer() {
    let mut agent = agent();
    agent.handle(at(0), reserve(1, 1, Some(peer(0))));
    let out = outputs(&mut agent);
    assert!(matches!(out[2], Output::MakeReady { .. }), "{out:?}");
}

#[test]
fn without_a_prefill_worker_the_prompt_is_computed_here() {
    let mut agent = agent();
    agent.handle(at(0), reserve(1, 9, None));
    assert!(matches!(outputs(&mut agent)[2], Output::PrefillHere { .. }));
    agent.handle(at(0), Input::PrefilledHere { request: id(1) });
    assert!(matches!(outputs(&mut agent)[0], Output::MakeReady { .. }));
}

#[test]
fn too_large_and_full_are_two_refusals() {
    let mut agent = dispatched();
    agent.handle(at(0), reserve(2, 60, Some(peer(0))));
    agent.handle(at(0), reserve(3, 40, Some(peer(0))));
    let out = outputs(&mut agent);
    assert!(matches!(
        &out[0],
        Output::Refuse {
            why: Refusal::NeverFits(_),
            ..
        }
    ));
    assert!(matches!(
        &out[1],
        Output::Refuse {
            why: Refusal::NoRoom(_),
            ..
        }
    ));
}

#[test]
fn a_stopping_worker_takes_nothing_new_and_ends_what_it_has() {
    let mut agent = dispatched();
    agent.stop();
    agent.handle(at(0), reserve(2, 9, Some(peer(0))));
    let refused = Output::Refuse {
        request: id(2),
        why: Refusal::Stopping,
    };
    assert_eq!(outputs(&mut agent), [refused]);
    for shard in 0..2 {
        let request = id(1);
        agent.handle(at(0), Input::Full { request, shard });
    }
    let out = outputs(&mut agent);
    assert!(
        matches!(out[..], [_, _, Output::MakeReady { .. }]),
        "{out:?}"
    );
}

#[test]
fn a_prefill_worker_of_another_geometry_is_refused_with_both_values() {
    let mut agent = agent();
    let geometry = KvGeometry {
        head_dim: 4,
        ..GEOMETRY
    };
    let theirs = WorkerLayout::tensor_parallel(geometry, 4, 1).unwrap();
    let Input::Reserve(mut wanted) = reserve(1, 9, Some(peer(0))) else {
        unreachable!("it reserves")
    };
    wanted.prefill.as_mut().unwrap().layout = Arc::new(theirs);
    agent.handle(at(0), Input::Reserve(wanted));
    let why = Refusal::Mismatch("KV geometry differs: head_dim is 2 here and 4 there".into());
    let refused = Output::Refuse {
        request: id(1),
        why,
    };
    assert_eq!(outputs(&mut agent), [refused]);
}

fn with_blocks(n: u128, tokens: u32, blocks: &[u8], prefill: Option<Peer>) -> Input {
    let Input::Reserve(mut wanted) = reserve(n, tokens, prefill) else {
        unreachable!("it reserves")
    };
    wanted.blocks = blocks.iter().map(|b| BlockHash([*b; 16])).collect();
    Input::Reserve(wanted)
}

/// Runs request `n` through a transfer to its end.
fn serve(agent: &mut DecodeAgent, n: u128, tokens: u32, blocks: &[u8]) -> Vec<Output> {
    agent.handle(at(0), with_blocks(n, tokens, blocks, Some(peer(0))));
    let request = id(n);
    let armed = armed(n as u16);
    agent.handle(at(0), Input::Armed { request, armed });
    let out = outputs(agent);
    for shard in 0..2 {
        agent.handle(at(0), Input::Full { request, shard });
    }
    let ended = Input::SequenceEnded {
        request,
        which: Which::Decode,
        how: SequenceEnd::Finished([].into()),
    };
    agent.handle(at(0), ended);
    out
}

#[test]
fn blocks_that_are_held_are_not_transferred_again() {
    let mut agent = agent();
    serve(&mut agent, 1, 14, &[1, 2, 3]);
    let cached = outputs(&mut agent);
    let stored = |b: u8| Output::Cache(CacheChange::Stored(BlockHash([b; 16])));
    assert!([1, 2, 3].iter().all(|b| cached.contains(&stored(*b))));
    assert_eq!(agent.pages().of(PageState::Cached), 3);
    // Two blocks in common, then eight other tokens.
    let out = serve(&mut agent, 2, 17, &[1, 2, 9, 8]);
    let Some(Output::Arm { pieces, .. }) = out.get(1) else {
        panic!("{out:?}")
    };
    // Two of four grains of four tokens: a head in two planes of two layers each.
    assert_eq!(pieces[..], [8, 8]);
    let dispatched = out.iter().find_map(|o| match o {
        Output::Dispatch { pages, held, .. } => Some((pages.len(), *held)),
        _ => None,
    });
    assert_eq!(dispatched, Some((2, 8)));
    assert_eq!(agent.pages().free(), PAGES);
}

#[test]
fn a_prompt_that_is_held_whole_needs_no_prefill_at_all() {
    let mut agent = agent();
    serve(&mut agent, 1, 9, &[1, 2]);
    outputs(&mut agent);
    agent.handle(at(0), with_blocks(2, 9, &[1, 2], Some(peer(0))));
    let out = outputs(&mut agent);
    assert!(
        matches!(
            out[1..],
            [
                Output::Reserved { held: 8, .. },
                Output::MakeReady { context: false, .. }
            ]
        ),
        "its context is nowhere: {out:?}"
    );
}

#[test]
fn pages_of_an_unfinished_transfer_are_never_cached() {
    let mut agent = agent();
    agent.handle(at(0), with_blocks(1, 9, &[1, 2], Some(peer(0))));
    let armed = armed(1);
    let request = id(1);
    agent.handle(at(0), Input::Armed { request, armed });
    agent.handle(at(0), Input::Full { request, shard: 0 });
    let how = WriterEnd::Failed("NIC".into());
    agent.handle(at(0), Input::WriterGone { request, how });
    let ended = Input::SequenceEnded {
        request,
        which: Which::Decode,
        how: SequenceEnd::Cancelled,
    };
    agent.handle(at(0), ended);
    assert_eq!(agent.pages().of(PageState::Free), PAGES);
    assert_eq!(agent.pages().of(PageState::Cached), 0);
}
