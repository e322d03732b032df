//! The parts of the gateway that follow the configuration, each for its keys of `reload::RELOADABLE`.

use std::sync::Arc;

use tandem_config::GatewayConfig;
use tandem_policies::Pairing;

use crate::auth::{Gate, Rules};
use crate::door::Door;
use crate::http::FollowsLimits;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::reading::{Limits, Reading};
use crate::reload::{Commit, Part};
use crate::workers::Workers;

/// What they are made from.
pub(crate) struct Followers {
    pub(crate) live: Live,
    pub(crate) gate: Arc<Gate>,
    pub(crate) door: Door,
    pub(crate) workers: Arc<Workers>,
    pub(crate) reading: Reading,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: FollowsLimits,
}

impl Followers {
    /// In the order in which they are told.
    pub(crate) fn parts(self) -> Vec<Box<dyn Part>> {
        vec![
            Box::new(self.live),
            Box::new(keys(self.gate)),
            Box::new(admission(self.door.clone(), self.metrics)),
            Box::new(policy(self.door)),
            Box::new(fleet(self.workers)),
            Box::new(reading(self.reading)),
            Box::new(self.limits),
        ]
    }
}

fn keys(gate: Arc<Gate>) -> impl Part {
    move |_: &GatewayConfig, new: &GatewayConfig| {
        let rules = Rules::load(&new.auth).map_err(|error| error.to_string())?;
        let gate = Arc::clone(&gate);
        let commit: Commit = Box::pin(async move { gate.exchange(rules) });
        Ok(Some(commit))
    }
}

fn admission(door: Door, metrics: Arc<Metrics>) -> impl Part {
    move |old: &GatewayConfig, new: &GatewayConfig| {
        if old.admission == new.admission && tickets(old) == tickets(new) {
            return Ok(None);
        }
        let before = door.admission();
        let settings = new.admission.clone().within(new.queue_limit);
        let mut settings = settings
            .following(&before)
            .map_err(|error| format!("[admission] {error}"))?;
        settings.breaker.seed = before.breaker.seed;
        let (door, metrics, tickets) = (door.clone(), Arc::clone(&metrics), tickets(new));
        let commit: Commit = Box::pin(async move {
            metrics.follow(&settings);
            door.admit(settings, tickets).await;
        });
        Ok(Some(commit))
    }
}

/// Requests that may be in flight: one for each connection, and as many as may wait besides.
pub(crate) const fn tickets(config: &GatewayConfig) -> usize {
    config.max_connections + config.queue_limit
}

fn policy(door: Door) -> impl Part {
    move |old: &GatewayConfig, new: &GatewayConfig| {
        if old.policy == new.policy {
            return Ok(None);
        }
        let policy = Pairing::new(&new.policy, rand::random());
        let door = door.clone();
        let commit: Commit = Box::pin(async move { door.follow(policy).await });
        Ok(Some(commit))
    }
}

fn fleet(workers: Arc<Workers>) -> impl Part {
    move |_: &GatewayConfig, new: &GatewayConfig| {
        workers
            .check(&new.workers)
            .map_err(|error| error.to_string())?;
        let (workers, addresses) = (Arc::clone(&workers), new.workers.clone());
        let commit: Commit = Box::pin(async move { workers.follow(&addresses).await });
        Ok(Some(commit))
    }
}

fn reading(reading: Reading) -> impl Part {
    move |_: &GatewayConfig, new: &GatewayConfig| {
        let (reading, limits) = (reading.clone(), Limits::of(new));
        let commit: Commit = Box::pin(async move { reading.follow(limits) });
        Ok(Some(commit))
    }
}
