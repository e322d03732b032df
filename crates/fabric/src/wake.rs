//! Waking the fabric's thread out of poll(2), without a system call while it is awake.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::EventfdFlags;

/// An eventfd, and whether the thread is about to wait on it.
#[derive(Debug)]
pub(crate) struct Wake {
    fd: OwnedFd,
    asleep: AtomicBool,
}

impl Wake {
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = rustix::event::eventfd(0, flags)?;
        Ok(Self {
            fd,
            asleep: AtomicBool::new(false),
        })
    }

    /// Called behind each push to a queue of the thread. The fences pair: either this sees
    /// `asleep`, or the thread, which looks at its queues after setting it, sees the push.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // Fails only where the counter is full, that is: readable anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// The thread says that it will wait. It must look at its queues once more before it does.
    pub(crate) fn prepare(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake. Whether it was called.
    pub(crate) fn awake(&self) -> bool {
        self.asleep.store(false, Ordering::Relaxed);
        let mut count = [0; 8];
        rustix::io::read(&self.fd, &mut count).is_ok()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
