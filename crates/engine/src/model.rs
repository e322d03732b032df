//! A Llama-family model on the CPU.
//!
//! Owns the weights, which are kept as 8-bit blocks whatever the file holds: that is the format for
//! which the processor is fastest, and no file's format may decide how fast a token comes.

mod error;
mod gguf;
mod safetensors;
mod shape;
mod weights;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tandem_core::geometry::{KvDtype, KvGeometry, KvOrder};
use tandem_core::layout::{LayoutError, WorkerLayout};

pub use error::{LoadError, SUPPORTED};
pub(crate) use shape::LlamaShape;
pub(crate) use weights::{DraftHead, LayerWeights, Weights};

use crate::EngineDescription;
use crate::kernel::rope::Rope;

/// How to load a model.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Tokens in one KV page.
    pub page_tokens: u16,
    /// Number type of KV entries.
    pub kv_dtype: KvDtype,
    /// Where keys and values lie.
    pub kv_order: KvOrder,
    /// The name clients ask for; otherwise the file's own, without its format.
    pub name: Option<String>,
    /// SHA-256 that the file must have, in hexadecimal.
    pub sha256: Option<String>,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            page_tokens: 16,
            kv_dtype: KvDtype::F16,
            kv_order: KvOrder::Together,
            name: None,
            sha256: None,
        }
    }
}

/// A loaded model. Clones share the weights.
#[derive(Clone, Debug)]
pub struct EmbeddedModel {
    description: EngineDescription,
    pub(crate) inner: Arc<Llama>,
}

/// What a forward pass needs.
#[derive(Debug)]
pub(crate) struct Llama {
    pub(crate) shape: LlamaShape,
    pub(crate) weights: Weights,
    pub(crate) rope: Rope,
}

impl EmbeddedModel {
    /// Loads a GGUF file, or a directory with `config.json` and `model.safetensors`.
    ///
    /// Takes a few seconds for each billion parameters; call it off the I/O threads.
    pub fn load(path: &Path, options: ModelOptions) -> Result<Self, LoadError> {
        let metadata = std::fs::metadata(path).map_err(|e| LoadError::unreadable(path, &e))?;
        if options.page_tokens == 0 {
            return Err(LoadError::unsupported(path, "pages of 0 tokens"));
        }
        let (shape, weights, name, fingerprint);
        if metadata.is_dir() {
            let mut source = safetensors::Directory::open(path)?;
            fingerprint = check_sum(path, &source.files(), options.sha256.as_deref())?;
            shape = source.shape()?;
            name = None;
            weights = Weights::load(&shape, &mut source)?;
        } else {
            let opened = gguf::Gguf::open(path);
            fingerprint = match opened {
                // A file that is no GGUF at all is told so, whatever its checksum.
                Ok(_) => check_sum(path, &[path.to_owned()], options.sha256.as_deref())?,
                Err(error) => return Err(error),
            };
            let mut source = opened?;
            shape = source.shape()?;
            name = source.name();
            weights = Weights::load(&shape, &mut source)?;
        }
        let rope = Rope::new(shape.head_dim, shape.rope_theta, shape.context);
        let description = EngineDescription {
            model: options.name.or(name).unwrap_or_else(|| name_of(path)),
            fingerprint,
            context_length: shape.context as u32,
            vocabulary: shape.vocabulary as u32,
            geometry: shape.geometry(options.page_tokens, options.kv_dtype, options.kv_order),
            layers: shape.layer_names(),
        };
        Ok(Self {
            description,
            inner: Arc::new(Llama {
                shape,
                weights,
                rope,
            }),
        })
    }

    /// What an engine with this model announces.
    #[must_use]
    pub fn describe(&self) -> EngineDescription {
        self.description.clone()
    }

    /// Shape of its KV pages.
    #[must_use]
    pub fn geometry(&self) -> KvGeometry {
        self.description.geometry
    }

    /// Its KV cache of `pages` pages, cut for so many tensor-parallel ranks.
    pub fn layout(&self, pages: u32, ranks: u16) -> Result<WorkerLayout, LayoutError> {
        let layers = Arc::clone(&self.description.layers);
        WorkerLayout::tensor_parallel(self.geometry(), pages, ranks)?.with_layers(layers)
    }
}

/// SHA-256 over the files, one after the other, in hexadecimal.
fn check_sum(path: &Path, files: &[PathBuf], wants: Option<&str>) -> Result<String, LoadError> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    for file in files {
        let unreadable = |e: &std::io::Error| LoadError::unreadable(file, e);
        let mut open = File::open(file).map_err(|e| unreadable(&e))?;
        loop {
            match open.read(&mut buffer).map_err(|e| unreadable(&e))? {
                0 => break,
                read => hasher.update(&buffer[..read]),
            }
        }
    }
    let has: String = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    match wants {
        Some(wants) if !wants.eq_ignore_ascii_case(&has) => Err(LoadError::Checksum {
            path: path.to_owned(),
            has,
            wants: wants.to_owned(),
        }),
        _ => Ok(has),
    }
}

/// `SmolLM2-135M-Instruct.Q4_1.gguf` is `SmolLM2-135M-Instruct`.
fn name_of(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| "model".to_owned());
    let name = name.strip_suffix(".gguf").unwrap_or(&name);
    match name.rsplit_once('.') {
        Some((stem, kind)) if kind.starts_with(['Q', 'F', 'B', 'I']) => stem.to_owned(),
        _ => name.to_owned(),
    }
}
