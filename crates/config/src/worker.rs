//! `[worker]`: an agent and its engine.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tandem_core::geometry::{KvDtype, KvOrder};
use tandem_core::{WorkerId, WorkerRole};
use tandem_topology::{DeviceMap, DeviceName};

use crate::section::{PATH, SOCKET, Section, socket, text};
use crate::{ControlConfig, EngineConfig, FabricConfig, IdentityConfig, TelemetryConfig};

/// A worker, with all that it needs of the other tables.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerConfig {
    /// Its name, unique in the fleet. Needed.
    pub id: WorkerId,
    /// What it does. Needed.
    pub role: WorkerRole,
    /// Its control address (QUIC); port 0 takes any free one. Needed.
    pub listen: SocketAddr,
    /// A GGUF file, or a folder with safetensors. Needed.
    pub model: PathBuf,
    /// What the model file's checksum must be; `None`, the default: whatever it is.
    pub model_sha256: Option<Sha256>,
    /// The name clients ask for; `None`, the default: the file's name without its ending and quantisation.
    pub model_name: Option<String>,
    /// How much KV cache it has. Default 512 MiB.
    pub kv: KvBudget,
    /// Tokens in one KV page. Default 16.
    pub page_tokens: u16,
    /// Number type of KV entries. Default f16.
    pub kv_dtype: KvDtype,
    /// Whether a page's keys and values lie together, or all keys apart from all values. Default
    /// together.
    pub kv_order: KvOrder,
    /// Shards into which the KV heads are cut (or that replicate them, where there are more shards
    /// than heads), each with an arena and a fabric of its own. Default 1.
    pub tensor_parallel: u16,
    /// Whether pages of finished requests are kept for later ones that begin with the same tokens.
    /// Default yes.
    pub prefix_cache: bool,
    /// Part of the name of each cached block: workers of another salt never find them. Default none.
    pub cache_salt: String,
    /// Where it stands and what it is, for routing policies: at most 6, such as `rack` or `pool`. Where
    /// `host` is not among them it is the machine's name.
    pub labels: BTreeMap<String, String>,
    /// The device of each shard, as `tandem topology` names them: a GPU's PCI address, or `node0`. Its
    /// fabric uses the device's NICs (on RDMA providers) and runs on its first core, the watcher on
    /// the second one of the first shard's. Default none: NICs of libfabric's choice, any core.
    pub devices: Vec<DeviceName>,
    /// `[topology]`: what discovery is overruled with.
    pub topology: DeviceMap,
    /// The Unix socket of an engine in another process (`tandem engine`); `None`, the default: the
    /// engine runs in the worker's own.
    pub engine_socket: Option<PathBuf>,
    /// How long a worker waits for that engine to be there. Default 60 s.
    pub engine_wait: Duration,
    /// Prompt tokens in one step, over all requests. Default 512.
    pub chunk_tokens: usize,
    /// Requests that decode in one step. Default 16.
    pub max_batch: usize,
    /// Tokens that the model's draft head, where it has one, proposes for one step of a request; 0
    /// turns it off. Default 1.
    pub speculative_tokens: u32,
    /// Threads that compute. Default: as many as the process may use cores.
    pub threads: usize,
    /// Prompts that may wait here; one more is refused. Default 256.
    pub queue_limit: usize,
    /// A peer that has not acknowledged a cancel for so long is fenced. Default 5 s.
    pub drain_timeout: Duration,
    /// `[engine]`: what computes. Default embedded.
    pub engine: EngineConfig,
    /// `[fabric]`: how KV pages travel.
    pub fabric: FabricConfig,
    /// `[identity]`: who it is to gateways and other workers. The name defaults to `id`.
    pub identity: IdentityConfig,
    /// `[control]`: its connections to gateways and other workers.
    pub control: ControlConfig,
    /// `[telemetry]`: what it tells of requests, and to whom.
    pub telemetry: TelemetryConfig,
}

/// The size of a worker's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvBudget {
    /// As many whole pages as fit into so many bytes.
    Bytes(u64),
    /// So many pages.
    Pages(u32),
    /// Nothing was said: [`KvBudget::USUAL`] bytes, of the timed engine no more than its profile's GPUs have room for.
    Unsaid,
}

impl KvBudget {
    /// Bytes, where nothing was said.
    pub const USUAL: u64 = 512 << 20;

    /// Pages of `page_bytes` bytes (all layers) each; 0 where not even one fits. `room`: as many as the GPUs of a timed
    /// engine's profile have room for.
    #[must_use]
    pub fn pages(self, page_bytes: usize, room: Option<u32>) -> u32 {
        let within =
            |bytes: u64| u32::try_from(bytes / page_bytes.max(1) as u64).unwrap_or(u32::MAX);
        match self {
            Self::Bytes(bytes) => within(bytes),
            Self::Pages(pages) => pages,
            Self::Unsaid => within(Self::USUAL).min(room.unwrap_or(u32::MAX)),
        }
    }
}

/// A SHA-256 checksum; read and shown as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

/// Text that is no SHA-256 checksum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SHA-256 {0:?}: want 64 hexadecimal digits")]
pub struct InvalidSha256(pub String);

impl FromStr for Sha256 {
    type Err = InvalidSha256;

    fn from_str(text: &str) -> Result<Self, InvalidSha256> {
        let invalid = || InvalidSha256(text.to_owned());
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte =
                u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const ROLES: [(&str, WorkerRole); 3] = [
    (WorkerRole::Prefill.as_str(), WorkerRole::Prefill),
    (WorkerRole::Decode.as_str(), WorkerRole::Decode),
    (WorkerRole::Both.as_str(), WorkerRole::Both),
];

const DTYPES: [(&str, KvDtype); 2] = [
    (KvDtype::F16.as_str(), KvDtype::F16),
    (KvDtype::Bf16.as_str(), KvDtype::Bf16),
];

const ORDERS: [(&str, KvOrder); 2] = [
    (KvOrder::Together.as_str(), KvOrder::Together),
    (KvOrder::Apart.as_str(), KvOrder::Apart),
];

/// Keys that say nothing to an engine without a model.
const OF_MODELS: [&str; 4] = ["model_sha256", "kv_dtype", "speculative_tokens", "threads"];

pub(crate) fn read(section: &mut Section<'_, '_>) -> Option<WorkerConfig> {
    let id = section.need("id", "1 to 63 letters, digits, '-', '_' or '.'", |value| {
        WorkerId::new(value.as_str()?).ok()
    });
    let role = section.need_choice("role", &ROLES);
    let listen = section.need("listen", SOCKET, socket);
    let model = section.need("model", PATH, |value| text(value).map(PathBuf::from));
    let model_sha256 = section.read("model_sha256", "64 hexadecimal digits", |value| {
        value.as_str()?.parse().ok()
    });
    let model_name = section.read("model_name", "a name", |value| {
        text(value).map(str::to_owned)
    });
    let kv = read_kv(section);
    let page_tokens = section.number("page_tokens", 1..=1024);
    let kv_dtype = section.choice("kv_dtype", &DTYPES);
    let kv_order = section.choice("kv_order", &ORDERS);
    let tensor_parallel = section.number("tensor_parallel", 1..=256);
    let prefix_cache = section.flag("prefix_cache");
    let want = "a table of at most 6 labels, such as { rack = \"r1\" }";
    let labels = section.read("labels", want, crate::policy::labels);
    let cache_salt = section.read("cache_salt", "a text", |value| {
        value.as_str().map(str::to_owned)
    });
    let want = "a list of PCI addresses or NUMA nodes, such as [\"0000:17:00.0\"] or [\"node0\"]";
    let devices = section.list("devices", want, |value| value.as_str()?.parse().ok());
    let engine_socket = section.read("engine_socket", PATH, |value| {
        text(value).map(PathBuf::from)
    });
    let engine_wait = section.millis("engine_wait_ms", 1..=3_600_000, 60_000);
    let chunk_tokens = section.number("chunk_tokens", 1..=65_536);
    let max_batch = section.number("max_batch", 1..=4096);
    let speculative_tokens = section.number("speculative_tokens", 0..=16);
    let threads = section.number("threads", 1..=1024);
    let queue_limit = section.number("queue_limit", 1..=1_000_000);
    let drain_timeout = section.millis("drain_timeout_ms", 1..=600_000, 5_000);
    Some(WorkerConfig {
        id: id?,
        role: role?,
        listen: listen?,
        model: section.in_folder(model?),
        model_sha256,
        model_name,
        kv,
        page_tokens: page_tokens.unwrap_or(16),
        kv_dtype: kv_dtype.unwrap_or(KvDtype::F16),
        kv_order: kv_order.unwrap_or(KvOrder::Together),
        tensor_parallel: tensor_parallel.unwrap_or(1),
        prefix_cache: prefix_cache.unwrap_or(true),
        cache_salt: cache_salt.unwrap_or_default(),
        labels: labels.unwrap_or_default().into_iter().collect(),
        engine_socket: engine_socket.map(|path| section.in_folder(path)),
        engine_wait,
        devices: devices.unwrap_or_default(),
        topology: DeviceMap::default(),
        chunk_tokens: chunk_tokens.unwrap_or(512),
        max_batch: max_batch.unwrap_or(16),
        speculative_tokens: speculative_tokens.unwrap_or(1),
        threads: threads.unwrap_or_else(cores),
        queue_limit: queue_limit.unwrap_or(256),
        drain_timeout,
        engine: EngineConfig::default(),
        fabric: FabricConfig::default(),
        identity: IdentityConfig::default(),
        control: ControlConfig::default(),
        telemetry: TelemetryConfig::default(),
    })
}

/// Notes keys that only an engine with a model has a use for.
pub(crate) fn refuse_models_keys(section: &mut Section<'_, '_>) {
    for key in OF_MODELS {
        let line = section.line_of(key);
        if line.is_some() {
            let message =
                format!("{key}: is not for [engine] kind = \"timed\", which runs no model");
            section.refuse(line, &message);
        }
    }
}

fn read_kv(section: &mut Section<'_, '_>) -> KvBudget {
    let line = section
        .line_of("kv_pages")
        .filter(|_| section.line_of("kv_memory").is_some());
    if line.is_some() {
        section.refuse(
            line,
            "kv_pages and kv_memory are both given: want one of them",
        );
    }
    let pages = section
        .number("kv_pages", 1..=16_777_216)
        .map(KvBudget::Pages);
    let bytes = section
        .bytes("kv_memory", 64 << 10..=16 << 40)
        .map(KvBudget::Bytes);
    pages.or(bytes).unwrap_or(KvBudget::Unsaid)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
