//! What a process has used of the processor.

use rustix::time::{ClockId, clock_gettime};

/// User and system time of all threads of this process so far, in seconds.
pub(super) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
