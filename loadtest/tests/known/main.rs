//! The harness against a server of known behaviour: real sockets, stated delays, stated faults.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod campaign;
mod faults;
mod gone;
mod loads;
mod metrics;
mod search;
mod secure;
mod start;
mod support;
mod times;
