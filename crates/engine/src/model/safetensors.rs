//! A model from a directory as Hugging Face lays it out: `config.json`, `model.safetensors`,
//! `tokenizer.json`.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value;

use super::error::LoadError;
use super::shape::LlamaShape;
use super::weights::{Part, RawTensor, TensorSource};

/// A directory whose weights have been read.
pub(crate) struct Directory {
    path: PathBuf,
    config: Config,
    bytes: Vec<u8>,
}

#[derive(Deserialize)]
struct Config {
    num_hidden_layers: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    num_nextn_predict_layers: Option<usize>,
    head_dim: Option<usize>,
    vocab_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f32,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
}

impl Directory {
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let config_path = path.join("config.json");
        let text =
            std::fs::read(&config_path).map_err(|e| LoadError::unreadable(&config_path, &e))?;
        let named: Value = serde_json::from_slice(&text)
            .map_err(|e| LoadError::malformed(&config_path, format!("config.json: {e}")))?;
        let architecture = named
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !super::SUPPORTED.contains(&architecture) {
            return Err(LoadError::Architecture {
                path: path.to_owned(),
                name: architecture.to_owned(),
            });
        }
        let config: Config = serde_json::from_value(named)
            .map_err(|e| LoadError::malformed(&config_path, format!("config.json: {e}")))?;
        let weights = path.join("model.safetensors");
        let bytes = std::fs::read(&weights).map_err(|e| LoadError::unreadable(&weights, &e))?;
        check_extents(&weights, &bytes)?;
        Ok(Self {
            path: path.to_owned(),
            config,
            bytes,
        })
    }

    /// Files that make the fingerprint.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        ["config.json", "model.safetensors"]
            .map(|file| self.path.join(file))
            .to_vec()
    }

    pub(crate) fn shape(&self) -> Result<LlamaShape, LoadError> {
        let config = &self.config;
        let refuse = |feature: &str| Err(LoadError::unsupported(&self.path, feature));
        let parameters = config.rope_parameters.as_ref();
        let scaling = |v: &Value| {
            let kind = v
                .get("rope_type")
                .or_else(|| v.get("type"))
                .and_then(Value::as_str);
            kind.is_some_and(|kind| kind != "default")
        };
        if config.rope_scaling.iter().chain(parameters).any(scaling) {
            return refuse("rope scaling");
        }
        if config.attention_bias == Some(true) || config.mlp_bias == Some(true) {
            return refuse("biases");
        }
        if config
            .hidden_act
            .as_deref()
            .is_some_and(|act| act != "silu")
        {
            return refuse("an activation other than silu");
        }
        let theta = parameters
            .and_then(|p| p.get("rope_theta"))
            .and_then(Value::as_f64);
        let heads = config.num_attention_heads;
        let shape = LlamaShape {
            layers: config.num_hidden_layers,
            drafts: config.num_nextn_predict_layers.unwrap_or(0),
            hidden: config.hidden_size,
            feed_forward: config.intermediate_size,
            heads,
            kv_heads: config.num_key_value_heads.unwrap_or(heads),
            head_dim: config
                .head_dim
                .unwrap_or_else(|| config.hidden_size.checked_div(heads).unwrap_or(0)),
            vocabulary: config.vocab_size,
            context: config.max_position_embeddings,
            rope_theta: config.rope_theta.or(theta).unwrap_or(10_000.0),
            epsilon: config.rms_norm_eps,
        };
        shape.check(&self.path)?;
        Ok(shape)
    }
}

/// The header tells each tensor's bytes: the file must hold them all.
fn check_extents(path: &Path, bytes: &[u8]) -> Result<(), LoadError> {
    let has = bytes.len() as u64;
    let cut = |what: &str, needs: u64| {
        Err(LoadError::CutShort {
            path: path.to_owned(),
            what: what.to_owned(),
            needs,
            has,
        })
    };
    let Some(length) = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)) else {
        return cut("its header", 8);
    };
    let body = length.saturating_add(8);
    if body > has {
        return cut("its header", body);
    }
    let header: Value = serde_json::from_slice(&bytes[8..body as usize])
        .map_err(|e| LoadError::malformed(path, format!("header: {e}")))?;
    let ends = header
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, info)| {
            Some((info.get("data_offsets")?.get(1)?.as_u64()?, name.as_str()))
        });
    match ends.max() {
        Some((end, name)) if body.saturating_add(end) > has => {
            cut(&format!("tensor {name}"), body.saturating_add(end))
        }
        _ => Ok(()),
    }
}

impl TensorSource for Directory {
    fn has(&self, part: Part) -> bool {
        let tensors = SafeTensors::deserialize(&self.bytes);
        tensors.is_ok_and(|tensors| tensors.tensor(&name_of(part)).is_ok())
    }

    fn tensor(&mut self, part: Part, rows: usize, columns: usize) -> Result<RawTensor, LoadError> {
        let name = name_of(part);
        let malformed = |what: String| LoadError::malformed(&self.path, what);
        let tensors =
            SafeTensors::deserialize(&self.bytes).map_err(|e| malformed(e.to_string()))?;
        let tensor = tensors
            .tensor(&name)
            .map_err(|_| malformed(format!("tensor {name} is missing")))?;
        let fits = match tensor.shape() {
            [n] => rows == 1 && *n == columns,
            dims => dims == [rows, columns],
        };
        if !fits {
            let what = format!(
                "tensor {name} is {:?}, not [{rows}, {columns}]",
                tensor.shape()
            );
            return Err(malformed(what));
        }
        let data = tensor.data();
        let pairs = || data.as_chunks::<2>().0.iter();
        let numbers: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => data
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect(),
            Dtype::F16 => pairs().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
            Dtype::BF16 => pairs().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
            other => {
                let feature = format!("numbers of type {other:?}");
                return Err(LoadError::unsupported(&self.path, feature));
            }
        };
        let config = &self.config;
        Ok(RawTensor::Numbers(match part {
            Part::Query(_) => interleave(&numbers, config.num_attention_heads, columns),
            Part::Key(_) => {
                let heads = config
                    .num_key_value_heads
                    .unwrap_or(config.num_attention_heads);
                interleave(&numbers, heads, columns)
            }
            _ => numbers,
        }))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// In each head, rows `i` and `i + half` become neighbours, as the rotation wants them.
fn interleave(numbers: &[f32], heads: usize, columns: usize) -> Vec<f32> {
    let per_head = numbers.len() / heads;
    let mut out = Vec::with_capacity(numbers.len());
    for head in numbers.chunks_exact(per_head) {
        let (low, high) = head.split_at(per_head / 2);
        for (a, b) in low.chunks_exact(columns).zip(high.chunks_exact(columns)) {
            out.extend_from_slice(a);
            out.extend_from_slice(b);
        }
    }
    out
}

fn name_of(part: Part) -> String {
    let layer = |i: usize, name: &str| format!("model.layers.{i}.{name}.weight");
    match part {
        Part::Embedding => "model.embed_tokens.weight".to_owned(),
        Part::Output => "lm_head.weight".to_owned(),
        Part::FinalNorm => "model.norm.weight".to_owned(),
        Part::AttentionNorm(i) => layer(i, "input_layernorm"),
        Part::Query(i) => layer(i, "self_attn.q_proj"),
        Part::Key(i) => layer(i, "self_attn.k_proj"),
        Part::Value(i) => layer(i, "self_attn.v_proj"),
        Part::AttentionOutput(i) => layer(i, "self_attn.o_proj"),
        Part::FeedForwardNorm(i) => layer(i, "post_attention_layernorm"),
        Part::Gate(i) => layer(i, "mlp.gate_proj"),
        Part::Up(i) => layer(i, "mlp.up_proj"),
        Part::Down(i) => layer(i, "mlp.down_proj"),
        Part::DraftTokenNorm(i) => layer(i, "enorm"),
        Part::DraftHiddenNorm(i) => layer(i, "hnorm"),
        Part::DraftProjection(i) => layer(i, "eh_proj"),
        Part::DraftNorm(i) => layer(i, "shared_head.norm"),
        Part::DraftEmbedding(i) => layer(i, "embed_tokens"),
        Part::DraftOutput(i) => layer(i, "shared_head.head"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_head_are_interleaved() {
        let rows: Vec<f32> = (0..8).map(|i| i as f32).collect();
        assert_eq!(
            interleave(&rows, 2, 1),
            [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]
        );
    }
}
