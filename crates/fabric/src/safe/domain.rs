//! Fabric, event queue, domain and the one memory region: everything that endpoints share.

use std::ffi::c_void;
use std::io::Read;
use std::ptr::null_mut;
use std::sync::Arc;

use libfabric_sys as sys;
use libfabric_sys::inline;
use tandem_memory::Memory;

use super::check;
use super::hints::{Info, Limits};
use crate::error::{CallError, Errno};

/// An open domain with the arena registered in it.
pub(crate) struct Domain {
    pub(crate) info: Info,
    pub(crate) limits: Limits,
    pub(crate) delivery_complete: bool,
    pub(crate) waits_on_descriptors: bool,
    pub(crate) is_shm: bool,
    fabric: *mut sys::fid_fabric,
    eq: *mut sys::fid_eq,
    domain: *mut sys::fid_domain,
    region: *mut sys::fid_mr,
    memory: Arc<dyn Memory>,
}

/// Something that the event queue said.
#[derive(Debug)]
pub(crate) struct QueueEvent {
    /// The endpoint it is about, to compare; never followed.
    pub(crate) about: *const c_void,
    /// An error, where it is one.
    pub(crate) error: Option<Errno>,
}

impl Domain {
    pub(crate) fn open(
        info: Info,
        delivery_complete: bool,
        memory: Arc<dyn Memory>,
    ) -> Result<Self, CallError> {
        let mut this = Self {
            limits: info.limits(),
            is_shm: info.provider() == "shm",
            info,
            delivery_complete,
            waits_on_descriptors: false,
            fabric: null_mut(),
            eq: null_mut(),
            domain: null_mut(),
            region: null_mut(),
            memory,
        };
        let raw = this.info.as_ptr();
        // SAFETY: the info came from fi_getinfo; the out-pointer is ours. What a failing step
        // leaves null, `drop` skips.
        unsafe {
            let code =
                (this.info.library().fabric)((*raw).fabric_attr, &raw mut this.fabric, null_mut());
            check("fi_fabric", code)?;
            let mut attr: sys::fi_eq_attr = std::mem::zeroed();
            attr.wait_obj = sys::FI_WAIT_NONE;
            let code = inline::fi_eq_open(this.fabric, &raw mut attr, &raw mut this.eq, null_mut());
            check("fi_eq_open", code)?;
            let code = inline::fi_domain(this.fabric, raw, &raw mut this.domain, null_mut());
            check("fi_domain", code)?;
        }
        this.register()?;
        this.waits_on_descriptors = this.try_wait_object();
        Ok(this)
    }

    fn register(&mut self) -> Result<(), CallError> {
        let access = u64::from(sys::FI_WRITE | sys::FI_REMOTE_WRITE);
        let mut last = CallError {
            call: "fi_mr_reg",
            errno: Errno(0),
        };
        // A chosen key may be taken by chance on providers with short keys.
        for _ in 0..8 {
            let key = self.random_key().map_err(|_| CallError {
                call: "urandom",
                ..last
            })?;
            // SAFETY: the memory stays mapped as long as its Arc, which this value holds until
            // the region is closed (`Memory`'s contract); no Rust reference into it exists.
            let code = unsafe {
                inline::fi_mr_reg(
                    self.domain,
                    self.memory.address().cast(),
                    self.memory.len(),
                    access,
                    0,
                    key,
                    0,
                    &raw mut self.region,
                    null_mut(),
                )
            };
            match check("fi_mr_reg", code) {
                Ok(_) => return Ok(()),
                Err(error) if error.errno == Errno(sys::FI_ENOKEY as i32) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// A key nobody can guess, as long as the provider's keys (at most 63 bits).
    fn random_key(&self) -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes) & key_mask(self.limits.mr_key_size) & (u64::MAX >> 1))
    }

    /// Whether a completion queue of this domain can be waited for with poll(2).
    fn try_wait_object(&self) -> bool {
        let Ok(cq) = self.open_queue(16, true) else {
            return false;
        };
        let mut fd: i32 = -1;
        // SAFETY: FI_GETWAIT of an FI_WAIT_FD queue writes an int; the queue is ours and closed
        // once.
        unsafe {
            let queue = &raw mut (*cq).fid;
            let code = inline::fi_control(queue, sys::FI_GETWAIT as i32, (&raw mut fd).cast());
            inline::fi_close(queue);
            code == 0 && fd >= 0
        }
    }

    /// Whether a completion queue may have so many entries.
    pub(crate) fn try_queue(&self, entries: usize) -> Result<(), CallError> {
        let cq = self.open_queue(entries, self.waits_on_descriptors)?;
        // SAFETY: ours, bound to nothing, closed once.
        unsafe { inline::fi_close(&raw mut (*cq).fid) };
        Ok(())
    }

    pub(crate) fn open_queue(
        &self,
        entries: usize,
        descriptor: bool,
    ) -> Result<*mut sys::fid_cq, CallError> {
        let mut cq = null_mut();
        // SAFETY: an all-zero attribute struct is valid; the domain is open.
        let code = unsafe {
            let mut attr: sys::fi_cq_attr = std::mem::zeroed();
            attr.size = entries;
            attr.format = sys::FI_CQ_FORMAT_DATA;
            attr.wait_obj = if descriptor {
                sys::FI_WAIT_FD
            } else {
                sys::FI_WAIT_NONE
            };
            inline::fi_cq_open(self.domain, &raw mut attr, &raw mut cq, null_mut())
        };
        check("fi_cq_open", code)?;
        Ok(cq)
    }

    pub(crate) fn raw(&self) -> *mut sys::fid_domain {
        self.domain
    }

    pub(crate) fn eq(&self) -> *mut sys::fid_eq {
        self.eq
    }

    /// Address of the arena as peers must name it: its first byte where the provider addresses
    /// memory by virtual address, else 0.
    pub(crate) fn base(&self) -> u64 {
        if self.limits.mr_mode & sys::FI_MR_VIRT_ADDR != 0 {
            self.memory.address() as u64
        } else {
            0
        }
    }

    /// The arena's key.
    pub(crate) fn key(&self) -> u64 {
        // SAFETY: the region is open as long as self.
        unsafe { inline::fi_mr_key(self.region) }
    }

    /// The arena.
    pub(crate) fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    /// Descriptor for local buffers, null where the provider wants none.
    pub(crate) fn local_descriptor(&self) -> *mut c_void {
        if self.limits.mr_mode & sys::FI_MR_LOCAL == 0 {
            return null_mut();
        }
        // SAFETY: the region is open as long as self.
        unsafe { inline::fi_mr_desc(self.region) }
    }

    /// Whether all these queues may be waited for: none has anything to read.
    pub(crate) fn may_wait(&self, queues: &mut [*mut sys::fid]) -> bool {
        // SAFETY: the queues are open (their endpoints own them and are alive), in an array.
        unsafe { inline::fi_trywait(self.fabric, queues.as_mut_ptr(), queues.len() as i32) == 0 }
    }

    /// Next event, if any.
    pub(crate) fn next_event(&self) -> Option<QueueEvent> {
        let mut buffer = [0u64; 16];
        let mut event = 0;
        // SAFETY: the buffer is aligned and long enough for every event of 1.17; the error entry
        // is written whole when readerr returns above 0.
        unsafe {
            let bytes = size_of_val(&buffer);
            let code = inline::fi_eq_read(
                self.eq,
                &raw mut event,
                buffer.as_mut_ptr().cast(),
                bytes,
                0,
            );
            if code >= 0 {
                // Every event begins with the fid that it is about.
                return Some(QueueEvent {
                    about: buffer[0] as *const c_void,
                    error: None,
                });
            }
            if code != -(sys::FI_EAVAIL as isize) {
                return None;
            }
            let mut error: sys::fi_eq_err_entry = std::mem::zeroed();
            if inline::fi_eq_readerr(self.eq, &raw mut error, 0) <= 0 {
                return None;
            }
            Some(QueueEvent {
                about: error.fid.cast(),
                error: Some(Errno(error.err)),
            })
        }
    }
}

/// Bits that a key of `size` bytes has.
pub(crate) const fn key_mask(size: usize) -> u64 {
    if size >= 8 {
        u64::MAX
    } else {
        (1 << (8 * size)) - 1
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: each object is ours, closed once, users before what they use; endpoints hold an
        // Rc of self and so are gone. Memory is dropped after the region.
        unsafe {
            for object in [
                self.region.cast::<sys::fid>(),
                self.domain.cast(),
                self.eq.cast(),
                self.fabric.cast(),
            ] {
                if !object.is_null() {
                    inline::fi_close(object);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::key_mask;

    #[test]
    fn a_key_has_the_provider_s_length() {
        assert_eq!(key_mask(8), u64::MAX);
        assert_eq!(key_mask(4), 0xffff_ffff);
    }
}
