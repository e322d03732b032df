//! A worker's facts without the worker, for tests of what peers ask of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::{Incarnation, WorkerId, WorkerRole};
use tandem_engine::EngineDescription;
use tandem_telemetry::Spans;

use super::Facts;
use crate::decode::constraint::Constraints;

/// Pages of every made worker.
pub(crate) const PAGES: u32 = 12;

/// A worker of a small model, cut for so many ranks.
pub(crate) fn facts(role: WorkerRole, ranks: u16, page_tokens: u16) -> Facts {
    let geometry = KvGeometry {
        layers: 2,
        kv_heads: 4,
        head_dim: 8,
        page_tokens,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 16,
    };
    let layout = WorkerLayout::tensor_parallel(geometry, PAGES, ranks).unwrap();
    Facts {
        id: WorkerId::new("made").unwrap(),
        role,
        incarnation: Incarnation(5),
        engine: EngineDescription {
            model: "made".into(),
            fingerprint: "made".into(),
            context_length: 100,
            vocabulary: 300,
            geometry,
            layers: Arc::clone(layout.layers()),
        },
        layout: Arc::new(layout),
        fabrics: None,
        blocks: None,
        labels: std::collections::BTreeMap::new(),
        leases: AtomicU64::new(0),
        constraints: Constraints::new(None),
        spans: Spans::default(),
    }
}

/// A message of which a few bytes are others, as a fuzzer says.
pub(crate) fn edited(message: &impl prost::Message, edits: &[(u16, u8)]) -> Vec<u8> {
    let mut bytes = message.encode_to_vec();
    for (at, byte) in edits.iter().take(6) {
        let at = usize::from(*at) % bytes.len();
        bytes[at] = *byte;
    }
    bytes
}
