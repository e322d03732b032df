//! An endpoint with its own completion queue and address vector.

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;
use std::rc::Rc;

use libfabric_sys as sys;
use libfabric_sys::inline;

use super::check;
use super::domain::Domain;
use crate::error::{CallError, Errno};

/// Completions read at a time.
pub(crate) const BATCH: usize = 64;

/// An enabled endpoint. Closing it (or dropping it) is the fence: nothing is received through it,
/// and nothing read for it, from then on.
pub(crate) struct Endpoint {
    endpoint: *mut sys::fid_ep,
    cq: *mut sys::fid_cq,
    av: *mut sys::fid_av,
    wait: Option<RawFd>,
    domain: Rc<Domain>,
}

/// One remote write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawWrite {
    pub(crate) local_offset: usize,
    pub(crate) len: usize,
    pub(crate) peer: u64,
    pub(crate) address: u64,
    pub(crate) key: u64,
    pub(crate) immediate: u32,
    pub(crate) context: *mut c_void,
}

/// An error entry of a completion queue. Its context is to be looked up, never followed.
#[derive(Debug)]
pub(crate) struct ErrorEntry {
    pub(crate) context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) text: String,
}

/// What reading a completion queue gave.
pub(crate) enum Read {
    /// That many entries.
    Entries(usize),
    /// Nothing.
    Empty,
    /// An error entry stands first.
    Error(ErrorEntry),
    /// The queue itself is broken, as by an overrun.
    Broken(Errno),
}

impl Endpoint {
    /// Opens, binds and enables. `entries` is the size of its completion queue.
    pub(crate) fn open(domain: Rc<Domain>, entries: usize) -> Result<Self, CallError> {
        let mut this = Self {
            endpoint: null_mut(),
            cq: null_mut(),
            av: null_mut(),
            wait: None,
            domain: Rc::clone(&domain),
        };
        this.cq = domain.open_queue(entries, domain.waits_on_descriptors)?;
        // SAFETY: the domain, its info and event queue are open as long as its Rc; out-pointers
        // are ours. What a failing step leaves null, `drop` skips.
        unsafe {
            let mut attr: sys::fi_av_attr = std::mem::zeroed();
            let code =
                inline::fi_av_open(domain.raw(), &raw mut attr, &raw mut this.av, null_mut());
            check("fi_av_open", code)?;
            let info = domain.info.as_ptr();
            let code = inline::fi_endpoint(domain.raw(), info, &raw mut this.endpoint, null_mut());
            check("fi_endpoint", code)?;
            let bind = |object: *mut sys::fid, flags: u32| {
                check(
                    "fi_ep_bind",
                    inline::fi_ep_bind(this.endpoint, object, u64::from(flags)),
                )
            };
            bind(&raw mut (*domain.eq()).fid, 0)?;
            bind(&raw mut (*this.cq).fid, sys::FI_TRANSMIT | sys::FI_RECV)?;
            bind(&raw mut (*this.av).fid, 0)?;
            check("fi_enable", inline::fi_enable(this.endpoint))?;
            if domain.waits_on_descriptors {
                let mut fd: RawFd = -1;
                let queue = &raw mut (*this.cq).fid;
                let code = inline::fi_control(queue, sys::FI_GETWAIT as i32, (&raw mut fd).cast());
                check("fi_control(FI_GETWAIT)", code)?;
                this.wait = Some(fd);
            }
        }
        Ok(this)
    }

    /// Its address, as peers insert it.
    pub(crate) fn address(&self) -> Result<Vec<u8>, CallError> {
        let mut address = vec![0; 512];
        let mut len = address.len();
        // SAFETY: the buffer has `len` bytes; the endpoint is enabled.
        let code =
            unsafe { inline::fi_getname(self.endpoint, address.as_mut_ptr().cast(), &raw mut len) };
        check("fi_getname", code)?;
        address.truncate(len);
        Ok(address)
    }

    /// Makes a peer's address known. The bytes come from a peer: they are padded with zeroes, so
    /// that a provider reads no further than what is ours.
    pub(crate) fn insert(&self, address: &[u8]) -> Result<u64, CallError> {
        let mut padded = address.to_vec();
        padded.resize(address.len().max(512) + 1, 0);
        let mut peer = sys::FI_ADDR_UNSPEC;
        // SAFETY: the buffer is longer than any provider's address and ends in a zero.
        let code = unsafe {
            inline::fi_av_insert(
                self.av,
                padded.as_ptr().cast(),
                1,
                &raw mut peer,
                0,
                null_mut(),
            )
        };
        match check("fi_av_insert", code)? {
            1 => Ok(peer),
            _ => Err(CallError {
                call: "fi_av_insert",
                errno: Errno(sys::FI_EINVAL as i32),
            }),
        }
    }

    /// Posts a write with an immediate, complete when it is delivered. No `FI_MORE`: it hangs EFA.
    ///
    /// # Safety
    /// The range lies in the arena and the context is an unused cell that lives until the
    /// completion, or until this endpoint is closed.
    pub(crate) unsafe fn write(&self, write: &RawWrite) -> Result<(), Errno> {
        let mut descriptor = self.domain.local_descriptor();
        let delivery = if self.domain.delivery_complete {
            sys::FI_DELIVERY_COMPLETE
        } else {
            0
        };
        let flags = sys::FI_REMOTE_CQ_DATA | sys::FI_COMPLETION | delivery;
        // SAFETY: the caller vouches for the range; iov, rma_iov and descriptor are read during
        // the call only (fi_rma(3)).
        let code = unsafe {
            let from = self.domain.memory().address().add(write.local_offset);
            let iov = sys::iovec {
                iov_base: from.cast(),
                iov_len: write.len,
            };
            let target = sys::fi_rma_iov {
                addr: write.address,
                len: write.len,
                key: write.key,
            };
            let message = sys::fi_msg_rma {
                msg_iov: &raw const iov,
                desc: &raw mut descriptor,
                iov_count: 1,
                addr: write.peer,
                rma_iov: &raw const target,
                rma_iov_count: 1,
                context: write.context,
                data: u64::from(write.immediate),
            };
            inline::fi_writemsg(self.endpoint, &raw const message, u64::from(flags))
        };
        Errno::check(code as i64).map(|_| ())
    }

    /// Reads completions, and drives the provider's progress.
    pub(crate) fn read(&self, entries: &mut [sys::fi_cq_data_entry; BATCH]) -> Read {
        // SAFETY: the queue was opened with FI_CQ_FORMAT_DATA, of which the array holds BATCH.
        let code = unsafe { inline::fi_cq_read(self.cq, entries.as_mut_ptr().cast(), BATCH) };
        match Errno::check(code as i64) {
            Ok(0) | Err(Errno::AGAIN) => Read::Empty,
            Ok(n) => Read::Entries(n),
            Err(Errno(code)) if code == sys::FI_EAVAIL as i32 => self.read_error(),
            Err(errno) => Read::Broken(errno),
        }
    }

    fn read_error(&self) -> Read {
        // SAFETY: a zeroed entry asks for no error data; it is read after a return of 1 only.
        let mut entry: sys::fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open and the entry ours.
        let code = unsafe { inline::fi_cq_readerr(self.cq, &raw mut entry, 0) };
        match Errno::check(code as i64) {
            Ok(1..) if entry.err == sys::FI_EOVERRUN as i32 => Read::Broken(Errno(entry.err)),
            Ok(1..) => Read::Error(ErrorEntry {
                context: entry.op_context,
                flags: entry.flags,
                text: self.describe(&entry),
            }),
            Ok(0) | Err(Errno::AGAIN) => Read::Empty,
            Err(errno) => Read::Broken(errno),
        }
    }

    fn describe(&self, entry: &sys::fi_cq_err_entry) -> String {
        let mut buffer = [0 as c_char; 128];
        // SAFETY: error data is valid until the next read of the queue; the text is static or in
        // the buffer, whose last byte stays zero.
        let detail = unsafe {
            let text = inline::fi_cq_strerror(
                self.cq,
                entry.prov_errno,
                entry.err_data,
                buffer.as_mut_ptr(),
                buffer.len() - 1,
            );
            if text.is_null() {
                "".into()
            } else {
                CStr::from_ptr(text).to_string_lossy()
            }
        };
        let errno = Errno(entry.err);
        if detail.is_empty() {
            errno.to_string()
        } else {
            format!("{errno}: {detail}")
        }
    }

    /// The queue, for `fi_trywait(3)`.
    pub(crate) fn queue(&self) -> *mut sys::fid {
        self.cq.cast()
    }

    /// The descriptor to wait for, where the provider has one.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the queue owns the descriptor and closes it with itself, which self outlives.
        self.wait.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether it belongs to this domain.
    pub(crate) fn is_of(&self, domain: &Rc<Domain>) -> bool {
        Rc::ptr_eq(&self.domain, domain)
    }

    /// Whether an event is about this endpoint.
    pub(crate) fn is(&self, about: *const c_void) -> bool {
        std::ptr::eq(self.endpoint.cast(), about)
    }

    /// Closes it. Where the provider refuses, the endpoint still lives and is no fence.
    pub(crate) fn close(mut self) -> Result<(), CallError> {
        self.close_endpoint()
    }

    fn close_endpoint(&mut self) -> Result<(), CallError> {
        if self.endpoint.is_null() {
            return Ok(());
        }
        // SAFETY: ours and open; gone once the call returns 0.
        let code = unsafe { inline::fi_close(self.endpoint.cast()) };
        check("fi_close", code)?;
        self.endpoint = null_mut();
        Ok(())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Err(error) = self.close_endpoint() {
            tracing::error!(%error, "a fabric endpoint does not close; its queues are leaked");
            return;
        }
        // SAFETY: ours, closed once, after the endpoint that used them.
        unsafe {
            for object in [self.av.cast::<sys::fid>(), self.cq.cast()] {
                if !object.is_null() {
                    inline::fi_close(object);
                }
            }
        }
    }
}
