//! The open loop: each request goes out at its moment, whatever came of those before it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::Context;
use super::collector::Sample;
use super::exchange::{Call, blank};
use super::prepared::{AHEAD, Prepared, prepared};
use super::session::session;
use crate::clock::block_until;
use crate::record::{Failure, FailureKind};

/// Sends all of it and waits until all has its end, or is stopped.
pub(super) fn drive(runtime: &Handle, context: &Arc<Context>) {
    let times = context.schedule.times.as_deref().unwrap_or(&[]);
    let (ready, next) = sync_channel(AHEAD);
    let mut under_way = JoinSet::new();
    thread::scope(|threads| {
        let prepare = || {
            let count = Some(times.len() as u64);
            for one in prepared(&context.plan, &context.classes, count) {
                // Nobody takes it any more where the run was stopped.
                if ready.send(one).is_err() {
                    break;
                }
            }
            drop(ready);
        };
        threads.spawn(prepare);
        send(runtime, context, times, next, &mut under_way);
    });
    runtime.block_on(async {
        let all = async { while under_way.join_next().await.is_some() {} };
        tokio::select! {
            () = all => {}
            () = context.live.until_stopped() => {}
        }
    });
    // What is still under way is cut, and has no record.
    runtime.block_on(under_way.shutdown());
}

fn send(
    runtime: &Handle,
    context: &Arc<Context>,
    times: &[Duration],
    next: Receiver<Prepared>,
    under_way: &mut JoinSet<()>,
) {
    let live = &context.live;
    for one in next {
        let Some(at) = times.get(one.index as usize) else {
            break;
        };
        let scheduled = context.start + *at;
        if !block_until(scheduled, || live.stopped().is_some()) {
            break;
        }
        if live.counters.in_flight.load(Ordering::Relaxed) >= context.plan.max_in_flight.into() {
            unsent(runtime, context, &one, scheduled);
        } else {
            // Counted here, so that the next look sees it.
            let entered = Entered::into(context);
            under_way.spawn_on(session(entered, one, scheduled), runtime);
        }
        while under_way.try_join_next().is_some() {}
    }
}

/// The context of something that is counted as under way until it is dropped.
pub(super) struct Entered(pub(super) Arc<Context>);

impl Entered {
    pub(super) fn into(context: &Arc<Context>) -> Self {
        context.live.enter();
        Self(Arc::clone(context))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.live.leave();
    }
}

/// The record of a request that there was no room for.
fn unsent(runtime: &Handle, context: &Arc<Context>, one: &Prepared, scheduled: Instant) {
    let call = Call {
        index: one.index,
        number: 0,
        class: one.class,
        session: one.session,
        turn: &one.first,
        body: one.body.clone(),
        keep_text: false,
    };
    let mut record = blank(context, &call, scheduled);
    let most = context.plan.max_in_flight;
    record.failed(Failure {
        kind: FailureKind::Unsent,
        message: format!("not sent: {most} were under way already (--max-in-flight)"),
    });
    runtime.block_on(context.collect(Sample {
        record,
        times: None,
    }));
}
