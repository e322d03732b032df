//! Any bytes as a control message: an error, or a message that makes sense. Never a panic.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use prost::Message;
use tandem_core::PageIndex;
use tandem_core::flow::flows;
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::plan::expected;
use tandem_wire::proto;

/// A message says the same when it was sent on, and its geometry can be computed with.
fn read<M: Message + Default>(bytes: &[u8], geometry: fn(&M) -> Option<&proto::Geometry>) {
    let Ok(message) = M::decode(bytes) else {
        return;
    };
    let sent = message.encode_to_vec();
    let again = M::decode(sent.as_slice()).unwrap();
    assert_eq!(again.encode_to_vec(), sent);
    if let Some(geometry) = geometry(&message) {
        compute(geometry.clone());
    }
}

fn compute(geometry: proto::Geometry) {
    let Ok(layout) = WorkerLayout::try_from(geometry) else {
        return;
    };
    let again = WorkerLayout::try_from(proto::Geometry::from(&layout));
    assert_eq!(again.as_ref(), Ok(&layout));
    assert!(layout.page_bytes() > 0);
    for (shard, _) in (0u16..).zip(layout.shards()) {
        let arena = layout.arena(shard);
        let last = PageIndex(layout.pages() - 1);
        let layer = arena.geometry().layers - 1;
        assert!(arena.offset(layer, 0, last) < arena.bytes());
        assert!(arena.context(last) <= arena.bytes());
        assert!(expected(&layout, shard, &(0..u32::MAX), 1) > 0);
    }
    let flows = flows((&layout, 0), (&layout, 0), 7).unwrap();
    let targets = layout.of_rank(0).count();
    assert!(flows.len() >= targets, "every shard is served");
}

#[test]
fn control_messages() {
    bolero::check!().for_each(|bytes: &[u8]| {
        read::<proto::Open>(bytes, |_| None);
        read::<proto::Welcome>(bytes, |m| m.geometry.as_ref());
        read::<proto::Beat>(bytes, |_| None);
        read::<proto::Generate>(bytes, |m| m.prefill.as_ref()?.geometry.as_ref());
        read::<proto::GenerateReply>(bytes, |_| None);
        read::<proto::Dispatch>(bytes, |m| m.geometry.as_ref());
        read::<proto::DispatchReply>(bytes, |_| None);
        read::<proto::FromEngine>(bytes, |_| None);
        read::<proto::FromAgent>(bytes, |_| None);
    });
}

#[test]
fn geometries() {
    let whole = KvGeometry {
        layers: 3,
        kv_heads: 4,
        head_dim: 8,
        page_tokens: 16,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 32,
    };
    let valid = WorkerLayout::tensor_parallel(whole, 9, 2).unwrap();
    let valid = proto::Geometry::from(&valid).encode_to_vec();
    bolero::check!()
        .with_type::<Vec<(u8, u8)>>()
        .for_each(|edits| {
            let mut bytes = valid.clone();
            for (at, byte) in edits.iter().take(6) {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
            }
            if let Ok(geometry) = proto::Geometry::decode(bytes.as_slice()) {
                compute(geometry);
            }
        });
}
