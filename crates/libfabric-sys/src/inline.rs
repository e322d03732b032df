//! What libfabric's headers define as `static inline`: calls through the function tables inside
//! its objects.
//!
//! A table entry that the provider left empty gives `-FI_ENOSYS`, as in the headers.
//!
//! # Safety
//! Of every function here: the objects were opened by this library and not closed since, the other
//! arguments are what the man page named in each function's documentation asks for, and no two
//! threads use one object at a time (`FI_THREAD_DOMAIN`).
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all, in the module's documentation"
)]

use std::ffi::{c_char, c_int, c_void};

use crate::bindings::*;

const ENOSYS: c_int = -(FI_ENOSYS as c_int);

macro_rules! call {
    ($object:ident . $table:ident . $method:ident ( $($argument:expr),* )) => {{
        // SAFETY: the caller vouches that the object is open, so its table pointer is set and
        // points into the provider, and for the arguments.
        unsafe {
            match (*(*$object).$table).$method {
                Some(method) => method($($argument),*),
                None => ENOSYS as _,
            }
        }
    }};
}

macro_rules! call_fid {
    ($fid:expr, $method:ident ( $($argument:expr),* )) => {{
        // SAFETY: as above; `fid` is the first member of every object.
        unsafe {
            let fid: *mut fid = $fid;
            match (*(*fid).ops).$method {
                Some(method) => method(fid $(, $argument)*),
                None => ENOSYS,
            }
        }
    }};
}

/// `fi_close(3)`; the object is gone when it returns 0.
pub unsafe fn fi_close(object: *mut fid) -> c_int {
    call_fid!(object, close())
}

/// `fi_control(3)`
pub unsafe fn fi_control(object: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    call_fid!(object, control(command, argument))
}

/// `fi_domain(3)`
pub unsafe fn fi_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    call!(fabric.ops.domain(fabric, info, domain, context))
}

/// `fi_eq_open(3)`
pub unsafe fn fi_eq_open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    call!(fabric.ops.eq_open(fabric, attr, eq, context))
}

/// `fi_trywait(3)`
pub unsafe fn fi_trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    call!(fabric.ops.trywait(fabric, fids, count))
}

/// `fi_endpoint(3)`
pub unsafe fn fi_endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    call!(domain.ops.endpoint(domain, info, endpoint, context))
}

/// `fi_cq_open(3)`
pub unsafe fn fi_cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    call!(domain.ops.cq_open(domain, attr, cq, context))
}

/// `fi_av_open(3)`
pub unsafe fn fi_av_open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    call!(domain.ops.av_open(domain, attr, av, context))
}

/// `fi_mr_reg(3)`. Of the three ways to register, this one takes no struct that newer versions have
/// made longer.
#[allow(clippy::too_many_arguments, reason = "as in C")]
pub unsafe fn fi_mr_reg(
    domain: *mut fid_domain,
    buffer: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    call!(domain.mr.reg(
        &raw mut (*domain).fid,
        buffer,
        len,
        access,
        offset,
        requested_key,
        flags,
        mr,
        context
    ))
}

/// `fi_ep_bind(3)`
pub unsafe fn fi_ep_bind(endpoint: *mut fid_ep, object: *mut fid, flags: u64) -> c_int {
    call_fid!(&raw mut (*endpoint).fid, bind(object, flags))
}

/// `fi_enable(3)`
pub unsafe fn fi_enable(endpoint: *mut fid_ep) -> c_int {
    call_fid!(
        &raw mut (*endpoint).fid,
        control(FI_ENABLE as c_int, std::ptr::null_mut())
    )
}

/// `fi_getname(3)`
pub unsafe fn fi_getname(endpoint: *mut fid_ep, address: *mut c_void, len: *mut usize) -> c_int {
    call!(endpoint.cm.getname(&raw mut (*endpoint).fid, address, len))
}

/// `fi_av_insert(3)`
pub unsafe fn fi_av_insert(
    av: *mut fid_av,
    addresses: *const c_void,
    count: usize,
    out: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    call!(av.ops.insert(av, addresses, count, out, flags, context))
}

/// `fi_cq_read(3)`
pub unsafe fn fi_cq_read(cq: *mut fid_cq, entries: *mut c_void, count: usize) -> isize {
    call!(cq.ops.read(cq, entries, count))
}

/// `fi_cq_readerr(3)`
pub unsafe fn fi_cq_readerr(cq: *mut fid_cq, entry: *mut fi_cq_err_entry, flags: u64) -> isize {
    call!(cq.ops.readerr(cq, entry, flags))
}

/// `fi_cq_strerror(3)`; null where the provider has none.
pub unsafe fn fi_cq_strerror(
    cq: *mut fid_cq,
    provider_errno: c_int,
    data: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: as in `call!`.
    unsafe {
        match (*(*cq).ops).strerror {
            Some(strerror) => strerror(cq, provider_errno, data, buffer, len),
            None => std::ptr::null(),
        }
    }
}

/// `fi_eq_read(3)`
pub unsafe fn fi_eq_read(
    eq: *mut fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    call!(eq.ops.read(eq, event, buffer, len, flags))
}

/// `fi_eq_readerr(3)`
pub unsafe fn fi_eq_readerr(eq: *mut fid_eq, entry: *mut fi_eq_err_entry, flags: u64) -> isize {
    call!(eq.ops.readerr(eq, entry, flags))
}

/// `fi_writemsg(3)`
pub unsafe fn fi_writemsg(endpoint: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    call!(endpoint.rma.writemsg(endpoint, msg, flags))
}

/// `fi_mr_desc(3)`
pub unsafe fn fi_mr_desc(mr: *mut fid_mr) -> *mut c_void {
    // SAFETY: the caller vouches that the region is open.
    unsafe { (*mr).mem_desc }
}

/// `fi_mr_key(3)`
pub unsafe fn fi_mr_key(mr: *mut fid_mr) -> u64 {
    // SAFETY: the caller vouches that the region is open.
    unsafe { (*mr).key }
}

unsafe extern "C" {
    /// `strdup(3)` of the C library, for texts inside an `fi_info`, which `fi_freeinfo` frees.
    pub fn strdup(text: *const c_char) -> *mut c_char;
}
