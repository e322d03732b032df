//! The prefill agent, case by case and at random.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::geometry::KvDtype;
use crate::lease::PageState;

const LIMITS: PrefillLimits = PrefillLimits {
    geometry: KvGeometry {
        layers: 2,
        kv_heads: 1,
        head_dim: 2,
        page_tokens: 4,
        dtype: KvDtype::F16,
    },
    pages: 8,
    queue: 3,
    drain_timeout: Duration::from_millis(100),
};

const T: TransferId = TransferId(1);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn dispatch(n: u64, tokens: u32) -> Input {
    Input::Dispatch {
        transfer: TransferId(n),
        tokens,
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
    let mut agent = PrefillAgent::new(LIMITS);
    tell(&mut agent, dispatch(1, 9));
    tell(&mut agent, Input::Opened { transfer: T });
    agent
}

fn drained(complete: bool) -> Input {
    Input::Drained {
        transfer: T,
        complete,
        settled: true,
        error: None,
    }
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
        let (a, b) = if engine_first {
            (PREFILLED, drained(true))
        } else {
            (drained(true), PREFILLED)
        };
        assert_eq!(tell(&mut agent, a), []);
        assert_eq!(
            tell(&mut agent, b),
            [Output::End {
                transfer: T,
                how: TransferEnd::Done
            }]
        );
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
    assert_eq!(out, [Output::StopWrites { transfer: T }]);
    assert_eq!(tell(&mut agent, drained(false)), []);
    let ended = Input::SequenceEnded {
        transfer: T,
        how: Err("cancelled".into()),
    };
    let out = tell(&mut agent, ended);
    assert_eq!(
        out,
        [Output::End {
            transfer: T,
            how: TransferEnd::Drained
        }]
    );
}

#[test]
fn a_cancel_while_the_way_is_opened_computes_nothing() {
    let mut agent = PrefillAgent::new(LIMITS);
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
    let out = tell(&mut agent, drained(false));
    let how = TransferEnd::Failed("the decode worker was lost".into());
    assert_eq!(out, [Output::End { transfer: T, how }]);
}

#[test]
fn a_failed_write_ends_the_count_with_a_failure() {
    let mut agent = running();
    let out = tell(
        &mut agent,
        Input::Drained {
            transfer: T,
            complete: false,
            settled: true,
            error: Some("NIC".into()),
        },
    );
    assert_eq!(
        out,
        [Output::CancelSequence {
            sequence: SequenceId(1)
        }]
    );
    let ended = Input::SequenceEnded {
        transfer: T,
        how: Err("cancelled".into()),
    };
    let how = TransferEnd::Failed("NIC".into());
    assert_eq!(tell(&mut agent, ended), [Output::End { transfer: T, how }]);
}

#[test]
fn a_cancelled_transfer_whose_writes_broke_off_is_not_called_drained() {
    let mut agent = running();
    tell(&mut agent, Input::Cancel { transfer: T });
    tell(&mut agent, PREFILLED);
    let out = tell(
        &mut agent,
        Input::Drained {
            transfer: T,
            complete: false,
            settled: false,
            error: None,
        },
    );
    assert!(
        matches!(
            &out[0],
            Output::End {
                how: TransferEnd::Unsettled(_),
                ..
            }
        ),
        "{out:?}"
    );
}

#[test]
fn prompts_wait_for_pages_in_order_in_a_bounded_queue() {
    let mut agent = PrefillAgent::new(LIMITS);
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
    let mut agent = PrefillAgent::new(LIMITS);
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

proptest! {
    /// Whatever happens in whatever order: source pages are nobody else's while anyone may touch
    /// them, every transfer ends once, and all pages come back.
    #[test]
    fn source_pages_are_safe_and_come_back(steps in proptest::collection::vec((0..10u8, any::<u16>()), 1..150)) {
        let mut agent = PrefillAgent::new(LIMITS);
        let mut world = World::default();
        let mut next = 0;
        for (what, pick) in steps {
            let pick = usize::from(pick);
            let input = match what {
                0..3 => {
                    next += 1;
                    Some(dispatch(next, 2 + pick as u32 % 24))
                }
                3 => Some(Input::Cancel { transfer: TransferId(1 + pick as u64 % next.max(1)) }),
                4 => Some(Input::PeerLost { transfer: TransferId(1 + pick as u64 % next.max(1)) }),
                _ => world.act(pick),
            };
            if let Some(input) = input {
                agent.handle(at(1), input);
            }
            outputs(&mut agent).into_iter().for_each(|o| world.take(o));
        }
        for round in 0..600usize {
            agent.handle(at(2000 + round as u64 * 10), Input::Tick);
            outputs(&mut agent).into_iter().for_each(|o| world.take(o));
            if let Some(input) = world.act(round * 5) {
                agent.handle(at(2000 + round as u64 * 10), input);
            }
            outputs(&mut agent).into_iter().for_each(|o| world.take(o));
        }
        prop_assert_eq!(agent.transfers(), 0);
        prop_assert_eq!(agent.pages().of(PageState::Free), LIMITS.pages);
        prop_assert_eq!(world.ended.len() as u64, next);
    }
}

/// The watcher, the fabric and the engine.
#[derive(Default)]
struct World {
    opening: Vec<(TransferId, Arc<[PageIndex]>)>,
    engine: Vec<(TransferId, SequenceId)>,
    watches: Vec<TransferId>,
    writing: Vec<TransferId>,
    touched: std::collections::BTreeMap<TransferId, BTreeSet<PageIndex>>,
    ended: BTreeSet<TransferId>,
}

impl World {
    fn take(&mut self, output: Output) {
        match output {
            Output::Open {
                transfer, pages, ..
            } => {
                let mine: BTreeSet<_> = pages.iter().copied().collect();
                assert!(
                    self.touched.values().all(|t| t.is_disjoint(&mine)),
                    "nobody else's"
                );
                self.touched.insert(transfer, mine);
                self.opening.push((transfer, pages));
            }
            Output::Prefill {
                transfer, sequence, ..
            } => self.engine.push((transfer, sequence)),
            Output::StopWatch { transfer } => self.watches.push(transfer),
            Output::Close { transfer } => assert!(self.touched.contains_key(&transfer)),
            Output::End { transfer, .. } | Output::Refuse { transfer, .. } => {
                assert!(self.ended.insert(transfer), "a transfer ends once");
                assert!(!self.writing.contains(&transfer), "nothing is in flight");
                assert!(
                    !self.engine.iter().any(|(t, _)| *t == transfer),
                    "the engine let go"
                );
                self.touched.remove(&transfer);
            }
            Output::Accept { .. } | Output::CancelSequence { .. } | Output::StopWrites { .. } => {}
        }
    }

    fn act(&mut self, pick: usize) -> Option<Input> {
        let open: Vec<usize> = [
            !self.opening.is_empty(),
            !self.engine.is_empty(),
            !self.watches.is_empty(),
            !self.writing.is_empty(),
        ]
        .iter()
        .enumerate()
        .filter_map(|(i, there)| there.then_some(i))
        .collect();
        let kind = *open.get(pick % open.len().max(1))?;
        let pick = pick / 4;
        Some(match kind {
            0 => {
                let (transfer, _) = self.opening.remove(pick % self.opening.len());
                if pick.is_multiple_of(4) {
                    return Some(Input::NotOpened {
                        transfer,
                        reason: "no way".into(),
                    });
                }
                self.writing.push(transfer);
                Input::Opened { transfer }
            }
            1 => {
                let (transfer, _) = self.engine.remove(pick % self.engine.len());
                let how = if pick.is_multiple_of(3) {
                    Err("NaN".into())
                } else {
                    Ok(())
                };
                Input::SequenceEnded { transfer, how }
            }
            2 => Input::WatchStopped {
                transfer: self.watches.remove(pick % self.watches.len()),
            },
            _ => {
                let transfer = self.writing.remove(pick % self.writing.len());
                let complete = pick.is_multiple_of(2);
                Input::Drained {
                    transfer,
                    complete,
                    settled: pick.is_multiple_of(3),
                    error: None,
                }
            }
        })
    }
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
    let out = tell(&mut agent, drained(true));
    let how = TransferEnd::Done;
    assert_eq!(out, [Output::End { transfer: T, how }]);
}
