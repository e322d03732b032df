//! The listener for operators: what the fleet does, and what it shall do.
//!
//! Owns an address of its own, with keys of its own; without any it stands on the loopback only and
//! refuses what a browser sends for another site. Decides nothing: it asks the door, the workers'
//! sessions and the configuration's follower. Every reply but the figures is JSON, errors too.

mod explain;
mod guard;
mod page;
mod routes;
mod server;

pub(crate) use server::start;
