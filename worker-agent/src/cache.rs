//! What a worker holds for later prompts, as it is reported to gateways: numbered changes, and all of
//! it for who comes late or falls behind.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tandem_core::blocks::BlockHash;
use tandem_core::pool::CacheChange;
use tandem_wire::proto;
use tandem_wire::proto::cache_change::Kind;

/// Changes that are kept for who reads them; who is further behind gets everything anew.
const KEPT: usize = 8192;
/// Changes in one report, at most.
const IN_REPORT: usize = 4096;

/// Blocks held now and the latest changes. The worker's task writes it, each control stream reads it.
#[derive(Debug, Default)]
pub(crate) struct CacheLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    held: BTreeSet<BlockHash>,
    latest: VecDeque<CacheChange>,
    /// Number of the last change, counted from 1.
    last: u64,
}

/// One reader's place.
#[derive(Debug)]
pub(crate) struct CacheReader {
    log: Arc<CacheLog>,
    /// Number of the last change that was read.
    read: u64,
    /// What is left of everything, where the reader began anew.
    rest: VecDeque<BlockHash>,
    anew: bool,
}

impl CacheLog {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn add(&self, change: CacheChange) {
        let mut log = self.lock();
        match change {
            CacheChange::Stored(block) => log.held.insert(block),
            CacheChange::Evicted(block) => log.held.remove(&block),
        };
        log.last += 1;
        log.latest.push_back(change);
        if log.latest.len() > KEPT {
            log.latest.pop_front();
        }
    }

    /// A reader who knows nothing yet.
    pub(crate) fn reader(self: &Arc<Self>) -> CacheReader {
        CacheReader {
            log: Arc::clone(self),
            read: 0,
            rest: VecDeque::new(),
            anew: true,
        }
    }
}

impl CacheReader {
    /// The reader lost track: tells it everything.
    pub(crate) fn begin_anew(&mut self) {
        self.anew = true;
    }

    /// What is new; `None` where nothing is.
    pub(crate) fn report(&mut self) -> Option<proto::CacheReport> {
        let log = self.log.lock();
        let oldest = log.last - log.latest.len() as u64 + 1;
        let reset = self.anew || (self.rest.is_empty() && self.read + 1 < oldest);
        if reset {
            self.rest = log.held.iter().copied().collect();
            self.read = log.last;
            self.anew = false;
        }
        let stored = |block: BlockHash| change(CacheChange::Stored(block));
        let rest = self.rest.len().min(IN_REPORT);
        let mut changes: Vec<_> = self.rest.drain(..rest).map(stored).collect();
        let first = self.read + 1;
        if self.rest.is_empty() && first >= oldest {
            let skip = (first - oldest) as usize;
            let room = IN_REPORT - changes.len();
            let fresh = log.latest.iter().skip(skip).take(room);
            changes.extend(fresh.map(|c| change(*c)));
            self.read += (changes.len() - rest) as u64;
        }
        (reset || !changes.is_empty()).then_some(proto::CacheReport {
            first,
            changes,
            reset,
            unnumbered: rest as u32,
        })
    }
}

fn change(change: CacheChange) -> proto::CacheChange {
    let bytes = |block: BlockHash| block.0.to_vec().into();
    let kind = match change {
        CacheChange::Stored(block) => Kind::Stored(bytes(block)),
        CacheChange::Evicted(block) => Kind::Evicted(bytes(block)),
    };
    proto::CacheChange { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: u32) -> BlockHash {
        BlockHash(u128::from(n).to_be_bytes())
    }

    /// What a gateway makes of reports.
    #[derive(Default)]
    struct Index(BTreeSet<Vec<u8>>, u64);

    impl Index {
        fn take(&mut self, report: proto::CacheReport) {
            if report.reset {
                self.0.clear();
            }
            for change in report.changes.clone() {
                match change.kind.unwrap() {
                    Kind::Stored(block) => self.0.insert(block.to_vec()),
                    Kind::Evicted(block) => self.0.remove(&block.to_vec()),
                };
            }
            // As the gateway does: what is numbered follows without a gap.
            let numbered = report.changes.len() as u64 - u64::from(report.unnumbered);
            assert!(report.reset || report.first == self.1 + 1, "a gap");
            self.1 = report.first - 1 + numbered;
        }

        fn read(&mut self, reader: &mut CacheReader) {
            while let Some(report) = reader.report() {
                self.take(report);
            }
        }

        fn has(&self, blocks: &[u32]) {
            let all: BTreeSet<_> = blocks.iter().map(|n| block(*n).0.to_vec()).collect();
            assert_eq!(self.0, all);
        }
    }

    #[test]
    fn a_reader_hears_every_change_once_and_a_late_one_everything() {
        let log = Arc::new(CacheLog::default());
        let (mut early, mut index) = (log.reader(), Index::default());
        let first = early.report().unwrap();
        assert!(first.reset && first.changes.is_empty() && early.report().is_none());
        (1..=3).for_each(|n| log.add(CacheChange::Stored(block(n))));
        log.add(CacheChange::Evicted(block(2)));
        index.read(&mut early);
        index.has(&[1, 3]);
        assert_eq!(index.1, 4);
        log.add(CacheChange::Stored(block(4)));
        index.read(&mut early);
        index.has(&[1, 3, 4]);
        assert_eq!(index.1, 5, "changes are numbered");
        let (mut late, mut other) = (log.reader(), Index::default());
        other.read(&mut late);
        other.has(&[1, 3, 4]);
    }

    #[test]
    fn a_reader_that_falls_behind_begins_anew() {
        let log = Arc::new(CacheLog::default());
        let (mut reader, mut index) = (log.reader(), Index::default());
        index.read(&mut reader);
        let many = KEPT as u32 + IN_REPORT as u32 + 5;
        (0..many).for_each(|n| log.add(CacheChange::Stored(block(n))));
        (0..many - 3).for_each(|n| log.add(CacheChange::Evicted(block(n))));
        let report = reader.report().unwrap();
        assert!(report.reset);
        index.take(report);
        index.read(&mut reader);
        index.has(&[many - 3, many - 2, many - 1]);
    }
}
