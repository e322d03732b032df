//! The control plane: who talks to whom, and in what words.
//!
//! Owns the schemas (`proto/`), the framing, QUIC connections with mutual TLS and the
//! certificates behind them. Refuses to know what a message means: that is the agents' and the
//! gateway's business, and the rules are the core's.
//!
//! What must hold: nobody without a certificate of the cluster's authority gets a connection, and a
//! connection says which role and name its peer has proven (I8). Every message is bounded.
#![forbid(unsafe_code)]

pub mod channel;
pub mod convert;
pub mod endpoint;
pub mod identity;
pub mod task;
mod transport;

/// The schema's messages.
#[allow(
    missing_docs,
    clippy::all,
    reason = "generated from proto/*.proto, which document every message"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/tandem.wire.v1.rs"));
}

/// What this build speaks. Both ends must be equal.
pub const PROTOCOL_VERSION: u32 = 3;

/// What agents and engines in other processes speak.
pub const ENGINE_PROTOCOL_VERSION: u32 = 2;

pub use channel::{Channel, ChannelError, Receiver, Sender};
pub use endpoint::{ConnectError, Connection, ControlOptions, Endpoint};
pub use identity::{
    Authority, Certificate, Identity, IdentityError, PeerRole, Terms, follow_identity,
};

// Every test of a package is linked when one of them is fuzzed, and wants the fuzzer.
#[cfg(test)]
use bolero as _;
