//! The load harness's client side: an OpenAI client that measures.
//!
//! For now it is what the tests across processes and `make bench` stand on: requests, streams with a
//! time for every event, and order statistics. Arrival processes, traces, sweeps and reports
//! (`tandem loadtest`) are built on it later. It knows nothing of the gateway's insides.
#![forbid(unsafe_code)]

pub mod client;
pub mod statistics;

pub use client::{Answer, Client, ClientError, Event, Events};
