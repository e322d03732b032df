//! Everybody, and what is between them.

mod landing;
mod offer;
mod rest;
mod step;
mod streams;

use std::collections::BTreeMap;
use std::sync::Arc;

use tandem_core::WorkerRole;
use tandem_core::flow::{Flow, flows};
use tandem_core::layout::WorkerLayout;

use crate::budget::Budget;
use crate::config::Config;
use crate::decode::DecodeWorker;
use crate::gateway::Gateway;
use crate::memory::Places;
use crate::names::{Attempt, Life};
use crate::prefill::PrefillWorker;
use crate::stream::Stream;
use crate::violation::Violation;
use crate::wire::{Flying, WriteName};

/// What does not change in a run.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    prefill: Arc<WorkerLayout>,
    decode: Arc<WorkerLayout>,
    pub(crate) prefill_places: Vec<Places>,
    pub(crate) decode_places: Vec<Places>,
    /// Which prefill shard sends what to which decode shard.
    pub(crate) flows: Vec<Flow>,
}

impl Setup {
    pub(crate) fn new(config: Config) -> Self {
        let prefill = config.layout(WorkerRole::Prefill);
        let decode = config.layout(WorkerRole::Decode);
        let places = |layout: &WorkerLayout| {
            let shards = 0..layout.shards().len() as u16;
            shards.map(|shard| Places::new(layout, shard)).collect()
        };
        let flows = flows((&prefill, 0), (&decode, 0), 0);
        Self {
            prefill_places: places(&prefill),
            decode_places: places(&decode),
            flows: flows.expect("both sides have one geometry"),
            prefill,
            decode,
            config,
        }
    }

    pub(crate) fn layout(&self, role: WorkerRole) -> Arc<WorkerLayout> {
        match role {
            WorkerRole::Prefill => Arc::clone(&self.prefill),
            _ => Arc::clone(&self.decode),
        }
    }

    /// A lease's name at the decode worker, from which its answer's messages are told apart.
    pub(crate) const fn lease(&self, attempt: Attempt) -> u16 {
        let number = if self.config.fresh_ids {
            attempt.number
        } else {
            0
        };
        (attempt.request as u16) << 8 | number as u16
    }

    pub(crate) fn pages_for(&self, tokens: usize) -> usize {
        self.decode.geometry().pages_for(tokens)
    }
}

/// A state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) prefills: Vec<Arc<PrefillWorker>>,
    pub(crate) decodes: Vec<Arc<DecodeWorker>>,
    pub(crate) streams: BTreeMap<Attempt, Arc<Stream>>,
    pub(crate) wire: BTreeMap<WriteName, Flying>,
    pub(crate) left: Budget,
    pub(crate) wrong: Option<Violation>,
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        let config = &setup.config;
        let prefill = |i| Arc::new(PrefillWorker::new(setup, Life::first(i)));
        let decode = |i| Arc::new(DecodeWorker::new(setup, Life::first(i)));
        let mut world = Self {
            gateway: Arc::new(Gateway::new(config.requests.len(), config.retries)),
            prefills: (0..config.prefill.workers.into()).map(prefill).collect(),
            decodes: (0..config.decode.workers.into()).map(decode).collect(),
            streams: BTreeMap::new(),
            wire: BTreeMap::new(),
            left: config.budget,
            wrong: None,
        };
        for index in 0..config.prefill.workers {
            world.join(setup, WorkerRole::Prefill, index);
        }
        for index in 0..config.decode.workers {
            world.join(setup, WorkerRole::Decode, index);
        }
        if config.at_once {
            for request in 1..=config.requests.len() as u8 {
                world.submit(setup, request);
            }
        }
        world
    }

    /// What has gone wrong, if anything has.
    #[must_use]
    pub const fn violation(&self) -> Option<&Violation> {
        self.wrong.as_ref()
    }

    /// Drops streams that nobody uses any more.
    pub(crate) fn forget_streams(&mut self) {
        self.streams.retain(|_, stream| !stream.is_over());
    }

    pub(crate) fn is_up(&self, role: WorkerRole, life: Life) -> bool {
        match role {
            WorkerRole::Prefill => {
                let worker = &self.prefills[life.index()];
                worker.up && worker.life == life
            }
            _ => {
                let worker = &self.decodes[life.index()];
                worker.up && worker.life == life
            }
        }
    }
}
