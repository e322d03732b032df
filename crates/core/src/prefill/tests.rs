//! The prefill agent, case by case; [`world`] has it live through orders of events at random.

mod world;

use super::*;
use crate::blocks::BlockHash;
use crate::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use crate::lease::PageState;

const PAGES: u32 = 8;

fn agent() -> PrefillAgent {
    let geometry = KvGeometry {
        layers: 2,
        kv_heads: 2,
        head_dim: 2,
        page_tokens: 4,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };
    PrefillAgent::new(PrefillLimits {
        layout: Arc::new(WorkerLayout::tensor_parallel(geometry, PAGES, 2).unwrap()),
        queue: 3,
        drain_timeout: Duration::from_millis(100),
    })
}

const T: TransferId = TransferId(1);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn dispatch(n: u64, tokens: u32) -> Input {
    Input::Dispatch {
        transfer: TransferId(n),
        tokens,
        blocks: [].into(),
        flows: 2,
        deadline: at(1000),
    }
}

fn outputs(agent: &mut PrefillAgent) -> Vec<Output> {
    std::iter::from_fn(|| agent.poll()).collect()
}

fn tell(agent: &mut PrefillAgent, input: Input) -> Vec<Output> {
    agent.handle(at(1), input);
    outputs(agent)
}

fn running() -> PrefillAgent {
    let mut agent = agent();
    tell(&mut agent, dispatch(1, 9));
    tell(&mut agent, Input::Opened { transfer: T });
    agent
}

fn flow_drained(flow: u64, complete: bool, settled: bool) -> Input {
    Input::Drained {
        flow: FlowId(flow),
        complete,
        settled,
        error: None,
    }
}

/// Both flows drain, the second one as told.
fn drain(agent: &mut PrefillAgent, complete: bool, settled: bool) -> Vec<Output> {
    let mut out = tell(agent, flow_drained(1, true, true));
    out.extend(tell(agent, flow_drained(2, complete, settled)));
    out
}

fn end(how: TransferEnd) -> [Output; 2] {
    let transfer = T;
    [Output::End { transfer, how }, Output::Gone { transfer }]
}

const PREFILLED: Input = Input::SequenceEnded {
    transfer: T,
    how: Ok(()),
};

#[test]
fn done_is_said_when_all_writes_have_completed_and_the_engine_has_let_go() {
    for engine_first in [true, false] {
        let mut agent = running();
        assert_eq!(agent.pages().of(PageState::Active), 2);
        if engine_first {
            assert_eq!(tell(&mut agent, PREFILLED), []);
            assert_eq!(drain(&mut agent, true, true), end(TransferEnd::Done));
        } else {
            assert_eq!(drain(&mut agent, true, true), []);
            assert_eq!(tell(&mut agent, PREFILLED), end(TransferEnd::Done));
        }
        assert_eq!(agent.pages().of(PageState::Free), 8);
    }
}

#[test]
fn drained_is_said_after_watcher_writes_and_engine_in_that_order() {
    let mut agent = running();
    let out = tell(&mut agent, Input::Cancel { transfer: T });
    let sequence = SequenceId(1);
    assert_eq!(
        out,
        [
            Output::CancelSequence { sequence },
            Output::StopWatch { transfer: T }
        ]
    );
    let out = tell(&mut agent, Input::WatchStopped { transfer: T });
    let stop = |flow| Output::StopWrites {
        transfer: T,
        flow: FlowId(flow),
    };
    assert_eq!(out, [stop(1), stop(2)]);
    assert_eq!(drain(&mut agent, false, true), []);
    let ended = Input::SequenceEnded {
        transfer: T,
        how: Err("cancelled".into()),
    };
    assert_eq!(tell(&mut agent, ended), end(TransferEnd::Drained));
}

#[test]
fn a_cancel_while_the_way_is_opened_computes_nothing() {
    let mut agent = agent();
    tell(&mut agent, dispatch(1, 9));
    assert_eq!(tell(&mut agent, Input::Cancel { transfer: T }), []);
    let out = tell(&mut agent, Input::Opened { transfer: T });
    assert_eq!(out, [Output::StopWatch { transfer: T }]);
}

#[test]
fn writes_that_never_complete_are_ended_by_closing_their_endpoint() {
    let mut agent = running();
    tell(&mut agent, Input::PeerLost { transfer: T });
    assert_eq!(agent.deadline(), Some(at(101)));
    agent.handle(at(101), Input::Tick);
    assert_eq!(outputs(&mut agent), [Output::Close { transfer: T }]);
    tell(&mut agent, PREFILLED);
    let how = TransferEnd::Failed("the decode worker was lost".into());
    assert_eq!(drain(&mut agent, false, true), end(how));
}

#[test]
fn a_failed_write_is_told_only_when_its_sibling_flows_have_drained() {
    let mut agent = running();
    let failed = Input::Drained {
        flow: FlowId(1),
        complete: false,
        settled: true,
        error: Some("NIC".into()),
    };
    let out = tell(&mut agent, failed);
    let sequence = SequenceId(1);
    let stop = Output::StopWatch { transfer: T };
    assert_eq!(out, [Output::CancelSequence { sequence }, stop]);
    let out = tell(&mut agent, Input::WatchStopped { transfer: T });
    let flow = FlowId(2);
    assert_eq!(out, [Output::StopWrites { transfer: T, flow }]);
    assert_eq!(tell(&mut agent, flow_drained(2, false, true)), []);
    let ended = Input::SequenceEnded {
        transfer: T,
        how: Err("cancelled".into()),
    };
    let how = TransferEnd::Failed("NIC".into());
    assert_eq!(tell(&mut agent, ended), end(how));
}

/// A transfer that was cancelled and whose writes broke off.
fn unsettled() -> PrefillAgent {
    let mut agent = running();
    tell(&mut agent, Input::Cancel { transfer: T });
    tell(&mut agent, PREFILLED);
    let how = TransferEnd::Unsettled("writes broke off".into());
    let out = drain(&mut agent, false, false);
    assert_eq!(out, [Output::End { transfer: T, how }]);
    agent
}

#[test]
fn pages_of_writes_that_broke_off_stay_until_the_decode_side_reads_no_more() {
    let mut agent = unsettled();
    assert_eq!(agent.pages().of(PageState::Active), 2);
    assert_eq!(agent.transfers(), 1);
    let gone = [Output::Gone { transfer: T }];
    assert_eq!(tell(&mut agent, Input::PeerEnded { transfer: T }), gone);
    assert_eq!(agent.pages().free(), PAGES);
}

#[test]
fn a_lost_reader_of_such_pages_is_fenced_first() {
    let mut agent = unsettled();
    let fence = [Output::Fence { transfer: T }];
    assert_eq!(tell(&mut agent, Input::PeerLost { transfer: T }), fence);
    // Once: a second fence would find nothing to close, and end before the first one.
    assert_eq!(tell(&mut agent, Input::PeerLost { transfer: T }), []);
    assert_eq!(agent.pages().of(PageState::Active), 2);
    let gone = [Output::Gone { transfer: T }];
    assert_eq!(tell(&mut agent, Input::Fenced { transfer: T }), gone);
    assert_eq!(agent.pages().free(), PAGES);
}

#[test]
fn prompts_wait_for_pages_in_order_in_a_bounded_queue() {
    let mut agent = agent();
    tell(&mut agent, dispatch(1, 30));
    for n in 2..5 {
        assert_eq!(
            tell(&mut agent, dispatch(n, 9)),
            [Output::Accept {
                transfer: TransferId(n)
            }]
        );
    }
    let out = tell(&mut agent, dispatch(5, 9));
    assert!(matches!(
        &out[0],
        Output::Refuse {
            why: Refusal::Busy(_),
            ..
        }
    ));
    let out = tell(&mut agent, dispatch(6, 99));
    assert!(matches!(
        &out[0],
        Output::Refuse {
            why: Refusal::NeverFits(_),
            ..
        }
    ));
    let out = tell(
        &mut agent,
        Input::NotOpened {
            transfer: T,
            reason: "gone".into(),
        },
    );
    let opens: Vec<_> = out
        .iter()
        .filter(|o| matches!(o, Output::Open { .. }))
        .collect();
    assert_eq!(opens.len(), 3);
}

#[test]
fn a_prompt_that_waits_too_long_ends() {
    let mut agent = agent();
    tell(&mut agent, dispatch(1, 30));
    tell(&mut agent, dispatch(2, 30));
    agent.handle(at(1000), Input::Tick);
    let ended = outputs(&mut agent);
    assert!(
        matches!(
            &ended[0],
            Output::End {
                transfer: TransferId(2),
                ..
            }
        ),
        "{ended:?}"
    );
}

#[test]
fn the_watcher_is_stopped_where_the_last_flow_fails_by_itself() {
    let mut agent = running();
    tell(&mut agent, flow_drained(1, true, true));
    let out = tell(&mut agent, flow_drained(2, false, true));
    assert!(
        out.contains(&Output::StopWatch { transfer: T }),
        "{out:?}: the engine may never come to the step in which the watcher forgets the transfer"
    );
}

#[test]
fn the_watcher_is_stopped_where_all_flows_fail_before_the_way_is_known_to_be_open() {
    let mut agent = agent();
    tell(&mut agent, dispatch(1, 9));
    tell(&mut agent, flow_drained(1, false, true));
    assert_eq!(tell(&mut agent, flow_drained(2, false, true)), []);
    let out = tell(&mut agent, Input::Opened { transfer: T });
    assert_eq!(out, [Output::StopWatch { transfer: T }]);
    let out = tell(&mut agent, Input::WatchStopped { transfer: T });
    assert_eq!(out, end(TransferEnd::Failed("a write failed".into())));
}

#[test]
fn a_stopping_worker_takes_nothing_new_and_ends_what_it_has() {
    let mut agent = running();
    agent.stop();
    let refused = Output::Refuse {
        transfer: TransferId(2),
        why: Refusal::Stopping,
    };
    assert_eq!(tell(&mut agent, dispatch(2, 9)), [refused]);
    tell(&mut agent, PREFILLED);
    assert_eq!(drain(&mut agent, true, true), end(TransferEnd::Done));
}

#[test]
fn a_prompt_that_begins_like_an_earlier_one_is_computed_from_there_on() {
    let mut agent = agent();
    let prompt = |n: u64, tokens, blocks: &[u8]| Input::Dispatch {
        transfer: TransferId(n),
        tokens,
        blocks: blocks.iter().map(|b| BlockHash([*b; 16])).collect(),
        flows: 1,
        deadline: at(1000),
    };
    let run = |agent: &mut PrefillAgent, n: u64, input| {
        tell(agent, input);
        let transfer = TransferId(n);
        let out = tell(agent, Input::Opened { transfer });
        let how = Ok(());
        tell(agent, Input::SequenceEnded { transfer, how });
        tell(agent, flow_drained(n, true, true));
        let Some(Output::Prefill { pages, cached, .. }) = out.first() else {
            panic!("{out:?}")
        };
        (pages.to_vec(), *cached)
    };
    let (first, cached) = run(&mut agent, 1, prompt(1, 13, &[1, 2, 3]));
    assert_eq!(cached, 0);
    assert_eq!(agent.pages().of(PageState::Cached), 3);
    let (second, cached) = run(&mut agent, 2, prompt(2, 14, &[1, 2, 9]));
    assert_eq!((cached, &second[..2]), (8, &first[..2]));
    // The same prompt again: its last page is computed once more, since a step must run.
    let (third, cached) = run(&mut agent, 3, prompt(3, 13, &[1, 2, 3]));
    assert_eq!((cached, &third[..2]), (8, &first[..2]));
    assert_eq!(agent.pages().free(), PAGES);
}
