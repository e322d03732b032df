//! Nothing is armed that could overrun an inbox's completion queue.

use tandem_core::FlowId;
use tandem_fabric::{ArmError, FabricOptions, Immediate};

use crate::pair::{Pair, Side, options, post, same_place, within};

crate::on_every_provider!(more_than_the_queue_holds_is_awaited_one_after_the_other);

fn short(provider: &str, entries: usize) -> FabricOptions {
    FabricOptions {
        completion_entries: Some(entries),
        ..options(provider)
    }
}

#[tokio::test]
async fn what_could_overrun_an_inbox_is_not_armed() {
    let side = Side::open(short("tcp", 100), 4096);
    let inbox = side.fabric.open_inbox().await.unwrap().endpoint;
    let other = side.fabric.open_inbox().await.unwrap().endpoint;
    let (pieces, entries) = (101, 100);
    let never = side.fabric.arm(inbox, 101).await;
    assert_eq!(never, Err(ArmError::TooMany { pieces, entries }));
    let armed = side.fabric.arm(inbox, 60).await.unwrap();
    let (pieces, free) = (60, 40);
    let later = side.fabric.arm(inbox, 60).await;
    assert_eq!(later, Err(ArmError::NoRoom { pieces, free }));
    // Each inbox has a queue of its own.
    let _ = side.fabric.arm(other, 100).await.unwrap();
    side.fabric.release(armed).unwrap();
    let again = async {
        while side.fabric.arm(inbox, 100).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    within(again).await;
    // A slot of a closed inbox goes back all the same.
    side.fabric.close(other).await.unwrap();
}

/// Ten flows of 64 pieces through a queue of 100 entries: a full one makes room for the next at once.
async fn more_than_the_queue_holds_is_awaited_one_after_the_other(provider: &str) {
    let mut pair = Pair::with(short(provider, 100), 1 << 20).await;
    let pusher = pair.from.fabric.pusher();
    for id in 0..10 {
        let armed = pair.into.arm(pair.inbox.endpoint, 64).await;
        let flow = pair.flow(id).await;
        for _ in 0..64 {
            let write = same_place(flow, 0, 4096, Immediate::new(armed.key, 1));
            post(&pusher, write).await;
        }
        pusher.seal(FlowId(id)).unwrap();
        pair.into.full(armed).await;
        assert!(pair.from.flow_ended().await.ended.complete);
        pair.into.release(armed).await;
    }
}
