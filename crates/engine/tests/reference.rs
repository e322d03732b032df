//! The engine against candle's own `quantized_llama`, on the same file.
//!
//! Three forward passes see the same tokens before each position (teacher forcing, along the greedy
//! answer of the first):
//!
//! - *exact*: candle on the file's weights, dequantised to `f32` (and so without rounding inputs);
//! - *candle*: candle on the file as it is: `Q4_1` weights, inputs rounded to 8 bits a block;
//! - *engine*: the same weights, inputs rounded to 16 bits a block, keys and values in `f16`.
//!
//! They cannot be bit-equal. What must hold for the engine: its likeliest token is *exact*'s, or
//! *exact* itself has the two within `BOUND` nats of each other; the log probabilities of *exact*'s
//! 20 likeliest tokens are within `BOUND`; and on average it is no further from *exact* than *candle*
//! is. So greedy answers of the three may part where two tokens are nearly equal, and nowhere else.
//! Run with `--no-capture` to see the figures.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]
#![expect(clippy::print_stdout, reason = "it prints what it measures")]

mod rig;

use std::fs::File;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use rig::{GREEDY, Rig, real_model, stop_after};
use tandem_engine::{Sampling, StopConditions, TokenLogprob};

/// Largest difference of a log probability, in nats.
const BOUND: f32 = 0.1;

/// Likeliest tokens that are compared at each position.
const TOP: usize = 20;

const TEXTS: [&str; 4] = [
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox jumps over the lazy dog. Then the dog",
    "In 1969, three astronauts flew to the Moon. Their names were",
    "fn main() {\n    let numbers = vec![1, 2, 3];\n    for",
];

/// Tokens that *exact* adds to each text, greedily.
const ANSWER: usize = 24;

/// Writes the same model with all weights in `f32`.
fn dequantise(path: &Path) -> candle_core::Result<()> {
    let mut file = File::open(real_model())?;
    let content = Content::read(&mut file)?;
    let mut tensors = Vec::new();
    for name in content.tensor_infos.keys() {
        let numbers = content
            .tensor(&mut file, name, &Device::Cpu)?
            .dequantize(&Device::Cpu)?;
        tensors.push((name.as_str(), QTensor::quantize(&numbers, GgmlDType::F32)?));
    }
    let metadata: Vec<(&str, &Value)> = content
        .metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, t)| (*name, t)).collect();
    gguf_file::write(&mut File::create(path)?, &metadata, &tensors)
}

struct Candle(ModelWeights);

impl Candle {
    fn load(path: &Path) -> Self {
        let mut file = File::open(path).unwrap();
        let content = Content::read(&mut file).unwrap();
        Self(ModelWeights::from_gguf(content, &mut file, &Device::Cpu).unwrap())
    }

    /// Log probabilities of what follows `token` at `position` (0 begins a new sequence).
    fn next(&mut self, token: u32, position: usize) -> Vec<f32> {
        let input = Tensor::new(&[[token]], &Device::Cpu).unwrap();
        let logits = self.0.forward(&input, position).unwrap();
        let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
        let max = logits.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
        logits.iter().map(|x| x - max - sum.ln() as f32).collect()
    }
}

/// The engine's likeliest tokens after `tokens`, whose entries but the last are in the pages.
fn engine_next(rig: &mut Rig, tokens: &[u32]) -> Vec<TokenLogprob> {
    let sampling = Sampling {
        logprobs: Some(255),
        ..GREEDY
    };
    let stop = StopConditions {
        ignore_eos: true,
        ..stop_after(1)
    };
    let id = rig.start(tokens, 0, Rig::pages(0, 16), sampling, stop);
    rig.answers(&[id]).remove(0).logprobs.remove(0)
}

/// How far a forward pass is from *exact*.
#[derive(Default)]
struct Distance {
    positions: usize,
    equal: usize,
    largest: f32,
    sum: f32,
}

impl Distance {
    fn add(&mut self, equal: bool, differences: &[f32]) {
        self.positions += 1;
        self.equal += usize::from(equal);
        self.largest = differences.iter().copied().fold(self.largest, f32::max);
        self.sum += differences.iter().sum::<f32>() / differences.len() as f32;
    }

    fn mean(&self) -> f32 {
        self.sum / self.positions as f32
    }

    fn print(&self, name: &str) {
        println!(
            "{name}: likeliest token equal at {} of {} positions; log probabilities of the {TOP} \
             likeliest off by {:.3} on average, {:.3} at most",
            self.equal,
            self.positions,
            self.mean(),
            self.largest
        );
    }
}

#[test]
fn every_position_agrees_within_the_numerics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f32.gguf");
    dequantise(&path).unwrap();
    let mut exact = Candle::load(&path);
    let mut candle = Candle::load(&real_model());
    let mut rig = Rig::new(&real_model(), 16, |_| ());
    let (mut of_engine, mut of_candle) = (Distance::default(), Distance::default());
    for text in TEXTS {
        let mut tokens = rig.text.encode_rendered(text);
        let prompt = tokens.len();
        for position in 0..prompt + ANSWER {
            let want = exact.next(tokens[position], position);
            let theirs = candle.next(tokens[position], position);
            let ours = engine_next(&mut rig, &tokens[..=position]);
            let mut order: Vec<usize> = (0..want.len()).collect();
            order.sort_by(|a, b| want[*b].total_cmp(&want[*a]));
            let (best, top) = (order[0], &order[..TOP]);
            let gap = want[best] - want[ours[0].token as usize];
            assert!(
                gap <= BOUND,
                "{text:?} at {position}: another token, {gap} less likely"
            );
            let ours_of = |token: usize| {
                let found = ours[1..].iter().find(|l| l.token as usize == token);
                found.map_or(f32::NEG_INFINITY, |l| l.logprob)
            };
            let from = |get: &dyn Fn(usize) -> f32| -> Vec<f32> {
                top.iter()
                    .map(|token| (get(*token) - want[*token]).abs())
                    .collect()
            };
            of_engine.add(ours[0].token as usize == best, &from(&ours_of));
            let likeliest = theirs.iter().copied().fold(f32::MIN, f32::max);
            of_candle.add(theirs[best] >= likeliest, &from(&|token| theirs[token]));
            if position + 1 == tokens.len() {
                tokens.push(best as u32);
            }
        }
        let stop = StopConditions {
            ignore_eos: true,
            ..stop_after(ANSWER as u32)
        };
        let answer = rig.generate(&tokens[..prompt], 0, GREEDY, stop);
        let same = answer
            .tokens
            .iter()
            .zip(&tokens[prompt..])
            .take_while(|(a, b)| a == b);
        println!("{text:?}: {} of {ANSWER} greedy tokens equal", same.count());
    }
    of_engine.print("engine");
    of_candle.print("candle");
    assert!(of_engine.largest <= BOUND);
    assert!(of_engine.mean() <= of_candle.mean());
}
