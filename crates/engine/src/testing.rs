//! A tiny Llama with random weights, as a file: for tests that need a model but not its wits.

use std::collections::HashMap;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result, Tensor};

/// Shape and seed of a tiny model. Its vocabulary is the 256 bytes, a few merged ones, and
/// `<|im_start|>` and `<|im_end|>`, which ends an answer.
#[derive(Clone, Copy, Debug)]
pub struct TinyLlama {
    /// The same seed makes the same weights.
    pub seed: u64,
    /// Transformer layers.
    pub layers: usize,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// Query heads, even, a multiple of `kv_heads`.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Its draft head.
    pub draft: Option<TinyDraft>,
}

/// How a draft head guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TinyDraft {
    /// At random: hardly ever right.
    Random,
    /// With the model's own first layer: of a model of one layer, right most of the time.
    Close,
}

impl Default for TinyLlama {
    fn default() -> Self {
        Self {
            seed: 1,
            layers: 3,
            context: 1024,
            heads: 4,
            kv_heads: 2,
            draft: None,
        }
    }
}

const HIDDEN: usize = 64;
const FORWARD: usize = 96;
const HEAD_DIM: usize = 16;
const THETA: f32 = 10_000.0;
const EPSILON: f32 = 1e-5;
const MERGES: &[&str] = &["t h", "th e", "i n", "a n", "Ġ the"];
const SPECIAL: &[&str] = &["<|im_start|>", "<|im_end|>"];
const CHAT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n\
    {{ message['content'] }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

impl TinyLlama {
    /// Tokens in the vocabulary.
    pub const VOCABULARY: usize = 256 + MERGES.len() + SPECIAL.len();

    /// The token that ends an answer.
    pub const END: u32 = Self::VOCABULARY as u32 - 1;

    /// Writes a GGUF file.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write_gguf(&self, path: &Path) -> Result<()> {
        let metadata = self.metadata();
        let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (*k, v)).collect();
        let tensors = self.tensors()?;
        let quantised: Vec<(&str, QTensor)> = tensors
            .iter()
            .map(|t| {
                Ok((
                    t.gguf.as_str(),
                    QTensor::quantize(&t.numbers, GgmlDType::F32)?,
                ))
            })
            .collect::<Result<_>>()?;
        let tensors: Vec<(&str, &QTensor)> = quantised.iter().map(|(n, t)| (*n, t)).collect();
        let mut file = std::fs::File::create(path)?;
        gguf_file::write(&mut file, &metadata, &tensors)
    }

    /// Writes the same model as `config.json` and `model.safetensors` (and no tokenizer).
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn write_safetensors(&self, directory: &Path) -> Result<()> {
        let config = serde_json::json!({
            "model_type": "llama",
            "num_hidden_layers": self.layers,
            "num_nextn_predict_layers": usize::from(self.draft.is_some()),
            "hidden_size": HIDDEN,
            "intermediate_size": FORWARD,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": HEAD_DIM,
            "vocab_size": Self::VOCABULARY,
            "max_position_embeddings": self.context,
            "rms_norm_eps": EPSILON,
            "rope_theta": THETA,
            "rope_scaling": null,
            "tie_word_embeddings": true,
        });
        std::fs::write(directory.join("config.json"), config.to_string())?;
        let mut tensors = HashMap::new();
        for tensor in self.tensors()? {
            let numbers = match tensor.heads {
                Some(heads) => {
                    let shape = (heads, HEAD_DIM / 2, 2, HIDDEN);
                    let halves = tensor.numbers.reshape(shape)?.transpose(1, 2)?;
                    halves.contiguous()?.reshape((heads * HEAD_DIM, HIDDEN))?
                }
                None => tensor.numbers,
            };
            tensors.insert(tensor.hub, numbers);
        }
        candle_core::safetensors::save(&tensors, directory.join("model.safetensors"))
    }

    fn metadata(&self) -> Vec<(&'static str, Value)> {
        let number = |n: usize| Value::U32(n as u32);
        let text = |t: &str| Value::String(t.to_owned());
        let texts = |t: Vec<String>| Value::Array(t.into_iter().map(Value::String).collect());
        let control = |index: usize| if index < 256 + MERGES.len() { 1 } else { 3 };
        let types = (0..Self::VOCABULARY)
            .map(|index| Value::I32(control(index)))
            .collect();
        let merges = MERGES.iter().map(|m| (*m).to_owned()).collect();
        vec![
            ("general.architecture", text("llama")),
            ("general.name", text("tiny-llama")),
            (
                "llama.block_count",
                number(self.layers + usize::from(self.draft.is_some())),
            ),
            (
                "llama.nextn_predict_layers",
                number(usize::from(self.draft.is_some())),
            ),
            ("llama.context_length", number(self.context)),
            ("llama.embedding_length", number(HIDDEN)),
            ("llama.feed_forward_length", number(FORWARD)),
            ("llama.attention.head_count", number(self.heads)),
            ("llama.attention.head_count_kv", number(self.kv_heads)),
            (
                "llama.attention.layer_norm_rms_epsilon",
                Value::F32(EPSILON),
            ),
            ("llama.attention.key_length", number(HEAD_DIM)),
            ("llama.attention.value_length", number(HEAD_DIM)),
            ("llama.rope.dimension_count", number(HEAD_DIM)),
            ("llama.rope.freq_base", Value::F32(THETA)),
            ("llama.vocab_size", number(Self::VOCABULARY)),
            ("tokenizer.ggml.model", text("gpt2")),
            ("tokenizer.ggml.pre", text("smollm")),
            ("tokenizer.ggml.tokens", texts(vocabulary())),
            ("tokenizer.ggml.token_type", Value::Array(types)),
            ("tokenizer.ggml.merges", texts(merges)),
            ("tokenizer.ggml.bos_token_id", number(Self::VOCABULARY - 2)),
            ("tokenizer.ggml.eos_token_id", number(Self::VOCABULARY - 1)),
            ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
            ("tokenizer.chat_template", text(CHAT_TEMPLATE)),
        ]
    }

    fn tensors(&self) -> Result<Vec<TinyTensor>> {
        let mut random = Random(self.seed);
        let query = self.heads * HEAD_DIM;
        let kv = self.kv_heads * HEAD_DIM;
        let mut all = vec![
            random.matrix("token_embd", "model.embed_tokens", Self::VOCABULARY, HIDDEN)?,
            random.norm("output_norm", "model.norm")?,
        ];
        let draft = self.draft.into_iter().map(|kind| (self.layers, Some(kind)));
        for (i, draft) in (0..self.layers).map(|i| (i, None)).chain(draft) {
            let (gguf, hub) = (format!("blk.{i}."), format!("model.layers.{i}."));
            let g = |name: &str| format!("{gguf}{name}");
            let h = |name: &str| format!("{hub}{name}");
            if let Some(kind) = draft {
                all.extend(random.head(kind, &g, &h)?);
            }
            if draft == Some(TinyDraft::Close) {
                let first = all.iter().filter(|t| t.gguf.starts_with("blk.0."));
                let copies: Vec<TinyTensor> = first.map(|t| t.renamed(i)).collect();
                all.extend(copies);
                continue;
            }
            let mut q = random.matrix(&g("attn_q"), &h("self_attn.q_proj"), query, HIDDEN)?;
            q.heads = Some(self.heads);
            let mut k = random.matrix(&g("attn_k"), &h("self_attn.k_proj"), kv, HIDDEN)?;
            k.heads = Some(self.kv_heads);
            all.extend([
                q,
                k,
                random.norm(&g("attn_norm"), &h("input_layernorm"))?,
                random.norm(&g("ffn_norm"), &h("post_attention_layernorm"))?,
                random.matrix(&g("attn_v"), &h("self_attn.v_proj"), kv, HIDDEN)?,
                random.matrix(&g("attn_output"), &h("self_attn.o_proj"), HIDDEN, query)?,
                random.matrix(&g("ffn_gate"), &h("mlp.gate_proj"), FORWARD, HIDDEN)?,
                random.matrix(&g("ffn_up"), &h("mlp.up_proj"), FORWARD, HIDDEN)?,
                random.matrix(&g("ffn_down"), &h("mlp.down_proj"), HIDDEN, FORWARD)?,
            ]);
        }
        if self.draft == Some(TinyDraft::Close) {
            // The output norm serves both.
            let own = all.iter().find(|t| t.gguf.starts_with("output_norm"));
            let numbers = own.map(|t| t.numbers.clone());
            let head = all.iter_mut().find(|t| t.gguf.contains("shared_head_norm"));
            if let (Some(head), Some(numbers)) = (head, numbers) {
                head.numbers = numbers;
            }
        }
        Ok(all)
    }
}

struct TinyTensor {
    gguf: String,
    hub: String,
    numbers: Tensor,
    /// Heads whose rows the two formats order differently.
    heads: Option<usize>,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// Uniform in [-1, 1).
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    fn matrix(&mut self, gguf: &str, hub: &str, rows: usize, cols: usize) -> Result<TinyTensor> {
        // Wide enough that attention looks somewhere and greedy answers do not repeat at once.
        let scale = 3.0 / (cols as f32).sqrt();
        let numbers: Vec<f32> = (0..rows * cols).map(|_| self.next() * scale).collect();
        let numbers = Tensor::from_vec(numbers, (rows, cols), &Device::Cpu)?;
        Ok(TinyTensor::new(gguf, hub, numbers))
    }

    /// What a draft head has beside its layer.
    fn head(
        &mut self,
        kind: TinyDraft,
        g: &dyn Fn(&str) -> String,
        h: &dyn Fn(&str) -> String,
    ) -> Result<[TinyTensor; 4]> {
        let mut head = [
            self.norm(&g("nextn.enorm"), &h("enorm"))?,
            self.norm(&g("nextn.hnorm"), &h("hnorm"))?,
            self.matrix(&g("nextn.eh_proj"), &h("eh_proj"), HIDDEN, 2 * HIDDEN)?,
            self.norm(&g("nextn.shared_head_norm"), &h("shared_head.norm"))?,
        ];
        if kind == TinyDraft::Close {
            // The token's embedding, about as large as the model itself has it, and nothing else.
            let size = 3.0 / (3.0 * HIDDEN as f32).sqrt();
            head[0].numbers = Tensor::full(size, HIDDEN, &Device::Cpu)?;
            let at = |i: usize| f32::from(u8::from(i / (2 * HIDDEN) == i % (2 * HIDDEN)));
            let numbers: Vec<f32> = (0..2 * HIDDEN * HIDDEN).map(at).collect();
            head[2].numbers = Tensor::from_vec(numbers, (HIDDEN, 2 * HIDDEN), &Device::Cpu)?;
        }
        Ok(head)
    }

    fn norm(&mut self, gguf: &str, hub: &str) -> Result<TinyTensor> {
        let numbers: Vec<f32> = (0..HIDDEN).map(|_| 1.0 + self.next() / 4.0).collect();
        Ok(TinyTensor::new(
            gguf,
            hub,
            Tensor::from_vec(numbers, HIDDEN, &Device::Cpu)?,
        ))
    }
}

impl TinyTensor {
    fn new(gguf: &str, hub: &str, numbers: Tensor) -> Self {
        let named = |name: &str| format!("{name}.weight");
        Self {
            gguf: named(gguf),
            hub: named(hub),
            numbers,
            heads: None,
        }
    }

    /// A tensor of layer 0 as one of layer `i`.
    fn renamed(&self, i: usize) -> Self {
        let layer = |name: &str, zero: &str, other: String| name.replacen(zero, &other, 1);
        Self {
            gguf: layer(&self.gguf, "blk.0.", format!("blk.{i}.")),
            hub: layer(&self.hub, "layers.0.", format!("layers.{i}.")),
            numbers: self.numbers.clone(),
            heads: self.heads,
        }
    }
}

/// Bytes as GPT-2 writes them, then merged ones, then special tokens.
fn vocabulary() -> Vec<String> {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256u32..;
    let byte = |b: u8| {
        if printable(b) {
            Some(u32::from(b))
        } else {
            others.next()
        }
    };
    let bytes: Vec<u32> = (0..=255).filter_map(byte).collect();
    let bytes = bytes
        .into_iter()
        .filter_map(char::from_u32)
        .map(String::from);
    let merged = MERGES.iter().map(|m| m.replace(' ', ""));
    bytes
        .chain(merged)
        .chain(SPECIAL.iter().map(|s| (*s).to_owned()))
        .collect()
}
