//! Several NICs on either side, and completions and immediates out of order.

use tandem_core::FlowId;
use tandem_fabric::{FabricError, FabricOptions, Immediate};

use crate::pair::{Pair, Side, options, pattern, post, same_place};

crate::on_every_provider!(
    writes_are_spread_over_all_nics_of_both_sides,
    whole_transfers_arrive_out_of_order,
);

const ARENA: usize = 4 << 20;
const PIECE: u32 = 16 << 10;
const PIECES: u64 = ARENA as u64 / PIECE as u64;

/// Whole arenas that are pushed one after the other.
const TRANSFERS: u64 = 24;
/// And so many more, after each of which it is looked at.
const STAYS: u64 = 6;
/// Within so many each NIC has had its share.
const SETTLED: u64 = 100;

/// Pushes the whole arena in one flow and checks what arrived.
async fn push_arena(pair: &mut Pair, seed: u64) {
    pair.from.memory.write(0, &pattern(seed, ARENA));
    let armed = pair.into.arm(pair.inbox.endpoint, PIECES).await;
    let flow = pair.flow(seed).await;
    let pusher = pair.from.fabric.pusher();
    for i in 0..PIECES {
        let imm = Immediate::new(armed.key, 1);
        post(&pusher, same_place(flow, i * u64::from(PIECE), PIECE, imm)).await;
    }
    pusher.seal(flow).unwrap();
    pair.into.full(armed).await;
    assert!(pair.into.holds_pattern(seed, 0, ARENA));
    assert!(pair.from.flow_ended().await.ended.complete);
    pair.into.release(armed).await;
}

/// Writes of each NIC so far.
fn written(pair: &Pair) -> Vec<u64> {
    let stats = pair.from.fabric.nic_stats();
    stats.iter().map(|n| n.writes.get()).collect()
}

/// Whether each NIC had its share of so many transfers, to an eighth of [`TRANSFERS`]: a NIC whose queue is
/// full is passed over for the moment, so one may be ahead of another by some queues' lengths (64 writes).
fn alike(pair: &Pair, transfers: u64) -> bool {
    let writes = written(pair);
    let nics = writes.len() as u64;
    let (share, most) = (transfers * PIECES / nics, TRANSFERS * PIECES / nics / 8);
    writes.iter().all(|writes| writes.abs_diff(share) <= most)
}

async fn writes_are_spread_over_all_nics_of_both_sides(provider: &str) {
    for nics in [(1, 4), (4, 1), (4, 4), (2, 3)] {
        let mut pair = Pair::with_nics(provider, ARENA, nics).await;
        assert_eq!(pair.inbox.addresses.len(), nics.1);
        // NICs that are not connected yet are passed over, and catch up.
        let mut pushed = 0;
        while pushed < TRANSFERS || !alike(&pair, pushed) {
            assert!(pushed < SETTLED, "{nics:?}: {:?}", written(&pair));
            pushed += 1;
            push_arena(&mut pair, pushed).await;
        }
        // From then on it stays so.
        for _ in 0..STAYS {
            pushed += 1;
            push_arena(&mut pair, pushed).await;
            assert!(alike(&pair, pushed), "{nics:?}: {:?}", written(&pair));
        }
        let stats = pair.from.fabric.nic_stats();
        let bytes: u64 = stats.iter().map(|n| n.bytes.get()).sum();
        assert_eq!(bytes, pushed * ARENA as u64);
    }
}

async fn whole_transfers_arrive_out_of_order(provider: &str) {
    for seed in 1..4 {
        let disorder = FabricOptions {
            disorder: Some(seed),
            nics: vec![None; 2],
            ..options(provider)
        };
        let mut pair = Pair::with(disorder, ARENA).await;
        push_arena(&mut pair, seed).await;
        push_arena(&mut pair, seed + 10).await;
    }
}

#[tokio::test]
async fn a_nic_that_is_not_there_is_named_with_those_that_are() {
    let options = FabricOptions {
        nics: vec![Some("mlx5_77".into())],
        ..options("tcp")
    };
    let memory = std::sync::Arc::new(tandem_memory::HostMemory::create("t", 4096).unwrap());
    let error = tandem_fabric::Fabric::open(options, memory).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no NIC \"mlx5_77\" here; there are: lo"),
        "{text}"
    );
}

#[tokio::test]
async fn a_region_must_be_named_for_each_of_the_peers_nics() {
    let pair = Pair::with_nics("tcp", ARENA, (1, 2)).await;
    let mut region = pair.into.region();
    region.keys.pop();
    let fabric = &pair.from.fabric;
    let refused = fabric.open_flow(FlowId(1), pair.outbox, region).await;
    assert_eq!(refused, Err(FabricError::Region));
    let none = fabric.open_outbox(&[]).await;
    assert_eq!(none, Err(FabricError::Nics(0)));
    let many = Side::open(options("tcp"), 4096);
    let address = many.fabric.open_inbox().await.unwrap().addresses[0].clone();
    let refused = fabric.open_outbox(&vec![address; 5]).await;
    assert_eq!(refused, Err(FabricError::Nics(5)));
}
