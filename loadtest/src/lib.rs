//! The load harness: what is sent when, what comes back, and what that says about a server.
//!
//! Owns arrivals, workloads, traces, the clients, their clocks and the figures. Works against any
//! OpenAI-compatible endpoint and refuses to know a gateway's insides.
//!
//! Pure, and the larger part: [`arrivals`], [`lengths`], [`workload`], [`schedule`], [`stream`] (what an answer's
//! events mean), [`slo`], [`search`], [`summary`], [`assertion`], [`results`],
//! [`compare`], [`report`]. Around it a thin shell:
//! [`Harness`], which finds a server and carries out runs.
//!
//! What must hold: times are measured from the *scheduled* send, so that a server that stalls shows it; what
//! the client itself adds is measured too, and a run beyond stated bounds calls itself invalid.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod assertion;
pub mod body;
pub mod campaign;
pub mod client;
mod clock;
pub mod compare;
pub mod distribution;
mod drive;
mod endpoint;
mod harness;
pub mod input;
pub mod known_server;
pub mod lengths;
pub mod plan;
pub mod record;
pub mod recorder;
pub mod report;
pub mod results;
pub mod schedule;
pub mod search;
mod seed;
pub mod server_metrics;
pub mod slo;
pub mod statistics;
pub mod stream;
pub mod summary;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod units;
pub mod workload;

pub use client::{Answer, Client, ClientError, Event, Events};
pub use drive::{Glance, Lately, Live, RunError};
pub use endpoint::{Target, TargetError, Url};
pub use harness::{Harness, StartError, TooFewDescriptors, raise_descriptors};
