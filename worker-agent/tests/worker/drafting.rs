//! Speculative decoding over real transfers: a draft head's guesses are those of one worker alone, and
//! the tokens those of a model that has no such head.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tandem_engine::testing::{TinyDraft, TinyLlama};
use tandem_engine::{Arenas, EmbeddedEngine, EmbeddedModel, EngineOptions, Event, ModelOptions};
use tandem_engine_link::Host;
use tandem_text::TextModel;

use crate::fleet::{Fleet, Worker, generate};

const ANSWER: u32 = 24;

fn model(layers: usize, draft: Option<TinyDraft>) -> TinyLlama {
    TinyLlama {
        seed: 3,
        layers,
        heads: 8,
        kv_heads: 4,
        draft,
        ..TinyLlama::default()
    }
}

fn prompt(seed: u32, tokens: u32) -> Vec<u32> {
    (0..tokens)
        .map(|i| (i * i * 31 + seed * 17 + i) % 256)
        .collect()
}

/// How an engine is set up.
#[derive(Clone, Copy)]
struct Way {
    role: &'static str,
    ranks: u16,
    page_tokens: u16,
    chunk_tokens: u32,
}

/// What was proposed, and how much of it was right, step by step.
type Verified = Arc<Mutex<Vec<(Vec<u32>, u32)>>>;

/// A worker whose engine's guesses are known.
struct Watched {
    worker: Worker,
    verified: Verified,
}

impl Watched {
    async fn start(fleet: &Fleet, way: Way) -> Self {
        let verified = Verified::default();
        let name = format!("{}-{}-{}", way.role, way.ranks, way.page_tokens);
        let socket: PathBuf = fleet.folder().join(format!("{name}.sock"));
        host(&fleet.folder().join("tiny.gguf"), &socket, way, &verified);
        let lines = format!("engine_socket = {:?}", socket.display().to_string());
        Self {
            worker: fleet.start(way.role, &lines, "").await,
            verified,
        }
    }

    fn take(&self) -> Vec<(Vec<u32>, u32)> {
        std::mem::take(&mut *self.verified.lock().unwrap())
    }
}

/// Serves the embedded engine at a socket for as long as the process lives, and notes what it says of
/// its draft head's guesses.
fn host(path: &Path, socket: &Path, way: Way, verified: &Verified) {
    let options = ModelOptions {
        page_tokens: way.page_tokens,
        ..ModelOptions::default()
    };
    let model = EmbeddedModel::load(path, options).unwrap();
    let pages = 2048 / u32::from(way.page_tokens);
    let layout = Arc::new(model.layout(pages, way.ranks).unwrap());
    let arenas = Arenas::create("drafting", Arc::clone(&layout)).unwrap();
    let memory: Vec<_> = (0..layout.shards().len())
        .map(|shard| Arc::clone(arenas.memory(shard)))
        .collect();
    let host = Host::bind(socket).unwrap();
    let (events, mut said) = tokio::sync::mpsc::channel(4096);
    let (passing, received) = tokio::sync::mpsc::channel(4096);
    let options = EngineOptions {
        chunk_tokens: way.chunk_tokens,
        threads: 1,
        speculative_tokens: 3,
        ..EngineOptions::new(arenas, Arc::new(TextModel::load(path).unwrap()))
    };
    let engine = EmbeddedEngine::start(model, options, host.watch(), events).unwrap();
    let verified = Arc::clone(verified);
    std::thread::spawn(move || {
        while let Some(event) = said.blocking_recv() {
            if let Event::Verified {
                proposed, accepted, ..
            } = &event
            {
                verified.lock().unwrap().push((proposed.clone(), *accepted));
            }
            if passing.blocking_send(event).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || host.serve(&engine, &layout, &memory, received));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_and_tokens_are_those_of_one_worker() {
    for (layers, draft) in [(1, TinyDraft::Close), (2, TinyDraft::Random)] {
        let without = Fleet::new(model(layers, None));
        let plain = without.start("both", "", "").await;
        let fleet = Fleet::new(model(layers, Some(draft)));
        let way = |role, ranks, page_tokens, chunk_tokens| Way {
            role,
            ranks,
            page_tokens,
            chunk_tokens,
        };
        let alone = Watched::start(&fleet, way("both", 1, 16, 512)).await;
        let prefills = [
            Watched::start(&fleet, way("prefill", 4, 16, 7)).await,
            Watched::start(&fleet, way("prefill", 1, 32, 64)).await,
        ];
        let decodes = [
            Watched::start(&fleet, way("decode", 1, 64, 64)).await,
            Watched::start(&fleet, way("decode", 8, 16, 64)).await,
        ];
        let mut request = 0;
        // The third begins like the second, and finds its pages; then the second is all there.
        let prompts = [
            prompt(1, 1),
            prompt(2, 129),
            [prompt(2, 110), prompt(3, 40)].concat(),
        ];
        for tokens in [&prompts[0], &prompts[1], &prompts[2], &prompts[1]] {
            for prefill in &prefills {
                for decode in &decodes {
                    request += 1;
                    let want = plain.tokens(generate(request, tokens, ANSWER, None)).await;
                    let one = alone
                        .worker
                        .tokens(generate(request, tokens, ANSWER, None))
                        .await;
                    assert_eq!(one, want);
                    let ask = generate(request, tokens, ANSWER, Some(prefill.worker.peer()));
                    assert_eq!(decode.worker.tokens(ask).await, want, "{draft:?}");
                    let guesses = alone.take();
                    assert!(!guesses.is_empty());
                    assert_eq!(decode.take(), guesses, "{draft:?}, request {request}");
                    assert!(prefill.take().is_empty(), "prefill never guesses");
                }
            }
        }
        let figures = decodes[0].worker.load().await.figures.unwrap();
        assert!(figures.proposed_tokens > 0);
        if draft == TinyDraft::Close {
            assert!(figures.accepted_tokens > 20, "{figures:?}");
        }
        for watched in decodes.into_iter().chain(prefills).chain([alone]) {
            watched.worker.at_rest().await;
            watched.worker.stop().await;
        }
        plain.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_model_has_no_such_head_is_refused_as_another_model() {
    let fleet = Fleet::new(model(2, Some(TinyDraft::Random)));
    let prefill = fleet.start("prefill", "", "").await;
    let decode = fleet.start("decode", "speculative_tokens = 0", "").await;
    let other = model(2, None);
    other.write_gguf(&fleet.folder().join("tiny.gguf")).unwrap();
    let plain = fleet.start("decode", "", "").await;
    let ask = |n| generate(n, &prompt(1, 40), 4, Some(prefill.peer()));
    assert!(
        decode.tokens(ask(1)).await.is_ok(),
        "whoever does not guess may pair"
    );
    let refused = plain.tokens(ask(2)).await.unwrap_err();
    assert!(
        refused.contains("layers is 2 here and 3 there"),
        "{refused}"
    );
    for worker in [prefill, decode, plain] {
        worker.stop().await;
    }
}
