//! The prefill agent against a world that does its worst.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    /// Whatever happens in whatever order: source pages are nobody else's while anyone may touch
    /// them, every transfer ends once, and all pages come back.
    #[test]
    fn source_pages_are_safe_and_come_back(steps in proptest::collection::vec((0..10u8, any::<u16>()), 1..150)) {
        let mut agent = agent();
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
                4 => {
                    let transfer = TransferId(1 + pick as u64 % next.max(1));
                    world.lost.insert(transfer);
                    Some(Input::PeerLost { transfer })
                }
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
        prop_assert_eq!(agent.pages().free(), PAGES);
        prop_assert_eq!(world.ended.len() as u64, next);
    }
}

/// The watcher, the fabric and the engine.
#[derive(Default)]
struct World {
    opening: Vec<(TransferId, Arc<[FlowId]>)>,
    engine: Vec<(TransferId, SequenceId)>,
    watches: Vec<TransferId>,
    writing: Vec<(FlowId, TransferId)>,
    /// Transfers with a flow that broke off.
    broken: BTreeSet<TransferId>,
    /// Transfers whose decode worker is lost.
    lost: BTreeSet<TransferId>,
    /// Broken ones that have ended: somebody may read their pages.
    read: Vec<TransferId>,
    touched: std::collections::BTreeMap<TransferId, BTreeSet<PageIndex>>,
    ended: BTreeSet<TransferId>,
}

impl World {
    fn take(&mut self, output: Output) {
        match output {
            Output::Open {
                transfer,
                pages,
                flows,
                ..
            } => {
                let mine: BTreeSet<_> = pages.iter().copied().collect();
                assert!(
                    self.touched.values().all(|t| t.is_disjoint(&mine)),
                    "nobody else's"
                );
                self.touched.insert(transfer, mine);
                self.opening.push((transfer, flows));
            }
            Output::Prefill {
                transfer, sequence, ..
            } => self.engine.push((transfer, sequence)),
            Output::StopWatch { transfer } => self.watches.push(transfer),
            Output::Close { transfer } => assert!(self.touched.contains_key(&transfer)),
            Output::Refuse { transfer, .. } => assert!(self.ended.insert(transfer)),
            Output::End { transfer, how } => {
                assert!(self.ended.insert(transfer), "a transfer ends once");
                let writing = self.writing.iter().any(|(_, t)| *t == transfer);
                assert!(!writing, "nothing is in flight");
                let engine = self.engine.iter().any(|(t, _)| *t == transfer);
                assert!(!engine, "the engine let go");
                let unsettled = matches!(how, TransferEnd::Unsettled(_));
                assert_eq!(unsettled, self.broken.contains(&transfer));
                if unsettled {
                    self.read.push(transfer);
                }
            }
            Output::Gone { transfer } => {
                assert!(
                    !self.read.contains(&transfer),
                    "somebody may read its pages"
                );
                self.touched.remove(&transfer);
            }
            Output::Fence { transfer } => assert!(self.read.contains(&transfer)),
            Output::Accept { .. }
            | Output::CancelSequence { .. }
            | Output::StopWrites { .. }
            | Output::Cache(_) => {}
        }
    }

    fn act(&mut self, pick: usize) -> Option<Input> {
        let open: Vec<usize> = [
            !self.opening.is_empty(),
            !self.engine.is_empty(),
            !self.watches.is_empty(),
            !self.writing.is_empty(),
            !self.read.is_empty(),
        ]
        .iter()
        .enumerate()
        .filter_map(|(i, there)| there.then_some(i))
        .collect();
        let kind = *open.get(pick % open.len().max(1))?;
        let pick = pick / 4;
        Some(match kind {
            0 => {
                let (transfer, flows) = self.opening.remove(pick % self.opening.len());
                if pick.is_multiple_of(4) {
                    return Some(Input::NotOpened {
                        transfer,
                        reason: "no way".into(),
                    });
                }
                let flows = flows.iter().map(|f| (*f, transfer));
                self.writing.extend(flows);
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
            3 => {
                let (flow, transfer) = self.writing.remove(pick % self.writing.len());
                let complete = pick.is_multiple_of(2);
                let settled = complete || pick.is_multiple_of(3);
                if !settled {
                    self.broken.insert(transfer);
                }
                Input::Drained {
                    flow,
                    complete,
                    settled,
                    error: None,
                }
            }
            _ => {
                let transfer = self.read.remove(pick % self.read.len());
                match self.lost.contains(&transfer) {
                    true => Input::Fenced { transfer },
                    false => Input::PeerEnded { transfer },
                }
            }
        })
    }
}
