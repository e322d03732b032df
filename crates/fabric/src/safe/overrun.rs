//! Test: completion queues of software providers grow, so that an inbox's needs no bound there.
//!
//! One thread owns both ends, so nothing is left to chance: writes are acknowledged as delivered, one
//! by one, while their target's queue of a few entries is driven and never read; then it is read.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libfabric_sys::inline;
use tandem_memory::{HostMemory, Memory};

use super::domain::Domain;
use super::endpoint::{BATCH, Endpoint, RawWrite, Read};
use crate::driver::contexts::Contexts;
use crate::open::open_domains;
use crate::options::FabricOptions;

const SHORT: usize = 4;
const WRITES: u32 = 1500;
const PART: &str = "TANDEM_FABRIC_TEST_OVERRUN";

#[test]
fn tcp_s_queue_grows() {
    assert_eq!(fill_and_read("tcp"), (0..WRITES).collect::<Vec<_>>());
}

#[test]
fn the_layer_s_queue_grows() {
    let arrived = fill_and_read("tcp;ofi_rxm");
    assert_eq!(arrived, (0..WRITES).collect::<Vec<_>>());
}

/// In a process that ends without closing its endpoints: two of one process do not survive that on
/// `shm`.
#[test]
fn shm_s_queue_grows() {
    if std::env::var_os(PART).is_some() {
        let arrived = fill_and_read("shm");
        let all = arrived == (0..WRITES).collect::<Vec<_>>();
        rustix::process::kill_process(
            rustix::process::getpid(),
            if all {
                rustix::process::Signal::USR1
            } else {
                rustix::process::Signal::KILL
            },
        )
        .unwrap();
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "safe::overrun::shm_s_queue_grows"]);
    let output = child.env(PART, "1").output().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(
        signal,
        Some(rustix::process::Signal::USR1.as_raw()),
        "{output:?}"
    );
    crate::shm::remove_leftovers().unwrap();
}

/// The immediates that a short queue gave after all writes were acknowledged.
fn fill_and_read(provider: &str) -> Vec<u32> {
    let options = FabricOptions {
        provider: provider.into(),
        ..FabricOptions::default()
    };
    let memory: Arc<dyn Memory> = Arc::new(HostMemory::create("overrun", 4096).unwrap());
    let domain = Rc::new(open_domains(&options, &memory).unwrap().remove(0));
    let target = Endpoint::open(Rc::clone(&domain), SHORT).unwrap();
    let source = Endpoint::open(Rc::clone(&domain), 1024).unwrap();
    write_all(&domain, &source, &target);
    let mut arrived = Vec::new();
    // SAFETY: numbers and pointers, all of which may be zero.
    let mut entries = unsafe { std::mem::zeroed() };
    loop {
        match target.read(&mut entries) {
            Read::Entries(n) => arrived.extend(entries[..n].iter().map(|e| e.data as u32)),
            Read::Empty => break,
            Read::Error(error) => panic!("{error:?}"),
            Read::Broken(errno) => panic!("the queue is broken: {errno}"),
        }
    }
    if provider == "shm" {
        std::mem::forget((source, target));
    }
    arrived
}

/// Writes until all writes have been acknowledged, and drives the target without reading its queue.
fn write_all(domain: &Domain, source: &Endpoint, target: &Endpoint) {
    let peer = source.insert(&target.address().unwrap()).unwrap();
    let mut contexts = Contexts::new(64);
    let (mut posted, mut completed) = (0, 0);
    let started = Instant::now();
    // SAFETY: numbers and pointers, all of which may be zero.
    let mut entries: [_; BATCH] = unsafe { std::mem::zeroed() };
    while completed < WRITES {
        assert!(started.elapsed() < Duration::from_secs(30), "{completed}");
        if posted < WRITES
            && let Some(context) = contexts.take(())
        {
            let write = RawWrite {
                local_offset: 0,
                len: 8,
                peer,
                address: domain.base(),
                key: domain.key(),
                immediate: posted,
                context,
            };
            // SAFETY: eight bytes are in the arena; the cell is given back with its completion.
            match unsafe { source.write(&write) } {
                Ok(()) => posted += 1,
                Err(_) => drop(contexts.give_back(context)),
            }
        }
        // SAFETY: none are asked for; this drives progress.
        unsafe { inline::fi_cq_read(target.queue().cast(), std::ptr::null_mut(), 0) };
        match source.read(&mut entries) {
            Read::Entries(n) => {
                for entry in &entries[..n] {
                    contexts.give_back(entry.op_context).unwrap();
                    completed += 1;
                }
            }
            Read::Empty => {}
            Read::Error(error) => panic!("{error:?}"),
            Read::Broken(errno) => panic!("{errno}"),
        }
    }
}
