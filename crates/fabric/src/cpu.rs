//! Keeping a thread on one cpu.

use rustix::thread::CpuSet;

/// Cpus that can be named: those below.
pub(crate) const CPUS: usize = CpuSet::MAX_CPU;

/// Keeps the calling thread on this cpu; does nothing where none is named.
pub fn pin(cpu: Option<usize>) -> std::io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    if cpu >= CPUS {
        let why = format!("cpu {cpu}: want below {CPUS}");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
        let error = std::io::Error::from(error);
        std::io::Error::new(error.kind(), format!("cpu {cpu} cannot be used: {error}"))
    })
}
