//! A model from a GGUF file.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};

use super::error::{LoadError, SUPPORTED};
use super::shape::LlamaShape;
use super::weights::{BlockKind, Part, RawTensor, TensorSource};

/// An open GGUF file whose tensors all lie inside it.
pub(crate) struct Gguf {
    path: PathBuf,
    file: BufReader<File>,
    content: Content,
}

impl Gguf {
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let unreadable = |e: &std::io::Error| LoadError::unreadable(path, e);
        let mut file = BufReader::new(File::open(path).map_err(|e| unreadable(&e))?);
        let size = file.get_ref().metadata().map_err(|e| unreadable(&e))?.len();
        let mut magic = [0; 4];
        let read = file.read_exact(&mut magic);
        if read.is_err() || magic != *b"GGUF" {
            return Err(LoadError::NotGguf {
                path: path.to_owned(),
            });
        }
        file.rewind().map_err(|e| unreadable(&e))?;
        let content = Content::read(&mut file).map_err(|e| header_error(path, size, &e))?;
        let gguf = Self {
            path: path.to_owned(),
            file,
            content,
        };
        gguf.check_extents(size)?;
        Ok(gguf)
    }

    fn check_extents(&self, size: u64) -> Result<(), LoadError> {
        let mut last = (self.content.tensor_data_offset, "the header");
        for (name, info) in &self.content.tensor_infos {
            let numbers = info
                .shape
                .dims()
                .iter()
                .fold(1u64, |n, d| n.saturating_mul(*d as u64));
            let blocks = numbers.div_ceil(info.ggml_dtype.block_size() as u64);
            let bytes = blocks.saturating_mul(info.ggml_dtype.type_size() as u64);
            let start = self.content.tensor_data_offset.saturating_add(info.offset);
            last = last.max((start.saturating_add(bytes), name));
        }
        let (needs, name) = last;
        if needs <= size {
            return Ok(());
        }
        Err(LoadError::CutShort {
            path: self.path.clone(),
            what: format!("tensor {name}"),
            needs,
            has: size,
        })
    }

    /// The model's name, where the file tells it.
    pub(crate) fn name(&self) -> Option<String> {
        match self.content.metadata.get("general.name") {
            Some(Value::String(name)) if !name.is_empty() => Some(name.clone()),
            _ => None,
        }
    }

    /// Hyperparameters; refuses what the engine does not compute.
    pub(crate) fn shape(&self) -> Result<LlamaShape, LoadError> {
        let architecture = match self.content.metadata.get("general.architecture") {
            Some(Value::String(name)) => name.clone(),
            _ => return Err(LoadError::malformed(&self.path, "it names no architecture")),
        };
        if !SUPPORTED.contains(&architecture.as_str()) {
            return Err(LoadError::Architecture {
                path: self.path.clone(),
                name: architecture,
            });
        }
        self.refuse_unsupported()?;
        let hidden = self.required("llama.embedding_length")?;
        let heads = self.required("llama.attention.head_count")?;
        let head_dim = self
            .number("llama.attention.key_length")
            .unwrap_or_else(|| hidden.checked_div(heads).unwrap_or(0));
        if let Some(turned) = self
            .number("llama.rope.dimension_count")
            .filter(|d| *d != head_dim)
        {
            let feature = format!("rotation of {turned} of {head_dim} numbers");
            return Err(LoadError::unsupported(&self.path, feature));
        }
        let embedding = self.content.tensor_infos.get(&name_of(Part::Embedding));
        let vocabulary = embedding.and_then(|info| info.shape.dims().first().copied());
        // Blocks of draft heads are counted among the others, and come last.
        let drafts = self.number("llama.nextn_predict_layers").unwrap_or(0);
        let blocks = self.required("llama.block_count")?;
        let shape = LlamaShape {
            layers: blocks.saturating_sub(drafts),
            drafts,
            hidden,
            feed_forward: self.required("llama.feed_forward_length")?,
            heads,
            kv_heads: self
                .number("llama.attention.head_count_kv")
                .unwrap_or(heads),
            head_dim,
            vocabulary: vocabulary.unwrap_or(0),
            context: self.required("llama.context_length")?,
            rope_theta: self.real("llama.rope.freq_base").unwrap_or(10_000.0),
            epsilon: self
                .real("llama.attention.layer_norm_rms_epsilon")
                .unwrap_or(1e-5) as f32,
        };
        shape.check(&self.path)?;
        Ok(shape)
    }

    fn refuse_unsupported(&self) -> Result<(), LoadError> {
        let refuse = |feature: String| Err(LoadError::unsupported(&self.path, feature));
        if let Some(Value::String(kind)) = self.content.metadata.get("llama.rope.scaling.type")
            && kind != "none"
        {
            return refuse(format!("rope scaling {kind:?}"));
        }
        if self
            .number("llama.expert_count")
            .is_some_and(|experts| experts > 0)
        {
            return refuse("a mixture of experts".to_owned());
        }
        let odd = |name: &&String| name.ends_with(".bias") || name.starts_with("rope_freqs");
        match self.content.tensor_infos.keys().find(odd) {
            Some(name) => refuse(format!("tensor {name}")),
            None => Ok(()),
        }
    }

    fn required(&self, key: &str) -> Result<usize, LoadError> {
        self.number(key)
            .ok_or_else(|| LoadError::malformed(&self.path, format!("metadata {key} is missing")))
    }

    fn number(&self, key: &str) -> Option<usize> {
        self.content
            .metadata
            .get(key)?
            .to_u64()
            .ok()
            .map(|n| n as usize)
    }

    fn real(&self, key: &str) -> Option<f64> {
        match self.content.metadata.get(key)? {
            Value::F32(x) => Some(f64::from(*x)),
            Value::F64(x) => Some(*x),
            _ => None,
        }
    }
}

impl TensorSource for Gguf {
    fn has(&self, part: Part) -> bool {
        self.content.tensor_infos.contains_key(&name_of(part))
    }

    fn tensor(&mut self, part: Part, rows: usize, columns: usize) -> Result<RawTensor, LoadError> {
        let name = name_of(part);
        let malformed = |what: &dyn ToString| LoadError::malformed(&self.path, what.to_string());
        let Some(info) = self.content.tensor_infos.get(&name) else {
            return Err(malformed(&format!("tensor {name} is missing")));
        };
        let dims = info.shape.dims();
        let fits = match dims {
            [n] => rows == 1 && *n == columns,
            [r, c] => (*r, *c) == (rows, columns),
            _ => false,
        };
        if !fits {
            let what = format!("tensor {name} is {dims:?}, not [{rows}, {columns}]");
            return Err(malformed(&what));
        }
        let tensor = info
            .read(
                &mut self.file,
                self.content.tensor_data_offset,
                &Device::Cpu,
            )
            .map_err(|e| malformed(&e))?;
        let kind = match tensor.dtype() {
            GgmlDType::Q8_0 => Some(BlockKind::Q8_0),
            GgmlDType::Q4_0 => Some(BlockKind::Q4_0),
            GgmlDType::Q4_1 => Some(BlockKind::Q4_1),
            _ => None,
        };
        if let Some(kind) = kind {
            let bytes = tensor.data().map_err(|e| malformed(&e))?.into_owned();
            return Ok(RawTensor::Blocks(kind, bytes));
        }
        let numbers = tensor
            .dequantize(&Device::Cpu)
            .and_then(|t| t.flatten_all()?.to_vec1())
            .map_err(|e| malformed(&e))?;
        Ok(RawTensor::Numbers(numbers))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Reading past the end is a file cut short; anything else is malformed.
fn header_error(path: &Path, size: u64, error: &candle_core::Error) -> LoadError {
    let text = error.to_string();
    let cut = text.contains("remaining") || text.contains("failed to fill whole buffer");
    if cut {
        let path = path.to_owned();
        return LoadError::CutShort {
            path,
            what: "its header".into(),
            needs: size + 1,
            has: size,
        };
    }
    LoadError::malformed(path, text)
}

fn name_of(part: Part) -> String {
    match part {
        Part::Embedding => "token_embd.weight".to_owned(),
        Part::Output => "output.weight".to_owned(),
        Part::FinalNorm => "output_norm.weight".to_owned(),
        Part::AttentionNorm(i) => format!("blk.{i}.attn_norm.weight"),
        Part::Query(i) => format!("blk.{i}.attn_q.weight"),
        Part::Key(i) => format!("blk.{i}.attn_k.weight"),
        Part::Value(i) => format!("blk.{i}.attn_v.weight"),
        Part::AttentionOutput(i) => format!("blk.{i}.attn_output.weight"),
        Part::FeedForwardNorm(i) => format!("blk.{i}.ffn_norm.weight"),
        Part::Gate(i) => format!("blk.{i}.ffn_gate.weight"),
        Part::Up(i) => format!("blk.{i}.ffn_up.weight"),
        Part::Down(i) => format!("blk.{i}.ffn_down.weight"),
        Part::DraftTokenNorm(i) => format!("blk.{i}.nextn.enorm.weight"),
        Part::DraftHiddenNorm(i) => format!("blk.{i}.nextn.hnorm.weight"),
        Part::DraftProjection(i) => format!("blk.{i}.nextn.eh_proj.weight"),
        Part::DraftNorm(i) => format!("blk.{i}.nextn.shared_head_norm.weight"),
        Part::DraftEmbedding(i) => format!("blk.{i}.nextn.embed_tokens.weight"),
        Part::DraftOutput(i) => format!("blk.{i}.nextn.shared_head_head.weight"),
    }
}
