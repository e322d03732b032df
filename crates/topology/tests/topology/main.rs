//! Topologies of directory trees that imitate the sysfs of real servers, of random ones and of
//! broken ones.
//!
//! One binary, so that it links once. Needs no hardware.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod broken;
mod damaged;
mod every_machine;
mod explicit;
mod fuzz;
mod made_tree;
mod odd_machines;
mod random_machine;
mod report;
mod servers;
mod this_machine;
