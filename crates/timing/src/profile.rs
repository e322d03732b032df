//! The numbers of one worker's hardware and model.

use tandem_core::geometry::KvKind;

use crate::Points;

/// One worker: a model on some GPUs. All times are of one GPU (they run in step), all layers are taken
/// to be alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The model's name, as clients ask for it.
    pub model: String,
    /// Tokens of prompt and answer together.
    pub context_length: u32,
    /// GPUs of one worker.
    pub gpus: u16,
    /// Its KV cache.
    pub kv: KvShape,
    /// What every step costs.
    pub step: StepCost,
    /// Bytes a second that a GPU reads from its memory, as achieved: weights and KV entries.
    pub memory_gb_per_s: f64,
    /// What every token goes through.
    pub dense: Dense,
    /// Experts that a router chooses among; `None` for a dense model.
    pub experts: Option<Experts>,
    /// Attention.
    pub attention: Attention,
    /// What ranks exchange in a layer; `None` on one GPU.
    pub exchange: Option<Exchange>,
    /// The way of KV pages to another worker.
    pub link: Link,
}

/// A model's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers.
    pub layers: u16,
    /// What attention keeps.
    pub kind: KvKind,
    /// KV heads.
    pub heads: u16,
    /// Numbers of 2 bytes in a head's key (and value), or in the latent.
    pub head_dim: u16,
    /// Tokens that fit beside the weights, over all sequences of a worker.
    pub tokens: u32,
}

/// What a step costs whatever it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Microseconds once a step: scheduling, embedding, output head, sampling.
    pub overhead_us: f64,
    /// Microseconds in each layer: launching kernels that are too small to fill a GPU.
    pub layer_us: f64,
}

/// What every token of a step goes through, in one layer on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dense {
    /// Megabytes (10^6 bytes) of weights that are read whatever the tokens are.
    pub weight_mb: f64,
    /// Nanoseconds for a token, its experts' share included.
    pub ns_per_token: f64,
}

/// Experts of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// Of the layer, over all GPUs.
    pub count: u32,
    /// That one token takes.
    pub active: u32,
    /// Megabytes of one expert's weights that one GPU reads, on average over GPUs: an expert's bytes
    /// divided by the GPUs among which experts, or their parts, are divided.
    pub expert_mb: f64,
    /// Data-parallel ranks whose tokens meet in the experts. The others are taken to do what this one
    /// does.
    pub ranks: u32,
}

/// Attention in one layer on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Picoseconds for a pair of a prompt's token and one before it.
    pub ps_per_pair: f64,
    /// Bytes that a decoding sequence reads of each token before, and that travel of it to another
    /// worker: one GPU's part of the token's entry in one layer.
    pub kv_bytes_per_token: f64,
}

/// All-reduces, or all-to-alls, of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// How many.
    pub per_layer: u32,
    /// Bytes of each, for a token.
    pub bytes_per_token: f64,
    /// Microseconds by bytes.
    pub us: Points,
}

/// One layer's pages on their way to another worker; GPUs send side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Microseconds for each layer that is pushed.
    pub layer_us: f64,
    /// Nanoseconds for each token of it.
    pub ns_per_token: f64,
}
