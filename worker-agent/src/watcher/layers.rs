//! When each layer of a transfer was seen to be complete, and when its writes had been handed over: for
//! transfers whose trace is recorded. The others cost a look at an empty table.

use std::collections::HashMap;
use std::time::Instant;

use tandem_core::layout::WorkerLayout;
use tandem_core::push::Push;
use tandem_core::{FlowId, TransferId};
use tandem_fabric::Write;

/// Pushes that are kept of one transfer; a prompt of many chunks has one for each layer of each.
const MOST: usize = 1024;

/// One layer's writes, of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerPush {
    /// By its index in the model's layers; one past the last for the context.
    pub(crate) layer: u16,
    /// When the counter was seen past it.
    pub(crate) seen: Instant,
    /// When its last write had been given to the fabric.
    pub(crate) posted: Instant,
    pub(crate) writes: u32,
    pub(crate) bytes: u64,
}

/// Of all transfers that are timed.
#[derive(Default)]
pub(super) struct Layers {
    flows: HashMap<FlowId, Timed>,
    pushes: HashMap<TransferId, Vec<LayerPush>>,
    /// Of this look at the counter.
    open: Vec<(TransferId, LayerPush)>,
}

/// How offsets of a flow tell its layers.
struct Timed {
    transfer: TransferId,
    layer_bytes: u64,
    first_layer: u16,
    layers: u16,
    context: u16,
}

impl Layers {
    /// Whether nothing is timed.
    pub(super) fn is_empty(&self) -> bool {
        self.pushes.is_empty()
    }

    /// Times a transfer from now on.
    pub(super) fn start(&mut self, source: &WorkerLayout, push: &Push) {
        self.pushes.insert(push.transfer, Vec::new());
        for of in &push.flows {
            let shard = &source.shards()[usize::from(of.flow.source)];
            let timed = Timed {
                transfer: push.transfer,
                layer_bytes: source.arena(of.flow.source).layer_bytes() as u64,
                first_layer: shard.layers.start,
                layers: shard.layers.len() as u16,
                context: source.geometry().layers,
            };
            self.flows.insert(of.id, timed);
        }
    }

    /// A write goes out, of a layer that was seen now.
    pub(super) fn write(&mut self, write: &Write, seen: Instant) {
        let Some(flow) = self.flows.get(&write.flow) else {
            return;
        };
        let local = write.local_offset / flow.layer_bytes;
        let layer = if local < u64::from(flow.layers) {
            flow.first_layer + local as u16
        } else {
            flow.context
        };
        let same = |(transfer, push): &&mut (_, LayerPush)| {
            *transfer == flow.transfer && push.layer == layer
        };
        let bytes = u64::from(write.len);
        match self.open.iter_mut().rev().find(same) {
            Some((_, push)) => {
                push.writes += 1;
                push.bytes += bytes;
            }
            None => self.open.push((
                flow.transfer,
                LayerPush {
                    layer,
                    seen,
                    posted: seen,
                    writes: 1,
                    bytes,
                },
            )),
        }
    }

    /// All writes of this look have been handed over.
    pub(super) fn posted(&mut self, now: Instant) {
        for (transfer, push) in self.open.drain(..) {
            if let Some(pushes) = self.pushes.get_mut(&transfer)
                && pushes.len() < MOST
            {
                pushes.push(LayerPush {
                    posted: now,
                    ..push
                });
            }
        }
    }

    /// A transfer is over: its pushes, in the order in which they went out. Empty where it was not timed.
    pub(super) fn take(&mut self, transfer: TransferId) -> Vec<LayerPush> {
        let Some(pushes) = self.pushes.remove(&transfer) else {
            return Vec::new();
        };
        self.flows.retain(|_, flow| flow.transfer != transfer);
        pushes
    }
}
