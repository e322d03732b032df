//! The closed loop: so many users, each with one request at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::Context;
use super::open::Entered;
use super::prepared::{AHEAD, Prepared, prepared};
use super::session::session;

/// Runs all users until there is nothing more to send, or it is stopped.
pub(super) fn drive(runtime: &Handle, context: &Arc<Context>, concurrency: u32, ramp: Duration) {
    let (ready, next) = mpsc::channel(AHEAD);
    let next = Arc::new(Mutex::new(next));
    let (number, of) = (context.plan.part.number, context.plan.part.of);
    let mut users = JoinSet::new();
    for user in (number - 1..concurrency).step_by(of as usize) {
        let begin = context.start + ramp.mul_f64(f64::from(user) / f64::from(concurrency));
        users.spawn_on(
            user_of(Arc::clone(context), Arc::clone(&next), begin),
            runtime,
        );
    }
    drop(next);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for one in prepared(&context.plan, &context.classes, context.schedule.requests) {
                if ready.blocking_send(one).is_err() {
                    break;
                }
            }
            drop(ready);
        });
        runtime.block_on(async {
            let all = async { while users.join_next().await.is_some() {} };
            tokio::select! {
                () = all => {}
                () = context.live.until_stopped() => {}
            }
            // What is still under way is cut, and has no record. The last receiver goes too.
            users.shutdown().await;
        });
    });
}

/// One user: the next request is scheduled at the end of the one before.
async fn user_of(
    context: Arc<Context>,
    next: Arc<Mutex<mpsc::Receiver<Prepared>>>,
    mut scheduled: Instant,
) {
    let end = context.schedule.length.map(|length| context.start + length);
    context.clock.sleep_until(scheduled).await;
    while end.is_none_or(|end| scheduled < end) {
        let one = next.lock().await.recv().await;
        let Some(one) = one else { return };
        session(Entered::into(&context), one, scheduled).await;
        scheduled = Instant::now();
    }
}
