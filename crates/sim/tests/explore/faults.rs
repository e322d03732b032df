//! Each rule, broken, is found to be broken, and the same world is clean where it holds.

use tandem_sim::{Config, Fault};

use super::{goes_wrong, is_clean, sharded, with};

fn is_found(fault: Fault, config: Config, invariant: &str) {
    let name = format!("{fault:?}");
    is_clean(&format!("without {name}"), config.clone());
    let config = Config {
        fault: Some(fault),
        ..config
    };
    assert_eq!(goes_wrong(&name, config).invariant(), invariant);
}

#[test]
fn pages_freed_on_a_timeout_are_written_by_a_stranger() {
    let config = with(Config::small(1), |b| (b.cancels, b.timeouts) = (1, 1));
    is_found(Fault::FreeOnTimeout, config, "I2");
}

#[test]
fn a_count_without_generation_counts_an_ended_transfer() {
    let config = with(Config::small(2), |b| b.cancels = 1);
    is_found(Fault::CountWithoutGeneration, config, "I3");
}

#[test]
fn a_count_without_endpoint_counts_another_peers_immediate() {
    let mut config = with(Config::small(2), |b| b.strays = 1);
    config.prefill.workers = 2;
    config.decode.pages = 2;
    config.slots = 2;
    is_found(Fault::EndpointNotChecked, config, "I3");
}

#[test]
fn a_drain_confirmed_too_early_lets_a_write_into_a_free_page() {
    let config = with(Config::small(1), |b| b.cancels = 1);
    is_found(Fault::AckBeforeDrain, config, "I2");
}

#[test]
fn a_first_error_told_at_once_lets_a_sibling_write_into_a_free_page() {
    let config = with(sharded(1), |b| b.post_failures = 1);
    is_found(Fault::ErrorWhileSiblingsInFlight, config, "I2");
}

#[test]
fn a_source_unpinned_too_early_is_read_by_a_write_in_flight() {
    is_found(Fault::SourceUnpinnedEarly, Config::small(1), "I2");
}

#[test]
fn a_slot_used_again_at_once_counts_a_draining_transfer() {
    let mut config = with(Config::small(2), |b| b.cancels = 1);
    config.decode.pages = 2;
    is_found(Fault::SlotReusedAtOnce, config, "I3");
}

#[test]
fn a_closed_region_is_no_fence() {
    let config = with(Config::small(1), |b| b.dispatch_breaks = 1);
    is_found(Fault::RegionCloseAsFence, config, "I2");
}

#[test]
fn writes_that_broke_off_have_not_drained() {
    let config = with(Config::small(1), |b| b.write_errors = 1);
    is_found(Fault::UnsettledTakenForFailed, config, "I2");
}

#[test]
fn one_full_shard_is_not_the_whole_prompt() {
    is_found(Fault::ReadyAtFirstShard, sharded(1), "I1");
}
