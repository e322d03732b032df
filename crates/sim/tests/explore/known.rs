//! What the shells do for a reason: without it, the same worlds go wrong.

use tandem_sim::{Config, LateReads};

use super::{goes_wrong, with};

/// A decode worker names each lease itself. Were it to tell a request's prefill words from those of an
/// earlier lease by the gateway's id, then a gateway that lost its stream before it heard of the lease
/// would ask again under the same id, and the late word of the first writer free the second one's
/// pages.
#[test]
fn a_request_that_is_asked_for_twice_under_one_id_is_unsafe() {
    let mut config = Config::small(2);
    config.fresh_ids = false;
    let wrong = goes_wrong(
        "one id for two leases",
        with(config, |b| b.generate_breaks = 1),
    );
    assert_eq!(wrong.invariant(), "I2");
}

/// A lost decode worker counts as fenced once the outboxes to it are closed. Where a target can still
/// read the source after that, as on shm, the source's pages would be let go too early: there the shell
/// waits for the inbox to be closed, or for its process to be gone, which this world does not know.
#[test]
fn a_source_fence_relies_on_closed_outboxes_being_read_no_more() {
    let mut config = Config::small(1);
    config.late_reads = LateReads::Always;
    let config = with(config, |b| {
        (b.dispatch_breaks, b.write_errors) = (1, 1);
    });
    let wrong = goes_wrong("reads after the close", config);
    assert_eq!(wrong.invariant(), "I2");
}

/// A fence of the source may find nothing to close where somebody else is closing the outbox already: it
/// waits for that.
#[test]
fn a_source_fence_does_not_wait_for_a_close_that_is_under_way() {
    let mut config = Config::small(1);
    config.late_reads = LateReads::UntilClosed;
    config.fence_waits = false;
    let config = with(config, |b| {
        (b.dispatch_breaks, b.write_errors, b.timeouts) = (1, 1, 1);
    });
    let wrong = goes_wrong("a close under way", config);
    assert_eq!(wrong.invariant(), "I2");
}

/// Closing an outbox that somebody is opening waits for the opening. Did it nothing, the outbox would be
/// open afterwards with nobody to close it: writes over it that never complete would never be ended.
#[test]
fn an_outbox_that_is_closed_while_it_is_opened_is_lost() {
    let mut config = with(Config::small(2), |b| b.dispatch_breaks = 1);
    config.prefill.pages = 2;
    config.close_holds = false;
    let wrong = goes_wrong("a close before the opening", config.clone());
    assert_eq!(wrong.invariant(), "I4");
    if super::is_long() {
        config.close_holds = true;
        super::is_clean("a close that waits for the opening", config);
    }
}
