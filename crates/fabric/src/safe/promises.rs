//! What a provider promises beyond what the driver acts on, for who reads about it.

use libfabric_sys as sys;

use super::hints::Info;

/// Attributes of one info.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promises {
    /// Both sides keep writes in the order in which they were posted.
    pub(crate) ordered_writes: bool,
    /// Data moves without anybody polling.
    pub(crate) automatic_progress: bool,
}

impl Info {
    pub(crate) fn promises(&self) -> Promises {
        let waw = u64::from(sys::FI_ORDER_WAW);
        // SAFETY: an info of fi_getinfo has its attributes; all these fields are in 1.17's structs.
        unsafe {
            let info = &*self.as_ptr();
            Promises {
                ordered_writes: (*info.tx_attr).msg_order & (*info.rx_attr).msg_order & waw != 0,
                automatic_progress: (*info.domain_attr).data_progress == sys::FI_PROGRESS_AUTO,
            }
        }
    }
}
