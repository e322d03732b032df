use super::*;
use crate::geometry::{KvDtype, KvKind, KvOrder};

const G: KvGeometry = KvGeometry {
    layers: 4,
    kv_heads: 2,
    head_dim: 8,
    page_tokens: 16,
    dtype: KvDtype::F16,
    kind: KvKind::Heads,
    order: KvOrder::Together,
    context_bytes: 0,
};

fn heads(ranks: u16) -> Vec<Range<u16>> {
    let layout = WorkerLayout::tensor_parallel(G, 4, ranks).unwrap();
    layout.shards().iter().map(|s| s.heads.clone()).collect()
}

#[test]
fn ranks_cut_heads_and_then_replicate_them() {
    assert_eq!(heads(1).first(), Some(&(0..2)));
    assert_eq!(heads(2), [0..1, 1..2]);
    assert_eq!(heads(4), [0..1, 0..1, 1..2, 1..2]);
    let error = WorkerLayout::tensor_parallel(G, 4, 3).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the KV cache's layout makes no sense: 2 KV heads cannot be cut for 3 tensor-parallel \
         ranks: one must be a multiple of the other"
    );
    let eight = WorkerLayout::tensor_parallel(G, 4, 8).unwrap();
    let copies: Vec<u16> = (0..8).map(|s| eight.copy(s)).collect();
    assert_eq!(copies, [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(eight.page_bytes(), 4 * G.page_bytes());
}

#[test]
fn shards_that_make_no_cache_are_refused() {
    let shard = |layers: Range<u16>, heads: Range<u16>| Shard {
        data_rank: 0,
        layers,
        heads,
    };
    let refused = |shards: Vec<Shard>| {
        let made = WorkerLayout::new(G, layer_names(4), 4, shards);
        made.unwrap_err().0
    };
    assert_eq!(refused(vec![]), "0 shards");
    assert_eq!(
        refused(vec![shard(0..5, 0..2)]),
        "shard 0 has layers 0..5 x heads 0..2, of 4 x 2"
    );
    assert_eq!(
        refused(vec![shard(0..4, 0..2), shard(0..4, 0..1)]),
        "shards overlap: layers 0..4 x heads 0..2 and layers 0..4 x heads 0..1"
    );
    assert_eq!(
        refused(vec![shard(0..4, 0..1)]),
        "the shards of data-parallel rank 0 leave something out"
    );
    assert_eq!(
        refused(vec![
            shard(0..4, 0..1),
            shard(0..4, 1..2),
            shard(0..4, 1..2)
        ]),
        "1 copies of a part, 2 of layers 0..4 x heads 1..2"
    );
    let of_rank = |data_rank| Shard {
        data_rank,
        ..shard(0..4, 0..2)
    };
    assert_eq!(
        refused(vec![of_rank(0), of_rank(2)]),
        "shard 1 is of data-parallel rank 2"
    );
    assert_eq!(
        refused(vec![of_rank(0), of_rank(0), of_rank(2)]),
        "the shards of data-parallel rank 1 leave something out"
    );
}

#[test]
fn a_mismatch_names_the_property_and_both_values() {
    let ours = WorkerLayout::tensor_parallel(G, 4, 1).unwrap();
    let text = |geometry: KvGeometry| {
        let theirs = WorkerLayout::tensor_parallel(geometry, 9, 1).unwrap();
        ours.matches(&theirs).unwrap_err().to_string()
    };
    let mut other = G;
    other.dtype = KvDtype::Bf16;
    assert_eq!(
        text(other),
        "KV geometry differs: dtype is f16 here and bf16 there"
    );
    other = G;
    other.head_dim = 16;
    assert_eq!(
        text(other),
        "KV geometry differs: head_dim is 8 here and 16 there"
    );
    other = G;
    other.layers = 5;
    assert_eq!(
        text(other),
        "KV geometry differs: layers is 4 here and 5 there"
    );
    other = G;
    other.context_bytes = 8;
    assert_eq!(
        text(other),
        "KV geometry differs: context_bytes is 0 here and 8 there"
    );
    other = KvGeometry {
        kind: KvKind::Latent,
        kv_heads: 1,
        ..G
    };
    assert_eq!(
        text(other),
        "KV geometry differs: the kind of KV entries is heads here and latent there"
    );
}

#[test]
fn a_cache_that_no_machine_could_address_is_refused() {
    let huge = KvGeometry {
        layers: 1024,
        kv_heads: u16::MAX,
        head_dim: u16::MAX,
        ..G
    };
    let names = layer_names(1024);
    let shard = Shard {
        data_rank: 0,
        layers: 0..1024,
        heads: 0..u16::MAX,
    };
    let error = WorkerLayout::new(huge, names, u32::MAX, vec![shard]).unwrap_err();
    assert!(error.0.contains("are too many bytes"), "{error}");
    let context = KvGeometry {
        context_bytes: u32::MAX,
        ..G
    };
    let error = WorkerLayout::tensor_parallel(context, 4, 1).unwrap_err();
    assert_eq!(error.0, "4294967295 bytes of context; 16777216 at most");
}

#[test]
fn layers_are_matched_by_name_in_any_order() {
    let ours = WorkerLayout::tensor_parallel(G, 4, 1).unwrap();
    let named = |names: [&str; 4]| {
        let names = names.map(str::to_owned).to_vec().into();
        let shard = Shard {
            data_rank: 0,
            layers: 0..4,
            heads: 0..2,
        };
        WorkerLayout::new(G, names, 4, vec![shard])
    };
    let turned = named(["layers.3", "layers.1", "layers.0", "layers.2"]).unwrap();
    assert_eq!(ours.matches(&turned), Ok(()));
    let other = named(["layers.3", "layers.1", "layers.0", "mtp.0"]).unwrap();
    assert_eq!(
        ours.matches(&other).unwrap_err().to_string(),
        "KV geometry differs: a layer's name is layers.2 here and mtp.0 there"
    );
    assert_eq!(
        named(["a", "b", "a", "c"]).unwrap_err().0,
        "two layers are named \"a\""
    );
}

#[test]
fn pages_and_planes_may_differ() {
    let ours = WorkerLayout::tensor_parallel(G, 4, 1).unwrap();
    let other = KvGeometry {
        page_tokens: 64,
        order: KvOrder::Apart,
        ..G
    };
    let theirs = WorkerLayout::tensor_parallel(other, 9, 2).unwrap();
    assert_eq!(ours.matches(&theirs), Ok(()));
}
