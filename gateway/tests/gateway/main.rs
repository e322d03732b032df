//! The gateway over real HTTP and real QUIC with certificates. What stands behind it is a scripted
//! worker: a test double of a remote process that speaks the wire protocol and does what a test says.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod admission;
mod bad_input;
mod client;
mod ends;
mod exposition;
mod harness;
mod limits;
mod places;
mod retry;
mod scripted_worker;
mod shapes;
mod telemetry;
