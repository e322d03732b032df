//! Between the schema's messages and the core's types. What a peer sends is checked here.

use tandem_core::geometry::{KvDtype, KvGeometry};
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

impl From<&KvGeometry> for proto::Geometry {
    fn from(g: &KvGeometry) -> Self {
        Self {
            layers: g.layers.into(),
            kv_heads: g.kv_heads.into(),
            head_dim: g.head_dim.into(),
            page_tokens: g.page_tokens.into(),
            dtype: g.dtype.as_str().into(),
            pages: 0,
        }
    }
}

impl TryFrom<&proto::Geometry> for KvGeometry {
    type Error = Nonsense;

    fn try_from(g: &proto::Geometry) -> Result<Self, Nonsense> {
        let count = |name: &str, n: u32| {
            u16::try_from(n)
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| nonsense(format!("{name} {n}")))
        };
        Ok(Self {
            layers: count("layers", g.layers)?,
            kv_heads: count("kv_heads", g.kv_heads)?,
            head_dim: count("head_dim", g.head_dim)?,
            page_tokens: count("page_tokens", g.page_tokens)?,
            dtype: match g.dtype.as_str() {
                "f16" => KvDtype::F16,
                "bf16" => KvDtype::Bf16,
                other => return Err(nonsense(format!("dtype {other:?}"))),
            },
        })
    }
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

    #[test]
    fn a_geometry_survives_and_nonsense_is_named() {
        let g = KvGeometry {
            layers: 30,
            kv_heads: 3,
            head_dim: 64,
            page_tokens: 16,
            dtype: KvDtype::Bf16,
        };
        let sent = proto::Geometry::from(&g);
        assert_eq!(KvGeometry::try_from(&sent), Ok(g));
        let bad = proto::Geometry {
            layers: 0,
            ..sent.clone()
        };
        assert_eq!(KvGeometry::try_from(&bad), Err(nonsense("layers 0")));
        let bad = proto::Geometry {
            dtype: "int4".into(),
            ..sent
        };
        assert_eq!(KvGeometry::try_from(&bad), Err(nonsense("dtype \"int4\"")));
    }

    #[test]
    fn a_request_id_has_16_bytes() {
        let id = RequestId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(request_id(&request_bytes(id)), Ok(id));
        assert!(request_id(&[0; 15]).is_err());
    }
}
