//! The load harness: what is sent when, what comes back, and what that says about a server.
//!
//! Owns arrivals, workloads, traces, the clients, their clocks and the figures. Works against any
//! OpenAI-compatible endpoint and refuses to know a gateway's insides.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod client;
pub mod input;
pub mod lengths;
mod seed;
pub mod statistics;
pub mod trace;
pub mod units;
pub mod workload;

pub use client::{Answer, Client, ClientError, Event, Events};
