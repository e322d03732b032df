//! What is known to be missing, and what the rest relies on. Each of these fails once it is mended.

use tandem_sim::{Config, LateReads};

use super::{goes_wrong, with};

/// A decode worker tells a request's prefill words from those of an earlier lease by the request's id
/// alone. A gateway that lost its stream before it heard of the lease asks again under the same id, and
/// the late word of the first writer then frees the second one's pages.
#[test]
fn a_request_that_is_asked_for_twice_under_one_id_is_unsafe() {
    let config = Config::small(2);
    let wrong = goes_wrong(
        "one id for two leases",
        with(config, |b| b.generate_breaks = 1),
    );
    assert_eq!(wrong.invariant(), "I2");
}

/// A lost decode worker counts as fenced once the outboxes to it are closed. Where a target can still
/// read the source after that, as on shm, the source's pages are let go too early.
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

/// A fence of the source finds nothing to close where somebody else is closing the outbox already, and
/// does not wait for that.
#[test]
fn a_source_fence_does_not_wait_for_a_close_that_is_under_way() {
    let mut config = Config::small(1);
    config.late_reads = LateReads::UntilClosed;
    let config = with(config, |b| {
        (b.dispatch_breaks, b.write_errors, b.timeouts) = (1, 1, 1);
    });
    let wrong = goes_wrong("a close under way", config);
    assert_eq!(wrong.invariant(), "I2");
}

/// Closing an outbox that somebody is opening does nothing, and it is open afterwards with nobody to
/// close it: writes over it that never complete are never ended.
#[test]
fn an_outbox_that_is_closed_while_it_is_opened_is_lost() {
    let mut config = with(Config::small(2), |b| b.dispatch_breaks = 1);
    config.prefill.pages = 2;
    let wrong = goes_wrong("a close before the opening", config.clone());
    assert_eq!(wrong.invariant(), "I4");
    if super::is_long() {
        super::is_clean("a close before the opening, mended", config.mended());
    }
}
