//! Whatever a decode worker asks: it is refused, or every write stays inside both arenas and in the
//! pages that it named.

use std::panic::AssertUnwindSafe;

use prost::Message;
use tandem_core::push::{Push, PushAction, PushPlanner, StepPart};
use tandem_core::{FlowId, SequenceId, TransferId, WorkerRole};

use super::*;
use crate::start::made;

/// An order of another worker that is cut and paged otherwise.
fn order(tokens: u32) -> proto::Dispatch {
    let theirs = made::facts(WorkerRole::Decode, 4, 8).layout;
    let target = |shard: u16| proto::Target {
        length: theirs.arena(shard).bytes() as u64,
        provider: String::new(),
        nics: vec![proto::Nic {
            address: vec![1; 16].into(),
            base: 0,
            key: u64::from(shard),
        }],
        slot_key: 0x0a01,
    };
    proto::Dispatch {
        request: vec![9; 16].into(),
        incarnation: 5,
        worker: "decode-0".into(),
        from_incarnation: 6,
        tokens: (0..tokens).collect(),
        pages: (0..(tokens - 1).div_ceil(8)).collect(),
        geometry: Some((&*theirs).into()),
        fingerprint: "made".into(),
        time_left_ms: 1000,
        targets: (0..4).map(target).collect(),
        source_page_tokens: 16,
        held_tokens: 0,
        cache_salt: Vec::new().into(),
        trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
        trace_state: "a=1".into(),
    }
}

/// Carries out what was asked, with the source pages from 0 on.
fn carry_out(facts: &Facts, asked: &Asked, theirs: &WorkerLayout) {
    let ours = &facts.layout;
    let tokens = asked.tokens.len() as u32 - 1;
    let pages = ours.geometry().pages_for(tokens as usize) as u32;
    let mut planner = PushPlanner::new((**ours).clone(), 4096, 0);
    planner.start(Push {
        transfer: TransferId(1),
        sequence: SequenceId(1),
        source_pages: (0..pages).map(PageIndex).collect(),
        target_pages: Arc::clone(&asked.pages),
        target_from: asked.held,
        tokens: asked.travelling.clone(),
        flows: (0..)
            .zip(&asked.flows)
            .map(|(i, of)| of.push(FlowId(i)))
            .collect(),
    });
    let part = StepPart {
        sequence: SequenceId(1),
        end: tokens,
        last: true,
    };
    planner.step_planned(0, &[part]);
    let mut writes = 0;
    planner.progress(ours.geometry().bumps(), |action| {
        let PushAction::Write {
            flow,
            source,
            write,
            ..
        } = action
        else {
            return;
        };
        writes += 1;
        let of = &asked.flows[flow.0 as usize];
        let end = |at: u64| at + u64::from(write.bytes);
        assert!(end(write.source) <= ours.arena(source).bytes() as u64);
        assert!(end(write.target) <= of.region.len);
        let arena = theirs.arena(of.flow.target);
        for byte in [write.target, end(write.target) - 1] {
            let page = page_of(&arena, byte as usize);
            assert!(asked.pages.contains(&page), "{page:?} was not given out");
        }
    });
    assert!(writes > 0);
}

/// Which page a byte belongs to.
fn page_of(arena: &ArenaLayout, byte: usize) -> PageIndex {
    let g = arena.geometry();
    let contexts = arena.context(PageIndex(0));
    if g.context_bytes > 0 && byte >= contexts {
        return PageIndex(((byte - contexts) / g.context_bytes as usize) as u32);
    }
    let in_layer = byte % arena.layer_bytes();
    let page = match g.order {
        tandem_core::geometry::KvOrder::Together => in_layer / g.piece_bytes(),
        tandem_core::geometry::KvOrder::Apart => {
            in_layer / g.plane_bytes() % arena.pages() as usize
        }
    };
    PageIndex(page as u32)
}

/// Whether it was taken.
fn ask(facts: &Facts, bytes: &[u8]) -> bool {
    let Ok(dispatch) = proto::Dispatch::decode(bytes) else {
        return false;
    };
    let theirs = dispatch.geometry.clone().map(WorkerLayout::try_from);
    let (replies, _) = mpsc::channel(1);
    let asked = read(facts, dispatch, replies);
    if let (Ok(asked), Some(Ok(theirs))) = (&asked, &theirs) {
        carry_out(facts, asked, theirs);
    }
    asked.is_ok()
}

#[test]
fn orders_of_a_decode_worker() {
    let facts = &AssertUnwindSafe(made::facts(WorkerRole::Prefill, 2, 16));
    for tokens in [2, 9, 50, 90] {
        assert!(ask(facts, &order(tokens).encode_to_vec()));
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u16, u8)>)>()
        .for_each(|(tokens, edits)| {
            ask(
                facts,
                &made::edited(&order(2 + u32::from(*tokens) % 90), edits),
            );
        });
}
