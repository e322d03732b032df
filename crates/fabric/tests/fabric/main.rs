//! Flows over libfabric's software providers: both sides in this process on tcp, in two on
//! shm.
//!
//! One binary, so that it links once. Needs libfabric1: a provider that is missing fails.
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

mod bench;
mod child;
mod fences;
mod flows;
mod nics;
mod opening;
mod pair;
mod processes;
mod providers;
mod remote;
mod room;
mod visits;

/// Runs scenarios on every software provider that Tandem supports.
macro_rules! on_every_provider {
    ($($scenario:ident),* $(,)?) => {
        mod tcp { $(#[tokio::test] async fn $scenario() { super::$scenario("tcp").await; })* }
        mod shm { $(#[tokio::test] async fn $scenario() { super::$scenario("shm").await; })* }
    };
}
/// And on the layer that verbs needs, over tcp. Its 1.17 does not survive a session that breaks off
/// under fire, so not where that happens.
macro_rules! on_every_provider_and_rxm {
    ($($scenario:ident),* $(,)?) => {
        crate::on_every_provider!($($scenario),*);
        mod rxm {
            $(#[tokio::test] async fn $scenario() { super::$scenario("tcp;ofi_rxm").await; })*
        }
    };
}
pub(crate) use {on_every_provider, on_every_provider_and_rxm};
