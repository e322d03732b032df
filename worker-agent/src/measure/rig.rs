//! The parts of a prefill worker that a layer passes through, and an engine that is made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng as _, SeedableRng as _};
use tandem_core::flow::{Flow, flows};
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::{Shard, WorkerLayout, layer_names};
use tandem_core::plan::{expected, grain, travelling};
use tandem_core::push::{Push, PushFlow};
use tandem_core::{EndpointId, FlowId, PageIndex, SequenceId, TransferId};
use tandem_engine::{Progress, StepItem, StepPlan, StepWatch as _};
use tandem_fabric::bench::{Bench, BenchError, Case, Target};
use tandem_fabric::{
    Fabric, FabricError, FabricEvent, FabricEvents, FabricOptions, FlowEnded, IdlePolicy,
};
use tandem_memory::HostMemory;
use tokio::runtime::Runtime;

use super::{BumpPlan, CPUS_TO_SPIN, MeasureError, Threads};
use crate::watcher::{self, Pace, Watcher};

/// Without any progress for so long, it has failed.
const STUCK: Duration = Duration::from_secs(30);
/// Of a page.
const TOKENS: u16 = 16;

/// All of it, with a way to the receiver.
pub(super) struct Rig {
    fabric: Fabric,
    events: FabricEvents,
    watcher: Watcher,
    progress: Arc<Progress>,
    runtime: Runtime,
    outbox: EndpointId,
    target: Target,
    layouts: Layouts,
    pinned: bool,
}

/// One source shard of all layers, and a target shard for each.
struct Layouts {
    source: WorkerLayout,
    target: WorkerLayout,
    flows: Vec<Flow>,
    tokens: u32,
}

impl Layouts {
    fn new(plan: &BumpPlan) -> Result<Self, MeasureError> {
        let geometry = KvGeometry {
            layers: plan.layers,
            kv_heads: 4,
            head_dim: 64,
            page_tokens: TOKENS,
            dtype: KvDtype::F16,
            kind: KvKind::Heads,
            order: KvOrder::Together,
            context_bytes: 0,
        };
        let shard = |layer| Shard {
            data_rank: 0,
            layers: layer..layer + 1,
            heads: 0..geometry.kv_heads,
        };
        let shards = (0..plan.layers).map(shard).collect();
        let names = layer_names(plan.layers);
        let source = WorkerLayout::tensor_parallel(geometry, 2 * plan.writes, 1)?;
        let target = WorkerLayout::new(geometry, names, plan.writes, shards)?;
        let flows = flows((&source, 0), (&target, 0), 0);
        Ok(Self {
            flows: flows.map_err(|e| MeasureError::Layer(e.to_string()))?,
            source,
            target,
            tokens: plan.writes * u32::from(TOKENS),
        })
    }

    /// Pieces of one step.
    fn pieces(&self) -> u64 {
        let tokens = travelling(0, self.tokens, TOKENS);
        let of = |flow: &Flow| expected(&self.target, flow.target, &tokens, grain(TOKENS, TOKENS));
        self.flows.iter().map(of).sum()
    }
}

impl Rig {
    pub(super) fn build(
        plan: &BumpPlan,
        threads: Threads,
        bench: &mut Bench,
    ) -> Result<Self, MeasureError> {
        let layouts = Layouts::new(plan)?;
        let piece = layouts.source.arena(0).geometry().piece_bytes() as u32;
        let case = Case::new(&plan.provider, piece, plan.writes);
        let target = bench.target(&case, layouts.pieces() * u64::from(plan.steps))?;
        let bytes = layouts.source.arena(0).bytes();
        let memory = HostMemory::create("measure", bytes).map_err(BenchError::from)?;
        let (pace, idle, cpus) = match threads {
            Threads::Napping => (Pace::Shared, IdlePolicy::default(), None),
            Threads::Spinning => (Pace::Own, IdlePolicy::dedicated(), last_two_cpus()),
        };
        let options = FabricOptions {
            provider: plan.provider.clone(),
            bind: Some(target.local),
            cpu: cpus.map(|(fabric, _)| fabric),
            idle,
            ..FabricOptions::default()
        };
        let (fabric, events) = Fabric::open(options, Arc::new(memory)).map_err(BenchError::from)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let outbox = on(&runtime, fabric.open_outbox(&target.addresses))??;
        let progress = Arc::new(Progress::create().map_err(BenchError::from)?);
        let watcher = Watcher::start(
            layouts.source.clone(),
            1 << 20,
            Arc::clone(&progress),
            vec![fabric.pusher()],
            watcher::orders(),
            (pace, cpus.map(|(_, watcher)| watcher)),
        )?;
        Ok(Self {
            fabric,
            events,
            watcher,
            progress,
            runtime,
            outbox,
            target,
            layouts,
            pinned: cpus.is_some(),
        })
    }

    pub(super) const fn pinned(&self) -> bool {
        self.pinned
    }

    /// Runs all steps. The latencies in seconds, of those that count.
    pub(super) fn run(&mut self, plan: &BumpPlan) -> Result<Vec<f64>, MeasureError> {
        let mut random = rand::rngs::SmallRng::seed_from_u64(plan.seed);
        let warm = plan.steps / 10;
        let mut seconds = Vec::new();
        for step in 0..plan.steps {
            let gap = || random.random_range(plan.gap.0..=plan.gap.1);
            let took = self.step(u64::from(step), gap)?;
            if step >= warm {
                seconds.extend(took);
            }
        }
        Ok(seconds)
    }

    fn step(
        &mut self,
        step: u64,
        mut gap: impl FnMut() -> Duration,
    ) -> Result<Vec<f64>, MeasureError> {
        let layers = self.layouts.flows.len() as u64;
        let first = step * layers;
        self.announce(step, first)?;
        let bumped: Vec<Instant> = (0..layers)
            .map(|_| {
                std::thread::sleep(gap());
                let now = Instant::now();
                self.progress.bump();
                now
            })
            .collect();
        let mut seconds = vec![0.0; bumped.len()];
        for _ in 0..layers {
            let ended = self.ended()?;
            let layer = ended.ended.flow.0.checked_sub(first);
            let layer = layer.filter(|l| *l < layers && ended.ended.complete);
            let (Some(layer), Some(posted)) = (layer, ended.first_post) else {
                return Err(MeasureError::Layer(format!("{ended:?}")));
            };
            let layer = layer as usize;
            // No saturation: a write that is posted before its layer's bump is a fault, and shows.
            assert!(
                posted >= bumped[layer],
                "a write before its layer was complete"
            );
            seconds[layer] = (posted - bumped[layer]).as_secs_f64();
        }
        // Nobody else reads them, and the watcher waits for room.
        while self.watcher.reports.try_recv().is_ok() {}
        Ok(seconds)
    }

    /// Opens a flow for each layer and tells of the step.
    fn announce(&mut self, step: u64, first: u64) -> Result<(), MeasureError> {
        let mut push_flows = Vec::new();
        for (id, flow) in (first..).map(FlowId).zip(&self.layouts.flows) {
            let region = self.target.region.clone();
            on(
                &self.runtime,
                self.fabric.open_flow(id, self.outbox, region),
            )??;
            push_flows.push(PushFlow {
                id,
                flow: flow.clone(),
                target: self.layouts.target.arena(flow.target),
                target_head: 0,
                key: self.target.key,
            });
        }
        let sequence = SequenceId(step);
        let pages = self.layouts.target.pages();
        let push = Push {
            transfer: TransferId(step),
            sequence,
            // No two of them are neighbours: a write for each.
            source_pages: (0..pages).map(|page| PageIndex(2 * page)).collect(),
            target_pages: (0..pages).map(PageIndex).collect(),
            target_from: 0,
            tokens: travelling(0, self.layouts.tokens, TOKENS),
            flows: push_flows,
        };
        let behind = || MeasureError::Layer("the watcher is behind".into());
        self.watcher
            .orders
            .start(push, false)
            .map_err(|()| behind())?;
        self.watcher.orders.step_planned(StepPlan {
            first_layer: self.progress.layers(),
            items: vec![StepItem {
                sequence,
                start: 0,
                end: self.layouts.tokens,
                last: true,
            }],
        });
        Ok(())
    }

    fn ended(&mut self) -> Result<FlowEnded, MeasureError> {
        loop {
            match on(&self.runtime, self.events.recv())? {
                Some(FabricEvent::FlowEnded(ended)) => return Ok(ended),
                Some(FabricEvent::EndpointFailed { error, .. }) => {
                    return Err(MeasureError::Layer(error));
                }
                Some(FabricEvent::Full { .. } | FabricEvent::Overfull { .. }) => {}
                None => return Err(FabricError::Closed.into()),
            }
        }
    }

    /// Ends both threads.
    pub(super) fn close(self) -> Result<(), MeasureError> {
        drop(self.watcher);
        Ok(on(&self.runtime, self.fabric.shutdown())??)
    }
}

/// Waits for a future, but not for ever.
fn on<T>(runtime: &Runtime, future: impl Future<Output = T>) -> Result<T, MeasureError> {
    // Inside: a timeout asks for the runtime's clock when it is made.
    let timed = runtime.block_on(async { tokio::time::timeout(STUCK, future).await });
    timed.map_err(|_| MeasureError::Stuck(STUCK))
}

/// The last two cpus that this process may use, where that leaves enough for the others.
fn last_two_cpus() -> Option<(usize, usize)> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect();
    match cpus.as_slice() {
        [.., fabric, watcher] if cpus.len() >= CPUS_TO_SPIN => Some((*fabric, *watcher)),
        _ => None,
    }
}
