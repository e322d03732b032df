//! What is particular to libfabric's `shm` provider (measured on 1.17).
//!
//! - Each endpoint is a file `/dev/shm/PID:UID:N` of 16 MiB (sparse), so processes that use it
//!   must share the PID namespace and `/dev/shm`, and run as one user (the target copies with
//!   `process_vm_readv(2)`). At most 256 peers per endpoint.
//! - Two endpoints of one process share a mapping, which closing one of them takes from the other:
//!   the process dies of SIGSEGV. So a fabric refuses peers in its own process.
//! - The queue of an endpoint has a spin lock in shared memory, which a sender takes for each write.
//!   A sender that is killed just then (SIGKILL; about one kill in ten under full load) leaves it
//!   locked, and the receiver's thread spins in `fi_cq_read` for ever: no inbox of that process
//!   works any more, and none can be closed. [`crate::Fabric::silent_for`] tells; only ending the
//!   process helps. Use `tcp` where peers may be killed.
//! - A process that is killed leaves its files. [`remove_leftovers`] removes those of dead
//!   processes; opening a fabric on `shm` does so.

use std::io;

const DIRECTORY: &str = "/dev/shm";

/// The parts of a name: process and user.
fn parse(name: &str) -> Option<(u32, u32)> {
    let name = name.strip_prefix("fi_shm://").unwrap_or(name);
    let mut parts = name.split(':').map(str::parse::<u32>);
    let (pid, uid) = (parts.next()?.ok()?, parts.next()?.ok()?);
    parts.all(|part| part.is_ok()).then_some((pid, uid))
}

/// The name in an address, up to its first zero.
fn name(address: &[u8]) -> Option<&str> {
    let text = address.split(|b| *b == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(text).ok()?;
    Some(name.strip_prefix("fi_shm://").unwrap_or(name))
}

/// Whether an address is an endpoint of this process.
pub(crate) fn is_own(address: &[u8]) -> bool {
    let named = name(address).and_then(parse);
    named.is_some_and(|(pid, _)| pid == std::process::id())
}

/// Whether the endpoint of an address may still read memory of this process: it is open, and its
/// process lives. A receiver reads for as long as that, whatever was closed on this side. True of an
/// address that is none.
#[must_use]
pub fn may_read(address: &[u8]) -> bool {
    let Some((name, (pid, _))) = name(address).and_then(|n| Some((n, parse(n)?))) else {
        return true;
    };
    is_alive(pid) && std::path::Path::new(DIRECTORY).join(name).exists()
}

/// Removes the endpoints that this user's dead processes left in `/dev/shm`; returns how many.
/// Processes of other PID namespaces look dead from here: do not share `/dev/shm` between those.
pub fn remove_leftovers() -> io::Result<usize> {
    let own = rustix::process::getuid().as_raw();
    let mut removed = 0;
    for entry in std::fs::read_dir(DIRECTORY)? {
        let entry = entry?;
        let named = entry.file_name().to_str().and_then(parse);
        let Some((pid, uid)) = named else { continue };
        if uid != own || is_alive(pid) {
            continue;
        }
        match std::fs::remove_file(entry.path()) {
            Ok(()) => removed += 1,
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    // Anything but "no such process" may be one; a zombie has no memory any more.
    let there = |pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH);
    pid.is_some_and(|pid| there(pid) && !is_zombie(pid))
}

fn is_zombie(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The state stands behind the name, which is in parentheses.
    stat.is_ok_and(|s| {
        s.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_endpoints_are_taken_for_such() {
        assert_eq!(parse("123:0:4"), Some((123, 0)));
        assert_eq!(parse("fi_shm://123:0:4"), Some((123, 0)));
        for other in ["123", "sem.x", "123:a:b", "", "123:0:x"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_own_address_is_known() {
        let id = std::process::id();
        assert!(is_own(format!("fi_shm://{id}:0:1\0junk").as_bytes()));
        assert!(is_own(format!("{id}:0:1").as_bytes()));
        assert!(!is_own(format!("{}:0:1", id + 1).as_bytes()));
    }

    #[test]
    fn a_process_that_has_ended_reads_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let address = format!("fi_shm://{}:0:0", child.id());
        let file = std::path::Path::new(DIRECTORY).join(format!("{}:0:0", child.id()));
        std::fs::write(&file, "").unwrap();
        // Not waited for, it becomes a zombie.
        while !is_zombie(rustix::process::Pid::from_child(&child)) {
            std::thread::yield_now();
        }
        assert!(!may_read(address.as_bytes()));
        child.wait().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(may_read(b"no address"), "who knows");
    }

    #[test]
    fn this_process_is_alive() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(4_194_304 + 1), "above the kernel's largest");
    }
}
