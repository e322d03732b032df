use super::*;
use crate::flow::flows;
use crate::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use crate::plan::{expected, grain, travelling};
use proptest::prelude::*;

const G: KvGeometry = KvGeometry {
    layers: 5,
    kv_heads: 2,
    head_dim: 2,
    page_tokens: 4,
    dtype: KvDtype::F16,
    kind: KvKind::Heads,
    order: KvOrder::Together,
    context_bytes: 0,
};
const T: TransferId = TransferId(1);
const S: SequenceId = SequenceId(2);

fn layout(page_tokens: u16, ranks: u16) -> WorkerLayout {
    let geometry = KvGeometry { page_tokens, ..G };
    WorkerLayout::tensor_parallel(geometry, 64, ranks).unwrap()
}

/// The same model with a context of `bytes`.
fn with_context(layout: &WorkerLayout, bytes: u32) -> WorkerLayout {
    let geometry = KvGeometry {
        context_bytes: bytes,
        ..*layout.geometry()
    };
    let (names, shards) = (layout.layers().clone(), layout.shards().to_vec());
    WorkerLayout::new(geometry, names, layout.pages(), shards).unwrap()
}

fn planner() -> PushPlanner {
    PushPlanner::new(layout(4, 2), 1 << 20, 0)
}

/// A push of `tokens` tokens, of which the target holds `held`, from two shards to one.
fn push(transfer: TransferId, sequence: SequenceId, held: u32, tokens: u32) -> Push {
    let (source, target) = (layout(4, 2), layout(8, 1));
    let flows = flows((&source, 0), (&target, 0), transfer.0).unwrap();
    let first = sequence.0 as u32 * 16;
    Push {
        transfer,
        sequence,
        source_pages: (first..first + tokens.div_ceil(4)).map(PageIndex).collect(),
        target_from: 0,
        target_pages: (0..tokens.div_ceil(8)).map(|i| PageIndex(63 - i)).collect(),
        tokens: travelling(held, tokens, 4),
        flows: (0u64..)
            .zip(flows)
            .map(|(i, flow)| PushFlow {
                id: FlowId(transfer.0 * 10 + i),
                flow,
                target: target.arena(0),
                target_head: 0,
                key: SlotKey::new(3, transfer.0 as u8),
            })
            .collect(),
    }
}

fn part(sequence: SequenceId, end: u32, last: bool) -> StepPart {
    StepPart {
        sequence,
        end,
        last,
    }
}

fn run(p: &mut PushPlanner, layers: u64) -> Vec<PushAction> {
    let mut out = Vec::new();
    p.progress(layers, |action| out.push(action));
    out
}

/// Pieces that went out for a transfer, of both flows.
fn pieces(actions: &[PushAction], of: TransferId) -> u64 {
    let weight = |a: &PushAction| match a {
        PushAction::Write {
            flow, immediate, ..
        } if flow.0 / 10 == of.0 => u64::from(immediate.weight()),
        _ => 0,
    };
    actions.iter().map(weight).sum()
}

#[test]
fn a_layer_goes_out_when_the_counter_has_passed_it_and_not_before() {
    let mut p = planner();
    p.start(push(T, S, 0, 8));
    p.step_planned(0, &[part(S, 8, true)]);
    assert!(run(&mut p, 0).is_empty());
    // Two pages of two heads and two planes in each layer.
    assert_eq!(pieces(&run(&mut p, 1), T), 8);
    let next = run(&mut p, 4);
    assert_eq!(pieces(&next, T), 24);
    assert!(!next.iter().any(|a| matches!(a, PushAction::Seal { .. })));
    let last = run(&mut p, 5);
    assert_eq!(pieces(&last, T), 8);
    let seal = |flow, source| PushAction::Seal {
        flow: FlowId(flow),
        source,
    };
    let sealed = PushAction::Sealed { transfer: T };
    assert_eq!(last[last.len() - 3..], [seal(10, 0), seal(11, 1), sealed]);
    assert!(!p.is_busy());
}

#[test]
fn the_context_goes_out_last_in_the_last_step_once_the_counter_has_passed_it() {
    let (source, target) = (
        with_context(&layout(4, 2), 12),
        with_context(&layout(8, 1), 12),
    );
    let mut p = PushPlanner::new(source.clone(), 1 << 20, 0);
    let mut pushed = push(T, S, 0, 8);
    let flows = flows((&source, 0), (&target, 0), 1).unwrap();
    for (of, flow) in pushed.flows.iter_mut().zip(flows) {
        (of.flow, of.target) = (flow, target.arena(0));
    }
    let (from, to) = (pushed.source_pages[1], pushed.target_pages[0]);
    p.start(pushed);
    // Six bumps a step.
    p.step_planned(0, &[part(S, 4, false)]);
    assert_eq!(pieces(&run(&mut p, 6), T), 20, "no context yet");
    p.step_planned(6, &[part(S, 8, true)]);
    assert_eq!(pieces(&run(&mut p, 11), T), 20);
    assert!(p.is_busy());
    let last = run(&mut p, 12);
    let write = PlannedWrite {
        source: source.arena(0).context(from) as u64,
        target: target.arena(0).context(to) as u64,
        bytes: 12,
        pieces: 1,
    };
    let context = PushAction::Write {
        flow: FlowId(10),
        source: 0,
        write,
        immediate: Immediate::new(SlotKey::new(3, 1), 1),
    };
    assert_eq!(last[0], context);
    assert_eq!(pieces(&last, T), 1);
    let both = expected(&target, 0, &travelling(0, 8, 4), 4);
    assert_eq!(both, 41);
}

#[test]
fn nothing_goes_out_after_a_stop() {
    let mut p = planner();
    p.start(push(T, S, 0, 8));
    p.step_planned(0, &[part(S, 8, true)]);
    run(&mut p, 2);
    p.stop(T);
    assert!(run(&mut p, 5).is_empty());
}

#[test]
fn a_page_goes_out_in_the_step_that_completes_it() {
    let mut p = planner();
    p.start(push(T, S, 0, 9));
    let steps = [(3, false), (7, false), (8, false), (9, true)];
    let mut sent = Vec::new();
    for (i, (end, last)) in (0u64..).zip(steps) {
        p.step_planned(i * 5, &[part(S, end, last)]);
        sent.push(pieces(&run(&mut p, i * 5 + 5), T) / 20);
    }
    assert_eq!(sent, [0, 1, 1, 1]);
}

#[test]
fn pages_computed_before_go_with_the_first_step_and_those_held_do_not_go() {
    let mut p = planner();
    p.start(push(T, S, 6, 17));
    // The engine had twelve tokens cached: its first step begins there.
    p.step_planned(0, &[part(S, 17, true)]);
    let out = run(&mut p, 5);
    assert_eq!(pieces(&out, T) / 20, 4);
    let first = out.iter().find_map(|a| match a {
        PushAction::Write { write, .. } => Some(write.bytes),
        _ => None,
    });
    assert_eq!(first, Some(2 * 2 * 2), "tokens 6 and 7 of one head");
}

#[test]
fn layers_of_a_step_that_is_not_announced_yet_wait_for_it() {
    let mut p = PushPlanner::new(layout(4, 2), 1 << 20, 35);
    p.start(push(T, S, 0, 8));
    assert!(run(&mut p, 37).is_empty());
    p.step_planned(35, &[part(S, 8, true)]);
    assert_eq!(pieces(&run(&mut p, 37), T), 16);
    assert_eq!(pieces(&run(&mut p, 40), T), 24);
}

proptest! {
    /// Two prompts in shared steps, any chunking, any prefix held, any coalescing of bumps: each sends
    /// what its target expects, and seals once, last.
    #[test]
    fn coalesced_bumps_send_every_layer_once(
        a in 1..60u32,
        b in 1..60u32,
        held in 0..59u32,
        chunk in 1..30u32,
        bumps in proptest::collection::vec(1..12u64, 1..40),
    ) {
        let mut p = planner();
        let (ta, tb) = (TransferId(1), TransferId(2));
        let (sa, sb) = (SequenceId(1), SequenceId(2));
        let held = held.min(a - 1);
        p.start(push(ta, sa, held, a));
        p.start(push(tb, sb, 0, b));
        let mut steps = 0;
        let (mut da, mut db) = (0, 0);
        while da < a || db < b {
            let mut parts = Vec::new();
            for (s, done, all) in [(sa, &mut da, a), (sb, &mut db, b)] {
                if *done < all {
                    let end = (*done + chunk).min(all);
                    parts.push(part(s, end, end == all));
                    *done = end;
                }
            }
            p.step_planned(steps * 5, &parts);
            steps += 1;
        }
        let mut out = Vec::new();
        let mut at = 0;
        for bump in bumps.into_iter().cycle() {
            at = (at + bump).min(steps * 5);
            p.progress(at, |action| out.push(action));
            if at == steps * 5 {
                break;
            }
        }
        let wanted = |held, tokens| {
            expected(&layout(8, 1), 0, &travelling(held, tokens, grain(4, 8)), 4)
        };
        prop_assert_eq!(pieces(&out, ta), wanted(held, a));
        prop_assert_eq!(pieces(&out, tb), wanted(0, b));
        for t in [ta, tb] {
            let sealed = PushAction::Sealed { transfer: t };
            prop_assert_eq!(out.iter().filter(|x| **x == sealed).count(), 1);
            let last_write = out.iter().rposition(
                |x| matches!(x, PushAction::Write { flow, .. } if flow.0 / 10 == t.0));
            prop_assert!(last_write < out.iter().position(|x| *x == sealed));
        }
    }
}
