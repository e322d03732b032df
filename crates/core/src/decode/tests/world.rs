//! The decode agent against a world that does its worst.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::EndpointId;
use crate::blocks::BlockHash;
use crate::ledger::InboundLedger;

/// Everybody around the agent, and what each of them may still do.
#[derive(Default)]
struct World {
    /// One for each shard.
    ledgers: Vec<InboundLedger>,
    arming: Vec<(RequestId, Arc<[u64]>)>,
    /// Pages that somebody outside may still write, by request.
    writers: BTreeMap<RequestId, Writing>,
    /// Sequences that the engine holds, ready or not.
    engine: BTreeMap<SequenceId, (RequestId, Which, BTreeSet<PageIndex>, bool)>,
    fences: Vec<Peer>,
    /// Blocks of each request's prompt.
    blocks: BTreeMap<RequestId, Arc<[BlockHash]>>,
    /// What each page holds.
    content: BTreeMap<PageIndex, BlockHash>,
    /// All pages of each request that has not ended, and how many of them are its prefix.
    admitted: BTreeMap<RequestId, (Vec<PageIndex>, usize)>,
    slots: BTreeSet<(u16, SlotKey)>,
    gone: BTreeSet<RequestId>,
    ended: BTreeMap<RequestId, u32>,
    asked: BTreeSet<RequestId>,
}

/// Somebody who may still write.
struct Writing {
    peer: Peer,
    pages: BTreeSet<PageIndex>,
    /// Shards whose last piece has not arrived.
    shards: Vec<u16>,
}

impl World {
    fn take(&mut self, output: Output) {
        match output {
            Output::Refuse { request, .. } | Output::Fail { request, .. } => {
                *self.ended.entry(request).or_default() += 1;
            }
            Output::Admit {
                request,
                sequence,
                pages,
            } => {
                self.admitted.insert(request, (pages.to_vec(), 0));
                let pages: BTreeSet<_> = pages.iter().copied().collect();
                let foreign = self.writers.values().all(|w| w.pages.is_disjoint(&pages));
                assert!(foreign, "nobody outside writes a page of this request");
                self.engine
                    .insert(sequence, (request, Which::Decode, pages, false));
            }
            Output::PrefillHere {
                request,
                sequence,
                pages,
                ..
            } => {
                let pages = pages.iter().copied().collect();
                self.engine
                    .insert(sequence, (request, Which::Prefill, pages, true));
            }
            Output::Arm {
                request, pieces, ..
            } => self.arming.push((request, pieces)),
            Output::Dispatch {
                request,
                peer,
                pages,
                armed,
                ..
            } => {
                assert_eq!(armed.len(), 2);
                let writing = Writing {
                    peer,
                    pages: pages.iter().copied().collect(),
                    shards: vec![0, 1],
                };
                self.writers.insert(request, writing);
            }
            Output::MakeReady {
                sequence, request, ..
            } => {
                assert!(!self.writers.contains_key(&request), "I1: no early decode");
                self.engine
                    .get_mut(&sequence)
                    .expect("an admitted sequence")
                    .3 = true;
            }
            Output::ReleaseSlot { shard, armed } => {
                let known = self.slots.remove(&(shard, armed.key));
                assert!(known, "a slot is released once");
                self.ledgers[usize::from(shard)].release(armed);
            }
            Output::Fence { peer } => self.fences.push(peer),
            Output::Gone { request } => {
                assert!(self.gone.insert(request));
                self.admitted.remove(&request);
            }
            Output::Reserved { request, held, .. } => self.reserved(request, held),
            Output::CancelPrefill { .. } | Output::CancelSequence { .. } | Output::Cache(_) => {}
        }
    }

    /// The first `held` tokens' pages hold the request's blocks; the others are its alone.
    fn reserved(&mut self, request: RequestId, held: u32) {
        let known = held as usize / 4;
        let (pages, prefix) = self.admitted.get_mut(&request).unwrap();
        *prefix = known;
        let pages = pages.clone();
        for (page, block) in pages[..known].iter().zip(self.blocks[&request].iter()) {
            assert_eq!(self.content.get(page), Some(block), "the right block");
        }
        for page in &pages[known..] {
            self.content.remove(page);
            let others = self.admitted.iter().filter(|(r, _)| **r != request);
            let read = others.into_iter().any(|(_, (p, _))| p.contains(page));
            assert!(!read, "a leased page is nobody else's");
        }
    }

    /// Every prompt page of a request is complete.
    fn complete(&mut self, request: RequestId) {
        let (pages, known) = &self.admitted[&request];
        let blocks = self.blocks[&request].iter();
        let fresh = pages.iter().zip(blocks).skip(*known);
        self.content.extend(fresh.map(|(p, b)| (*p, *b)));
    }

    /// Something that somebody around may do now, chosen by `pick`.
    fn act(&mut self, pick: usize) -> Option<Input> {
        let kinds = [
            !self.arming.is_empty(),
            !self.writers.is_empty(),
            !self.engine.is_empty(),
            !self.fences.is_empty(),
        ];
        let open: Vec<usize> = (0..4).filter(|k| kinds[*k]).collect();
        let kind = *open.get(pick % open.len().max(1))?;
        let pick = pick / 4;
        Some(match kind {
            0 => self.arm(pick),
            1 => self.write(pick),
            2 => self.compute(pick),
            _ => {
                let peer = self.fences.remove(pick % self.fences.len());
                self.writers.retain(|_, w| w.peer != peer);
                Input::Fenced { peer }
            }
        })
    }

    fn arm(&mut self, pick: usize) -> Input {
        let (request, pieces) = self.arming.remove(pick % self.arming.len());
        if pick.is_multiple_of(5) {
            return Input::NotArmed {
                request,
                reason: "no endpoint".into(),
            };
        }
        let ledgers = self.ledgers.iter_mut().zip(pieces.iter());
        let armed: Arc<[Armed]> = ledgers
            .map(|(ledger, pieces)| ledger.arm(EndpointId(0), *pieces).unwrap())
            .collect();
        let slots = (0..).zip(armed.iter()).map(|(shard, a)| (shard, a.key));
        self.slots.extend(slots);
        Input::Armed { request, armed }
    }

    fn write(&mut self, pick: usize) -> Input {
        let request = *self.writers.keys().nth(pick % self.writers.len()).unwrap();
        match pick / 8 % 6 {
            // A broken connection stops nobody from writing.
            0 => {
                return Input::WriterLost {
                    request,
                    why: "gone".into(),
                };
            }
            1 => return Input::Overfull { request },
            2 => {
                // One shard after another becomes full.
                let writing = self.writers.get_mut(&request).unwrap();
                let shard = writing.shards.pop().unwrap();
                if writing.shards.is_empty() {
                    self.writers.remove(&request);
                    self.complete(request);
                }
                return Input::Full { request, shard };
            }
            _ => {}
        }
        self.writers.remove(&request);
        let refusal = Refusal::Busy("full".into());
        match pick / 8 % 6 {
            3 => Input::WriterGone {
                request,
                how: WriterEnd::Drained,
            },
            4 => Input::WriterGone {
                request,
                how: WriterEnd::Refused(refusal),
            },
            _ => Input::WriterGone {
                request,
                how: WriterEnd::Failed("NIC".into()),
            },
        }
    }

    fn compute(&mut self, pick: usize) -> Input {
        let sequence = *self.engine.keys().nth(pick % self.engine.len()).unwrap();
        let (request, which, _, ready) = self.engine.remove(&sequence).unwrap();
        let how = match pick / 8 % 3 {
            0 if ready && which == Which::Prefill => {
                self.complete(request);
                return Input::PrefilledHere { request };
            }
            0 if ready => {
                *self.ended.entry(request).or_default() += 1;
                SequenceEnd::Finished([].into())
            }
            1 => SequenceEnd::Failed("NaN".into()),
            _ => SequenceEnd::Cancelled,
        };
        Input::SequenceEnded {
            request,
            which,
            how,
        }
    }
}

proptest! {
    /// Whatever everybody does, in whatever order: no page has two owners, nobody decodes early,
    /// slots are released once, and when all have settled every page is free.
    #[test]
    fn pages_are_safe_and_come_back(steps in proptest::collection::vec((0..100u8, any::<u16>()), 1..120)) {
        let mut agent = super::agent();
        let mut world = World { ledgers: vec![InboundLedger::new(64), InboundLedger::new(64)], ..World::default() };
        let mut now = 0;
        let mut next = 0;
        for (what, pick) in steps {
            let pick = usize::from(pick);
            let input = match what {
                0..30 => {
                    next += 1;
                    world.asked.insert(id(next));
                    let prefill = (pick % 4 > 0).then(|| peer(pick as u64 % 3));
                    let tokens = 1 + pick as u32 % 20;
                    // One of three prompts, cut off anywhere.
                    let name = |i| BlockHash([(pick % 3 * 10 + i) as u8; 16]);
                    let blocks: Arc<[BlockHash]> = (0..(tokens as usize - 1) / 4).map(name).collect();
                    world.blocks.insert(id(next), Arc::clone(&blocks));
                    let Input::Reserve(mut reserve) = reserve(next, tokens, prefill) else {
                        unreachable!("it reserves")
                    };
                    reserve.blocks = blocks;
                    Some(Input::Reserve(reserve))
                }
                30..45 => Some(Input::Cancel { request: id(1 + pick as u128 % next.max(1)) }),
                45..50 => { now += 60; Some(Input::Tick) }
                _ => world.act(pick),
            };
            if let Some(input) = input {
                agent.handle(at(now), input);
            }
            for output in outputs(&mut agent) {
                world.take(output);
            }
        }
        // Let time pass and everybody answer: requests end, writers are fenced, pages return.
        for round in 0..400usize {
            now += 50;
            agent.handle(at(now), Input::Tick);
            for output in outputs(&mut agent) {
                world.take(output);
            }
            // Deadlines have passed: the engine is asked to cancel, and does.
            if let Some(input) = world.act(round * 7 + 128) {
                agent.handle(at(now), input);
            }
            for output in outputs(&mut agent) {
                world.take(output);
            }
        }
        prop_assert_eq!(agent.requests(), 0);
        prop_assert_eq!(agent.pages().free(), PAGES);
        prop_assert!(world.slots.is_empty());
        for request in &world.asked {
            prop_assert!(world.ended.contains_key(request), "I6: {} ends", request);
        }
    }
}
