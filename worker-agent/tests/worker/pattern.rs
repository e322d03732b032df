//! An engine whose KV entries say whose they are: every entry is a hash of the tokens up to its own, so
//! a page that holds a byte of another request, or none, is found out. It computes nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::{PageIndex, SequenceId};
use tandem_engine::{
    Command, Engine, EngineDescription, Event, FinishReason, Progress, StepItem, StepPlan,
    StepWatch,
};
use tandem_engine_link::Host;
use tandem_memory::HostMemory;
use tokio::sync::mpsc::Sender;

pub(crate) const VOCABULARY: u32 = 1000;
const LAYERS: u16 = 3;
const CHUNK: usize = 40;
/// Bytes of context.
const CONTEXT: usize = 48;
const LAYER_TIME: Duration = Duration::from_micros(100);

/// What all engines of a test found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Entries that were not what they should be.
    pub(crate) wrong: AtomicU64,
    /// Prompts whose every entry was checked.
    pub(crate) checked: AtomicU64,
    /// Contexts that were checked.
    pub(crate) contexts: AtomicU64,
}

pub(crate) fn layout(ranks: u16, page_tokens: u16, pages: u32) -> Arc<WorkerLayout> {
    let geometry = KvGeometry {
        layers: LAYERS,
        kv_heads: 2,
        head_dim: 8,
        page_tokens,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: CONTEXT as u32,
    };
    Arc::new(WorkerLayout::tensor_parallel(geometry, pages, ranks).unwrap())
}

fn mix(a: u64, b: u64) -> u64 {
    (a ^ b)
        .wrapping_add(0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .rotate_left(29)
}

/// For each token, a hash of all tokens up to it.
fn chain(tokens: &[u32]) -> Vec<u64> {
    let step = |hash: &mut u64, token: &u32| {
        *hash = mix(*hash, u64::from(*token));
        Some(*hash)
    };
    tokens.iter().scan(7, step).collect()
}

/// The token that follows.
fn next_token(tokens: &[u32]) -> u32 {
    (chain(tokens).last().unwrap_or(&0) % u64::from(VOCABULARY)) as u32
}

/// The answer that every engine gives.
pub(crate) fn answer(tokens: &[u32], new_tokens: u32) -> Vec<u32> {
    let mut all = tokens.to_vec();
    (0..new_tokens).for_each(|_| all.push(next_token(&all)));
    all.split_off(tokens.len())
}

/// The arenas, and what they should hold.
struct Entries {
    layout: Arc<WorkerLayout>,
    arenas: Vec<Arc<HostMemory>>,
}

impl Entries {
    /// Calls `f` with every entry of a layer's tokens `from..to`: its memory, offset and bytes.
    fn each(
        &self,
        layer: u16,
        (tokens, pages): (&[u32], &[PageIndex]),
        range: std::ops::Range<usize>,
        mut f: impl FnMut(&HostMemory, usize, [u8; 16]),
    ) {
        let chain = chain(&tokens[..range.end]);
        for (shard, part) in (0u16..).zip(self.layout.shards()) {
            let arena = self.layout.arena(shard);
            let g = *arena.geometry();
            for token in range.clone() {
                let page = pages[token / usize::from(g.page_tokens)];
                let slot = token % usize::from(g.page_tokens);
                for plane in 0..2 {
                    for head in part.heads.clone() {
                        let local = usize::from(head - part.heads.start);
                        let at = arena.offset(layer, plane, page)
                            + local * g.head_bytes()
                            + slot * g.token_bytes();
                        let place = u64::from(layer) << 32 | u64::from(plane) << 16;
                        let hash = mix(chain[token], place | u64::from(head)).to_le_bytes();
                        let mut bytes = [0; 16];
                        bytes[..8].copy_from_slice(&hash);
                        bytes[8..].copy_from_slice(&hash);
                        f(&self.arenas[usize::from(shard)], at, bytes);
                    }
                }
            }
        }
    }

    fn write(&self, layer: u16, of: (&[u32], &[PageIndex]), range: std::ops::Range<usize>) {
        self.each(layer, of, range, |memory, at, bytes| {
            memory.write(at, &bytes)
        });
    }

    /// Calls `f` with every shard's slot for the context of these tokens: its memory, offset and bytes.
    fn each_context(
        &self,
        (tokens, pages): (&[u32], &[PageIndex]),
        mut f: impl FnMut(&HostMemory, usize, [u8; CONTEXT]),
    ) {
        let (Some(before), Some(hash)) = (tokens.len().checked_sub(1), chain(tokens).pop()) else {
            return;
        };
        let page = pages[before / usize::from(self.layout.geometry().page_tokens)];
        let bytes = [mix(hash, 0xc0de).to_le_bytes(); CONTEXT / 8];
        for (shard, _) in (0u16..).zip(self.layout.shards()) {
            let at = self.layout.arena(shard).context(page);
            f(
                &self.arenas[usize::from(shard)],
                at,
                *bytes.as_flattened().first_chunk().unwrap(),
            );
        }
    }

    /// Entries of all layers that are not what they should be.
    fn wrong(&self, of: (&[u32], &[PageIndex]), tokens: usize) -> u64 {
        let mut wrong = 0;
        for layer in 0..LAYERS {
            self.each(layer, of, 0..tokens, |memory, at, bytes| {
                let mut found = [0; 16];
                memory.read(at, &mut found);
                wrong += u64::from(found != bytes);
            });
        }
        wrong
    }
}

struct PatternEngine {
    description: EngineDescription,
    commands: SyncSender<Command>,
    progress: Arc<Progress>,
}

impl Engine for PatternEngine {
    fn describe(&self) -> &EngineDescription {
        &self.description
    }

    fn submit(&self, command: Command) -> Result<(), Command> {
        use std::sync::mpsc::TrySendError::{Disconnected, Full};
        self.commands
            .try_send(command)
            .map_err(|(Full(c) | Disconnected(c))| c)
    }

    fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }
}

/// Hosts an engine at `socket` for as long as the process lives.
pub(crate) fn host(socket: &Path, layout: &Arc<WorkerLayout>, findings: &Arc<Findings>) {
    let host = Host::bind(socket).unwrap();
    let arenas: Vec<Arc<HostMemory>> = (0..layout.shards().len())
        .map(|shard| {
            let bytes = layout.arena(shard as u16).bytes();
            Arc::new(HostMemory::create("pattern", bytes).unwrap())
        })
        .collect();
    let (commands, queue) = sync_channel(1024);
    let (events, received) = tokio::sync::mpsc::channel(4096);
    let progress = Arc::new(Progress::create().unwrap());
    let running = Running {
        entries: Entries {
            layout: Arc::clone(layout),
            arenas: arenas.clone(),
        },
        progress: Arc::clone(&progress),
        watch: host.watch(),
        events,
        findings: Arc::clone(findings),
        prefills: BTreeMap::new(),
        decodes: BTreeMap::new(),
    };
    std::thread::spawn(move || running.run(&queue));
    let engine = PatternEngine {
        description: EngineDescription {
            model: "pattern".into(),
            fingerprint: "pattern".into(),
            context_length: 4096,
            vocabulary: VOCABULARY,
            geometry: *layout.geometry(),
            layers: Arc::clone(layout.layers()),
        },
        commands,
        progress,
    };
    let layout = Arc::clone(layout);
    std::thread::spawn(move || host.serve(&engine, &layout, &arenas, received));
}

struct Running {
    entries: Entries,
    progress: Arc<Progress>,
    watch: Box<dyn StepWatch>,
    events: Sender<Event>,
    findings: Arc<Findings>,
    prefills: BTreeMap<SequenceId, Prefill>,
    decodes: BTreeMap<SequenceId, Decode>,
}

struct Prefill {
    tokens: Arc<[u32]>,
    pages: Arc<[PageIndex]>,
    done: usize,
}

struct Decode {
    tokens: Vec<u32>,
    pages: Arc<[PageIndex]>,
    ready: bool,
    left: u32,
}

impl Running {
    fn run(mut self, queue: &Receiver<Command>) {
        loop {
            let idle = self.prefills.is_empty() && !self.decodes.values().any(|d| d.ready);
            let wait = Duration::from_millis(if idle { 100 } else { 0 });
            match queue.recv_timeout(wait) {
                Ok(command) => {
                    self.obey(command);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.prefill_step();
            self.decode_step();
        }
    }

    fn say(&self, event: Event) {
        let _ = self.events.blocking_send(event);
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Prefill {
                sequence,
                tokens,
                pages,
                cached,
            } => {
                // What is said to be cached must be there.
                let wrong = self.entries.wrong((&tokens, &pages), cached as usize);
                self.findings.wrong.fetch_add(wrong, Ordering::Relaxed);
                let done = cached as usize;
                let prefill = Prefill {
                    tokens,
                    pages,
                    done,
                };
                self.prefills.insert(sequence, prefill);
            }
            Command::Admit {
                sequence,
                tokens,
                generated,
                pages,
                stop,
                ..
            } => {
                let decode = Decode {
                    tokens: tokens.to_vec(),
                    pages,
                    ready: false,
                    left: stop.max_tokens - generated,
                };
                self.decodes.insert(sequence, decode);
            }
            Command::MakeReady { sequence, context } => {
                if let Some(decode) = self.decodes.get_mut(&sequence) {
                    decode.ready = true;
                }
                self.check(sequence);
                if context && let Some(d) = self.decodes.get(&sequence) {
                    let before = &d.tokens[..d.tokens.len() - 1];
                    self.entries
                        .each_context((before, &d.pages), |memory, at, bytes| {
                            let mut found = [0; CONTEXT];
                            memory.read(at, &mut found);
                            let wrong = u64::from(found != bytes);
                            self.findings.wrong.fetch_add(wrong, Ordering::Relaxed);
                            self.findings.contexts.fetch_add(1, Ordering::Relaxed);
                        });
                }
            }
            Command::Cancel { sequence } => {
                let known = self.prefills.remove(&sequence).is_some()
                    | self.decodes.remove(&sequence).is_some();
                if known {
                    self.say(Event::Cancelled { sequence });
                }
            }
        }
    }

    /// Checks every entry that a ready sequence has.
    fn check(&self, sequence: SequenceId) {
        if let Some(d) = self.decodes.get(&sequence) {
            let wrong = self
                .entries
                .wrong((&d.tokens, &d.pages), d.tokens.len() - 1);
            self.findings.wrong.fetch_add(wrong, Ordering::Relaxed);
            self.findings.checked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One chunk of every prompt, layer by layer.
    fn prefill_step(&mut self) {
        if self.prefills.is_empty() {
            return;
        }
        let mut items = Vec::new();
        for (sequence, p) in &self.prefills {
            let end = (p.done + CHUNK).min(p.tokens.len() - 1);
            items.push(StepItem {
                sequence: *sequence,
                start: p.done as u32,
                end: end as u32,
                last: end == p.tokens.len() - 1,
            });
        }
        self.watch.step_planned(StepPlan {
            first_layer: self.progress.layers(),
            items: items.clone(),
        });
        for layer in 0..LAYERS {
            let until = Instant::now() + LAYER_TIME;
            for item in &items {
                let p = &self.prefills[&item.sequence];
                let range = item.start as usize..item.end as usize;
                self.entries.write(layer, (&p.tokens, &p.pages), range);
            }
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            self.progress.bump();
        }
        for item in items.iter().filter(|i| i.last) {
            let p = &self.prefills[&item.sequence];
            let tokens = &p.tokens[..p.tokens.len() - 1];
            self.entries
                .each_context((tokens, &p.pages), |memory, at, bytes| {
                    memory.write(at, &bytes);
                });
        }
        self.progress.bump();
        for item in items {
            if item.last {
                let sequence = item.sequence;
                self.prefills.remove(&sequence);
                self.say(Event::Prefilled { sequence });
            } else if let Some(p) = self.prefills.get_mut(&item.sequence) {
                p.done = item.end as usize;
            }
        }
    }

    /// One token of every ready sequence, which writes its last token's entries.
    fn decode_step(&mut self) {
        let mut ended = Vec::new();
        for (sequence, d) in self.decodes.iter_mut().filter(|(_, d)| d.ready) {
            let at = d.tokens.len() - 1;
            for layer in 0..LAYERS {
                self.entries.write(layer, (&d.tokens, &d.pages), at..at + 1);
            }
            let token = next_token(&d.tokens);
            d.tokens.push(token);
            d.left -= 1;
            let _ = self.events.blocking_send(Event::Token {
                sequence: *sequence,
                token,
                text: String::new(),
                logprobs: Vec::new(),
            });
            if d.left == 0 {
                ended.push(*sequence);
            }
        }
        for sequence in ended {
            // Nobody wrote there while it generated.
            self.check(sequence);
            self.decodes.remove(&sequence);
            self.say(Event::Finished {
                sequence,
                text: String::new(),
                reason: FinishReason::Length,
                stop_text: None,
            });
        }
    }
}
