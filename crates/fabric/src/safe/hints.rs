//! Asking `fi_getinfo(3)`.

use std::ffi::{CStr, CString};
use std::net::IpAddr;
use std::ptr::{null, null_mut};

use libfabric_sys as sys;
use libfabric_sys::Library;

use crate::error::Errno;

/// What is asked for beside the fixed needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// libfabric's exact name.
    pub(crate) provider: Option<&'a str>,
    /// Local address.
    pub(crate) bind: Option<IpAddr>,
    /// A completion that waits for the target.
    pub(crate) delivery_complete: bool,
    /// Writes in flight; 0 for as many as the provider likes.
    pub(crate) window: usize,
}

/// One way to open a fabric, owned.
#[derive(Debug)]
pub(crate) struct Info {
    raw: *mut sys::fi_info,
    library: &'static Library,
}

/// Attributes that decide how the domain is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) mr_mode: u32,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) tx_size: usize,
    pub(crate) max_write: usize,
}

impl Info {
    fn empty(library: &'static Library) -> Result<Self, Errno> {
        // SAFETY: null asks for a fresh info with all its attribute structs.
        let raw = unsafe { (library.dupinfo)(null()) };
        if raw.is_null() {
            Err(Errno(12))
        } else {
            Ok(Self { raw, library })
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::fi_info {
        self.raw
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    /// libfabric's name of the provider.
    pub(crate) fn provider(&self) -> String {
        // SAFETY: an info of fi_getinfo or fi_dupinfo has its attributes; the name is text or null.
        unsafe { text((*(*self.raw).fabric_attr).prov_name) }
    }

    /// The fabric's name.
    pub(crate) fn fabric(&self) -> String {
        // SAFETY: as in `provider`.
        unsafe { text((*(*self.raw).fabric_attr).name) }
    }

    /// The domain's name.
    pub(crate) fn domain(&self) -> String {
        // SAFETY: as in `provider`.
        unsafe { text((*(*self.raw).domain_attr).name) }
    }

    pub(crate) fn limits(&self) -> Limits {
        // SAFETY: as in `provider`; all these fields are in 1.17's structs.
        unsafe {
            let domain = &*(*self.raw).domain_attr;
            Limits {
                mr_mode: domain.mr_mode as u32,
                mr_key_size: domain.mr_key_size,
                cq_data_size: domain.cq_data_size,
                tx_size: (*(*self.raw).tx_attr).size,
                max_write: (*(*self.raw).ep_attr).max_msg_size,
            }
        }
    }

    /// `mr_mode` in libfabric's words.
    pub(crate) fn mr_mode_text(&self) -> String {
        const NAMES: [(u32, &str); 9] = [
            (sys::FI_MR_LOCAL, "FI_MR_LOCAL"),
            (sys::FI_MR_RAW, "FI_MR_RAW"),
            (sys::FI_MR_VIRT_ADDR, "FI_MR_VIRT_ADDR"),
            (sys::FI_MR_ALLOCATED, "FI_MR_ALLOCATED"),
            (sys::FI_MR_PROV_KEY, "FI_MR_PROV_KEY"),
            (sys::FI_MR_MMU_NOTIFY, "FI_MR_MMU_NOTIFY"),
            (sys::FI_MR_RMA_EVENT, "FI_MR_RMA_EVENT"),
            (sys::FI_MR_ENDPOINT, "FI_MR_ENDPOINT"),
            (sys::FI_MR_HMEM, "FI_MR_HMEM"),
        ];
        let mode = self.limits().mr_mode;
        let set: Vec<&str> = NAMES
            .iter()
            .filter(|(bit, _)| mode & bit != 0)
            .map(|(_, name)| *name)
            .collect();
        if set.is_empty() {
            "none".into()
        } else {
            set.join(" | ")
        }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: ours, from fi_dupinfo, freed once.
        unsafe { (self.library.freeinfo)(self.raw) }
    }
}

/// # Safety
/// `from` is null or a C string.
unsafe fn text(from: *const std::ffi::c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(from) }
        .to_string_lossy()
        .into_owned()
}

/// Fixed needs: reliable datagrams, remote writes with four bytes of queue data (all that EFA and
/// verbs carry), one thread. Every `mr_mode` bit that this crate can obey is offered.
/// `FI_MR_ENDPOINT` is not: such a region serves one endpoint, and here every peer has its own.
fn fill(hints: &Info, wanted: &Wanted<'_>) -> Result<(), Errno> {
    let mr_mode =
        sys::FI_MR_LOCAL | sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;
    // SAFETY: a fresh info has all its attribute structs, and nobody else sees it yet.
    unsafe {
        let info = &mut *hints.raw;
        info.caps = u64::from(sys::FI_MSG | sys::FI_RMA | sys::FI_WRITE | sys::FI_REMOTE_WRITE);
        info.mode = sys::FI_CONTEXT | sys::FI_CONTEXT2;
        (*info.ep_attr).type_ = sys::FI_EP_RDM;
        let domain = &mut *info.domain_attr;
        domain.mr_mode = mr_mode as i32;
        domain.threading = sys::FI_THREAD_DOMAIN;
        domain.control_progress = sys::FI_PROGRESS_MANUAL;
        domain.data_progress = sys::FI_PROGRESS_MANUAL;
        domain.cq_data_size = 4;
        if wanted.delivery_complete {
            (*info.tx_attr).op_flags = u64::from(sys::FI_DELIVERY_COMPLETE);
        }
        size_queues(info, wanted.window);
        if let Some(provider) = wanted.provider {
            let name = CString::new(provider).map_err(|_| Errno(22))?;
            // libfabric frees it with the info.
            (*info.fabric_attr).prov_name = sys::inline::strdup(name.as_ptr());
        }
    }
    Ok(())
}

/// The longest queues worth asking for by size.
const LONGEST_QUEUE: usize = 256;

/// Sizes of an endpoint's queues. Asked for on purpose: `ofi_rxm` holds 16 KiB for each entry, 35
/// MB per endpoint with its own default of 2048. Twice the window on the receiving side, where a
/// write with an immediate takes an entry on verbs until it is read.
///
/// # Safety
/// The info has its attribute structs.
unsafe fn size_queues(info: &mut sys::fi_info, window: usize) {
    if (1..=LONGEST_QUEUE / 2).contains(&window) {
        // SAFETY: the caller's.
        unsafe {
            (*info.tx_attr).size = window;
            (*info.rx_attr).size = 2 * window;
        }
    }
}

/// Asks; `Errno::NO_DATA` where nothing fits.
pub(crate) fn query(library: &'static Library, wanted: &Wanted<'_>) -> Result<Vec<Info>, Errno> {
    let hints = Info::empty(library)?;
    fill(&hints, wanted)?;
    let node = wanted.bind.map(|address| CString::new(address.to_string()));
    let node = node.transpose().map_err(|_| Errno(22))?;
    let (name, flags) = node
        .as_ref()
        .map_or((null(), 0), |n| (n.as_ptr(), sys::FI_SOURCE));
    let mut list = null_mut();
    // SAFETY: `node` and `hints` live over the call; the list is ours to free.
    let code = unsafe {
        (library.getinfo)(
            sys::API_VERSION,
            name,
            null(),
            flags,
            hints.as_ptr(),
            &raw mut list,
        )
    };
    Errno::check(code)?;
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list; the copy is ours and has no next.
        let raw = unsafe { (library.dupinfo)(next) };
        if !raw.is_null() {
            found.push(Info { raw, library });
        }
        // SAFETY: as above.
        next = unsafe { (*next).next };
    }
    // SAFETY: ours, freed once.
    unsafe { (library.freeinfo)(list) };
    Ok(found)
}
