//! Between the schema's messages and the core's types. What a peer sends is checked here.

use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::{Shard, WorkerLayout};
use tandem_core::{RequestId, WorkerRole};

use crate::proto;

/// A message whose fields make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message without sense: {0}")]
pub struct Nonsense(pub String);

/// Shorthand for a missing or wrong field.
#[must_use]
pub fn nonsense(what: impl Into<String>) -> Nonsense {
    Nonsense(what.into())
}

impl From<&WorkerLayout> for proto::Geometry {
    fn from(layout: &WorkerLayout) -> Self {
        let g = layout.geometry();
        let shard = |s: &Shard| proto::Shard {
            data_rank: s.data_rank.into(),
            first_layer: s.layers.start.into(),
            layers: s.layers.len() as u32,
            first_head: s.heads.start.into(),
            heads: s.heads.len() as u32,
        };
        Self {
            layers: g.layers.into(),
            kv_heads: g.kv_heads.into(),
            head_dim: g.head_dim.into(),
            page_tokens: g.page_tokens.into(),
            dtype: g.dtype.as_str().into(),
            pages: layout.pages(),
            kind: g.kind.as_str().into(),
            order: g.order.as_str().into(),
            context_bytes: g.context_bytes,
            layer_names: layout.layers().to_vec(),
            shards: layout.shards().iter().map(shard).collect(),
        }
    }
}

impl TryFrom<proto::Geometry> for WorkerLayout {
    type Error = Nonsense;

    fn try_from(g: proto::Geometry) -> Result<Self, Nonsense> {
        let small =
            |name: &str, n: u32| u16::try_from(n).map_err(|_| nonsense(format!("{name} {n}")));
        let geometry = KvGeometry {
            layers: small("layers", g.layers)?,
            kv_heads: small("kv_heads", g.kv_heads)?,
            head_dim: small("head_dim", g.head_dim)?,
            page_tokens: small("page_tokens", g.page_tokens)?,
            dtype: word(
                "dtype",
                &g.dtype,
                &[KvDtype::F16, KvDtype::Bf16],
                KvDtype::as_str,
            )?,
            kind: word(
                "kind",
                &g.kind,
                &[KvKind::Heads, KvKind::Latent],
                KvKind::as_str,
            )?,
            order: word(
                "order",
                &g.order,
                &[KvOrder::Together, KvOrder::Apart],
                KvOrder::as_str,
            )?,
            context_bytes: g.context_bytes,
        };
        let range = |name: &str, first: u32, count: u32| {
            let end = first.saturating_add(count);
            Ok(small(name, first)?..small(name, end)?)
        };
        let shard = |s: &proto::Shard| {
            Ok(Shard {
                data_rank: small("data_rank", s.data_rank)?,
                layers: range("a shard's layers", s.first_layer, s.layers)?,
                heads: range("a shard's heads", s.first_head, s.heads)?,
            })
        };
        let shards: Result<Vec<Shard>, Nonsense> = g.shards.iter().map(shard).collect();
        Self::new(geometry, g.layer_names.into(), g.pages, shards?)
            .map_err(|e| nonsense(e.to_string()))
    }
}

/// One of a few words.
fn word<T: Copy>(
    name: &str,
    found: &str,
    words: &[T],
    text: fn(T) -> &'static str,
) -> Result<T, Nonsense> {
    let same = |word: &&T| text(**word) == found;
    let word = words.iter().find(same).copied();
    word.ok_or_else(|| nonsense(format!("{name} {found:?}")))
}

impl From<WorkerRole> for proto::Role {
    fn from(role: WorkerRole) -> Self {
        match role {
            WorkerRole::Prefill => Self::Prefill,
            WorkerRole::Decode => Self::Decode,
            WorkerRole::Both => Self::Both,
        }
    }
}

impl TryFrom<proto::Role> for WorkerRole {
    type Error = Nonsense;

    fn try_from(role: proto::Role) -> Result<Self, Nonsense> {
        match role {
            proto::Role::Prefill => Ok(Self::Prefill),
            proto::Role::Decode => Ok(Self::Decode),
            proto::Role::Both => Ok(Self::Both),
            proto::Role::Unspecified => Err(nonsense("no role")),
        }
    }
}

/// Reads a request id's 16 bytes.
pub fn request_id(bytes: &[u8]) -> Result<RequestId, Nonsense> {
    let bytes: [u8; 16] = bytes
        .try_into()
        .map_err(|_| nonsense(format!("a request id of {} bytes", bytes.len())))?;
    Ok(RequestId(u128::from_be_bytes(bytes)))
}

/// Writes a request id's 16 bytes.
#[must_use]
pub fn request_bytes(id: RequestId) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(&id.0.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> WorkerLayout {
        let geometry = KvGeometry {
            layers: 30,
            kv_heads: 3,
            head_dim: 64,
            page_tokens: 16,
            dtype: KvDtype::Bf16,
            kind: KvKind::Heads,
            order: KvOrder::Apart,
            context_bytes: 96,
        };
        WorkerLayout::tensor_parallel(geometry, 9, 3).unwrap()
    }

    #[test]
    fn a_layout_survives() {
        let sent = proto::Geometry::from(&layout());
        assert_eq!(WorkerLayout::try_from(sent), Ok(layout()));
    }

    #[test]
    fn a_layout_without_sense_is_named() {
        let bad = |spoil: fn(&mut proto::Geometry)| {
            let mut sent = proto::Geometry::from(&layout());
            spoil(&mut sent);
            WorkerLayout::try_from(sent).unwrap_err().0
        };
        assert_eq!(bad(|g| g.layers = 70_000), "layers 70000");
        assert_eq!(bad(|g| g.dtype = "int4".into()), "dtype \"int4\"");
        assert_eq!(bad(|g| g.order = String::new()), "order \"\"");
        assert_eq!(
            bad(|g| g.shards[1].first_head = u32::MAX),
            "a shard's heads 4294967295"
        );
        let layout = "the KV cache's layout makes no sense: ";
        assert_eq!(
            bad(|g| g.shards[1].first_head = 0),
            format!("{layout}2 copies of a part, 1 of layers 0..30 x heads 2..3")
        );
        assert_eq!(bad(|g| g.pages = 0), format!("{layout}a size is 0"));
        assert_eq!(
            bad(|g| drop(g.layer_names.pop())),
            format!("{layout}29 layer names for 30 layers")
        );
    }

    #[test]
    fn a_request_id_has_16_bytes() {
        let id = RequestId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(request_id(&request_bytes(id)), Ok(id));
        assert!(request_id(&[0; 15]).is_err());
    }
}
