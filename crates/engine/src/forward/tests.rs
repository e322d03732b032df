//! The same bits, however tokens are cut into steps.

use tandem_core::arena::ArenaLayout;
use tandem_core::geometry::KvDtype;
use tandem_core::layout::WorkerLayout;
use tandem_memory::HostMemory;

use super::*;
use crate::testing::TinyLlama;
use crate::{EmbeddedModel, ModelOptions};

const PROMPT: usize = 300;

fn model(page_tokens: u16, kv_dtype: KvDtype) -> EmbeddedModel {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TinyLlama::default().write_gguf(&path).unwrap();
    let options = ModelOptions {
        page_tokens,
        kv_dtype,
        ..ModelOptions::default()
    };
    EmbeddedModel::load(&path, options).unwrap()
}

fn prompt(seed: u32, tokens: usize) -> Vec<u32> {
    (0..tokens as u32)
        .map(|i| (i * i * 31 + seed * 17 + i) % 256)
        .collect()
}

/// What a way of computing a sequence left behind.
#[derive(PartialEq)]
struct Outcome {
    /// KV entries of each page, in the sequence's order, all layers.
    kv: Vec<u8>,
    logits: Vec<u32>,
}

/// How to compute a sequence.
#[derive(Clone, Copy)]
struct Way {
    chunk: usize,
    threads: usize,
    /// Sequences that share each step.
    others: usize,
    /// Scatters the pages.
    stride: u32,
}

const PLAIN: Way = Way {
    chunk: 512,
    threads: 1,
    others: 0,
    stride: 1,
};

/// Runs all tokens but the last in chunks, then the last one alone, wanting its logits.
fn compute(model: &EmbeddedModel, tokens: &[u32], way: Way) -> Outcome {
    let geometry = model.geometry();
    let per_sequence = geometry.pages_for(tokens.len()) as u32;
    let count = per_sequence * (way.others as u32 + 1);
    let pages = count.next_multiple_of(7) + 1;
    let layout = WorkerLayout::tensor_parallel(geometry, pages, 1).unwrap();
    let arenas = Arenas::create("test", layout.into()).unwrap();
    let layout = arenas.layout().arena(0);
    let memory = arenas.memory(0);
    // Garbage in pages must not matter: not-a-number shows wherever it does.
    memory.write(0, &vec![0xff; layout.bytes()]);
    let page = |i: u32| PageIndex(i * way.stride % layout.pages());
    let pages: Vec<PageIndex> = (0..per_sequence).map(page).collect();
    let prompts: Vec<Vec<u32>> = (0..way.others)
        .map(|i| prompt(i as u32 + 9, tokens.len()))
        .collect();
    let other_pages: Vec<Vec<PageIndex>> = (1..=way.others as u32)
        .map(|i| {
            (i * per_sequence..(i + 1) * per_sequence)
                .map(page)
                .collect()
        })
        .collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(way.threads)
        .build()
        .unwrap();
    let mut forward = Forward::default();
    let end = tokens.len() - 1;
    let mut steps: Vec<(usize, usize)> = (0..end)
        .step_by(way.chunk)
        .map(|s| (s, (s + way.chunk).min(end)))
        .collect();
    steps.push((end, end + 1));
    for (first, stop) in steps {
        let wanted = first == end;
        let mut inputs: Vec<SpanInput<'_>> = Vec::new();
        for (tokens, pages) in prompts.iter().zip(&other_pages) {
            // The others' spans have other lengths.
            let tokens = &tokens[first..stop.min(first + 5)];
            inputs.push(SpanInput {
                pages,
                first,
                tokens,
                stored: 0,
                logits: 1,
            });
        }
        let tokens = &tokens[first..stop];
        inputs.push(SpanInput {
            pages: &pages,
            first,
            tokens,
            stored: 0,
            logits: usize::from(wanted),
        });
        let mut layers = 0;
        pool.install(|| forward.run(&model.inner, &arenas, &inputs, || layers += 1));
        assert_eq!(layers, geometry.layers);
    }
    let logits = forward
        .logits(way.others, &model.inner)
        .iter()
        .map(|x| x.to_bits())
        .collect();
    Outcome {
        kv: read(memory, &layout, &pages),
        logits,
    }
}

fn read(memory: &HostMemory, layout: &ArenaLayout, pages: &[PageIndex]) -> Vec<u8> {
    let size = layout.geometry().piece_bytes();
    let mut bytes = Vec::new();
    for layer in 0..layout.geometry().layers {
        for page in pages {
            let from = bytes.len();
            bytes.resize(from + size, 0);
            memory.read(layout.offset(layer, 0, *page), &mut bytes[from..]);
        }
    }
    bytes
}

#[test]
fn chunks_batches_pages_and_threads_change_no_bit() {
    for dtype in [KvDtype::F16, KvDtype::Bf16] {
        let model = model(16, dtype);
        let tokens = prompt(1, PROMPT);
        let want = compute(&model, &tokens, PLAIN);
        assert!(
            want.logits
                .iter()
                .all(|bits| f32::from_bits(*bits).is_finite())
        );
        for chunk in [1, 7, 16, 64, 512] {
            for (threads, others, stride) in [(1, 0, 1), (2, 0, 3), (3, 2, 5)] {
                let way = Way {
                    chunk,
                    threads,
                    others,
                    stride,
                };
                let got = compute(&model, &tokens, way);
                assert!(
                    got == want,
                    "{dtype}, chunk {chunk}, {others} others, {threads} threads"
                );
            }
        }
    }
}

#[test]
fn page_sizes_change_no_logit() {
    let tokens = prompt(2, PROMPT);
    let want = compute(&model(16, KvDtype::F16), &tokens, PLAIN);
    for page_tokens in [1, 7, 32, 128] {
        let got = compute(&model(page_tokens, KvDtype::F16), &tokens, PLAIN);
        assert!(got.logits == want.logits, "pages of {page_tokens} tokens");
    }
}

#[test]
fn a_prompt_of_any_length_gives_the_logits_of_its_tokens_one_by_one() {
    let model = model(16, KvDtype::F16);
    for length in [1, 2, 15, 16, 17, 63, 64, 65, 129] {
        let tokens = prompt(3, length);
        let one_by_one = compute(&model, &tokens, Way { chunk: 1, ..PLAIN });
        assert!(
            compute(&model, &tokens, PLAIN) == one_by_one,
            "{length} tokens"
        );
    }
}

#[test]
fn safetensors_and_gguf_of_one_model_agree_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    TinyLlama::default()
        .write_safetensors(folder.path())
        .unwrap();
    let other = EmbeddedModel::load(folder.path(), ModelOptions::default()).unwrap();
    let tokens = prompt(4, 40);
    let want = compute(&model(16, KvDtype::F16), &tokens, PLAIN);
    assert!(compute(&other, &tokens, PLAIN) == want);
}
