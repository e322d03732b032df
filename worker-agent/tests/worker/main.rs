//! Whole workers in this process, over real QUIC and real libfabric, asked as a gateway asks.
//!
//! One binary, so that it links once. Needs libfabric1.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

// Every test of a package is linked when one of them is fuzzed, and wants the fuzzer.
use bolero as _;

mod chaos;
mod constraints;
mod drafting;
mod engines;
mod fleet;
mod liars;
mod measure;
mod pattern;
mod prefixes;
mod queues;
mod shardings;
mod timed;
mod traces;
