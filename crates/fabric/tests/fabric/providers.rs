//! What providers promise and where they mislead (docs/providers.md), and that nothing here falls for
//! it.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tandem_core::FlowId;
use tandem_fabric::{FabricEvent, Immediate, OpenError};

use crate::pair::{Pair, Side, options, pattern, post, same_place, until, within};
use crate::remote::Receiver;

crate::on_every_provider!(
    promises_are_obeyed,
    nothing_completes_before_its_target_has_it,
    a_wrong_key_harms_no_other_session,
);

/// Where memory is addressed by offset a region begins at 0, elsewhere at its address; keys and
/// immediates are as long as the provider says; no window is longer than its queue.
async fn promises_are_obeyed(provider: &str) {
    let side = Side::open(options(provider), 4096);
    let info = side.fabric.info();
    let by_address = info.mr_mode.contains("FI_MR_VIRT_ADDR");
    assert_eq!(by_address, provider == "shm", "{info:?}");
    let address = tandem_memory::Memory::address(&*side.memory) as u64;
    let base = if by_address { address } else { 0 };
    assert_eq!(info.region().keys[0].base, base);
    assert!(info.cq_data_size >= 4 && info.delivery_complete, "{info:?}");
    let found = tandem_fabric::describe_providers().unwrap();
    let facts = found.providers.iter().find(|p| p.name == info.provider);
    assert!(info.window as usize <= facts.unwrap().tx_size, "{info:?}");
}

/// Every thread of it.
fn is_stopped(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut states = tasks.map(|task| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        status.contains("State:\tT")
    });
    states.all(|stopped| stopped)
}

/// tcp would say that a write is complete when it stands in a socket's buffer. Beyond its window the
/// sender posts nothing, though native tcp takes any number.
async fn nothing_completes_before_its_target_has_it(provider: &str) {
    let mut receiver = Receiver::start(&options(provider), 1 << 20);
    let inbox = receiver.open_inbox().await;
    let armed = receiver.arm(inbox.endpoint, 501).await;
    let mut side = Side::open(options(provider), 1 << 20);
    let fabric = side.fabric.clone();
    let outbox = fabric.open_outbox(&inbox.addresses).await.unwrap();
    let flow = FlowId(1);
    let opened = fabric.open_flow(flow, outbox, receiver.region()).await;
    opened.unwrap();
    let write = same_place(flow, 0, 512, Immediate::new(armed.key, 1));
    // The connection stands.
    post(&fabric.pusher(), write).await;
    until(|| fabric.stats().writes_completed.get() == 1).await;
    let process = Pid::from_raw(receiver.process().cast_signed()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    until(|| is_stopped(receiver.process())).await;
    for _ in 0..500 {
        post(&fabric.pusher(), write).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stats = fabric.stats();
    let (completed, posted) = (stats.writes_completed.get(), stats.writes_posted.get());
    kill_process(process, Signal::CONT).unwrap();
    assert_eq!(completed, 1, "{provider}: acknowledged by nobody");
    assert!(
        posted > 1 && posted <= 1 + 64,
        "{provider}: {posted} posted"
    );
    fabric.seal(flow).await.unwrap();
    receiver.full(armed).await;
    assert!(side.flow_ended().await.ended.complete);
}

/// A write with a wrong key can end a whole connection (tcp) or wedge its endpoint (shm 1.17), and
/// may be reported as a success (shm 2). It is counted nowhere, and another peer does not notice.
async fn a_wrong_key_harms_no_other_session(provider: &str) {
    const BYTES: usize = 1 << 20;
    let mut pair = Pair::open(provider, BYTES).await;
    pair.from.memory.write(0, &pattern(9, BYTES));
    pair.into.fill(0xee);
    let other = pair.into.open_inbox().await;
    let fabric = pair.from.fabric.clone();
    let outbox = fabric.open_outbox(&other.addresses).await.unwrap();
    let mut wrong = pair.into.region();
    wrong.keys[0].key ^= 1;
    let opened = fabric.open_flow(FlowId(1), pair.outbox, wrong).await;
    opened.unwrap();
    let opened = fabric
        .open_flow(FlowId(2), outbox, pair.into.region())
        .await;
    opened.unwrap();
    let astray = pair.into.arm(pair.inbox.endpoint, 1).await;
    let armed = pair.into.arm(other.endpoint, 16).await;
    let pusher = fabric.pusher();
    let write = same_place(FlowId(1), 0, 4096, Immediate::new(astray.key, 1));
    post(&pusher, write).await;
    fabric.seal(FlowId(1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(pair.into.holds(0xee, 0, BYTES), "{provider}: it landed");
    for piece in 0..16 {
        let len = BYTES as u32 / 16;
        let imm = Immediate::new(armed.key, 1);
        post(
            &pusher,
            same_place(FlowId(2), u64::from(piece * len), len, imm),
        )
        .await;
    }
    fabric.seal(FlowId(2)).await.unwrap();
    // The inbox that was written to may have failed; its slot is not full.
    let full = format!("full {}", armed.key.to_bits());
    while within(pair.into.event()).await != full {}
    assert!(pair.into.holds_pattern(9, 0, BYTES));
    assert_eq!(pair.into.immediates().0, 16, "{provider}: it counted");
    within(fabric.close(pair.outbox)).await.unwrap();
    let mut ended = Vec::new();
    while ended.len() < 2 {
        if let FabricEvent::FlowEnded(end) = pair.from.event().await {
            ended.push(end.ended.flow);
            assert!(end.ended.flow == FlowId(1) || end.ended.complete, "{end:?}");
        }
    }
}

/// Providers that offer what is needed and do not do it.
#[test]
fn providers_that_wedge_are_refused_with_the_reason() {
    for (provider, reason) in [
        ("sockets", "never"),
        ("udp", "never"),
        ("tcp;ofi_rxd", "never"),
    ] {
        let memory = tandem_memory::HostMemory::create("fabric-test", 4096).unwrap();
        let opened = tandem_fabric::Fabric::open(options(provider), memory.into());
        let error = opened.unwrap_err();
        assert!(matches!(error, OpenError::Unfit { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let found = tandem_fabric::available_providers().unwrap();
    let offered = |name: &str| found.iter().any(|p| p.name.contains(name));
    assert!(!offered("sockets") && !offered("rxd"), "{found:?}");
}

/// Every line of the document names what stands for it, and that is there.
#[test]
fn every_fact_has_a_test_or_a_guard() {
    let crate_folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(crate_folder.join("../../docs/providers.md")).unwrap();
    let mut facts = 0;
    for line in text.lines().filter(|l| l.starts_with("| ")) {
        let last = line.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        if last == "test or guard" || last.starts_with("---") {
            continue;
        }
        let named: Vec<&str> = last.split('`').filter(|n| n.contains("::")).collect();
        assert!(!named.is_empty(), "{line}");
        facts += 1;
        for name in named {
            let (file, function) = name.split_once("::").unwrap();
            let source = std::fs::read_to_string(crate_folder.join(file));
            let source = source.unwrap_or_else(|e| panic!("{name}: {e}"));
            let there = ["(", "<"].map(|end| source.contains(&format!("fn {function}{end}")));
            assert!(there.contains(&true), "{name}");
        }
    }
    assert!(facts > 40, "{facts}");
}
