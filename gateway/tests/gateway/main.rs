//! The gateway over real HTTP and real QUIC with certificates. What stands behind it is a scripted
//! worker: a test double of a remote process that speaks the wire protocol and does what a test says.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod admin;
mod admission;
mod all_at_once;
mod bad_input;
mod choices;
mod client;
mod conformance;
mod constraints;
mod cors;
mod ends;
mod exposition;
mod harness;
mod hostile;
mod http1;
mod http2;
mod http3;
mod limits;
mod log;
mod messages;
mod one_call;
mod parameters;
mod places;
mod prefixes;
mod raw;
mod reloading;
mod responses;
mod retry;
mod scripted_worker;
mod security;
mod sessions;
mod shapes;
mod slow;
mod telemetry;
mod text;
mod tls;
mod tls_client;
mod tools;
mod traces;
