//! Peers that come and go leave nothing behind: no memory, no descriptor, no file.
//!
//! In processes of their own, since what a process holds is measured, and other tests run in this
//! one.

use std::fs;

use tandem_core::FlowId;
use tandem_fabric::Immediate;

use crate::child::{Process, hear, say};
use crate::pair::{Side, options, post, same_place};
use crate::remote::Receiver;

crate::on_every_provider!(a_thousand_peers_leave_nothing_behind);

const PROVIDER: &str = "TANDEM_FABRIC_TEST_PROVIDER";
/// Until allocators and caches have what they keep.
const WARM_UP: u64 = 200;
/// On shm, where each costs 16 ms, a quarter of them.
const VISITS: u64 = 800;
/// Of growth in all visits. Measured: 4.6 MB with libfabric 1.17's `net` (5.7 KB for each connection
/// that has ended, for ever, which 2.5 has mended), 0.3 MB on shm, none with 2.5. A queue that is not
/// closed is 57 KB.
const BOUND: u64 = 8 << 20;

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    resident_bytes: u64,
    descriptors: usize,
    shm_files: usize,
}

impl Held {
    fn by(process: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let resident = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kibibytes = resident.unwrap().trim().trim_end_matches(" kB");
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let own = format!("{process}:");
        let files = fs::read_dir("/dev/shm").unwrap();
        let names = files.filter_map(|f| f.unwrap().file_name().into_string().ok());
        Self {
            resident_bytes: kibibytes.parse::<u64>().unwrap() << 10,
            descriptors: descriptors.count(),
            shm_files: names.filter(|n| n.starts_with(&own)).count(),
        }
    }
}

fn share(provider: &str) -> u64 {
    if provider == "shm" { 4 } else { 1 }
}

/// Each visit opens both ends of a session, sends a page and closes both.
async fn a_thousand_peers_leave_nothing_behind(provider: &str) {
    let mut visitor = Process::start("visit", &[(PROVIDER, provider)]);
    for side in ["receiver", "sender"] {
        let line = visitor.line();
        let n: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        let bound = BOUND / share(provider);
        assert!(n[0] < bound, "{provider}, {side}: {} bytes more", n[0]);
        assert_eq!(n[1], n[2], "{provider}, {side}: descriptors");
        assert_eq!(n[3], n[4], "{provider}, {side}: files in /dev/shm");
    }
    visitor.tell("go");
    assert!(visitor.wait());
}

/// The child's part, which has the receiver as a child of its own.
pub(crate) fn visit() {
    let provider = std::env::var(PROVIDER).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut receiver = Receiver::start(&options(&provider), 1 << 20);
        let mut side = Side::open(options(&provider), 1 << 20);
        let share = share(&provider);
        let (warm_up, visits) = (WARM_UP / share, VISITS / share);
        let processes = [receiver.process(), std::process::id()];
        for visit in 0..warm_up {
            one(&mut side, &mut receiver, visit).await;
        }
        let before = processes.map(Held::by);
        for visit in warm_up..warm_up + visits {
            one(&mut side, &mut receiver, visit).await;
        }
        for (before, after) in before.into_iter().zip(processes.map(Held::by)) {
            let grown = after.resident_bytes.saturating_sub(before.resident_bytes);
            say(&format!(
                "{grown} {} {} {} {}",
                before.descriptors, after.descriptors, before.shm_files, after.shm_files
            ));
        }
        hear();
        side.fabric.shutdown().await.unwrap();
    });
}

async fn one(side: &mut Side, receiver: &mut Receiver, visit: u64) {
    let inbox = receiver.open_inbox().await;
    let armed = receiver.arm(inbox.endpoint, 1).await;
    let (flow, fabric) = (FlowId(visit), side.fabric.clone());
    let outbox = fabric.open_outbox(&inbox.addresses).await.unwrap();
    let opened = fabric.open_flow(flow, outbox, receiver.region()).await;
    opened.unwrap();
    let write = same_place(flow, 0, 64 << 10, Immediate::new(armed.key, 1));
    post(&fabric.pusher(), write).await;
    fabric.seal(flow).await.unwrap();
    receiver.full(armed).await;
    assert!(side.flow_ended().await.ended.complete);
    receiver.release(armed).await;
    receiver.close(inbox.endpoint).await;
    fabric.close(outbox).await.unwrap();
}
