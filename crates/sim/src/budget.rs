//! What may still go wrong in a run. Everything that nobody has to do costs one.

/// How often each mishap may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// A deadline passes while something else is about to happen. One that passes while nothing is
    /// costs nothing.
    pub timeouts: u8,
    /// A prefill worker's process dies.
    pub prefill_crashes: u8,
    /// A decode worker's process dies.
    pub decode_crashes: u8,
    /// A dead process is started again.
    pub restarts: u8,
    /// A stream between a decode and a prefill worker breaks.
    pub dispatch_breaks: u8,
    /// A stream between the gateway and a decode worker breaks.
    pub generate_breaks: u8,
    /// A client gives up.
    pub cancels: u8,
    /// A posted write completes in error; it may land all the same, later or never.
    pub write_errors: u8,
    /// A write is not taken by the transport.
    pub post_failures: u8,
    /// An engine fails a sequence.
    pub engine_failures: u8,
    /// A decode worker cannot wait for a transfer.
    pub arm_failures: u8,
    /// A prefill worker cannot open the way to a decode worker.
    pub open_failures: u8,
    /// An inbox is of no more use, by the transport's word.
    pub inbox_failures: u8,
    /// An outbox is of no more use, by the transport's word.
    pub outbox_failures: u8,
    /// A peer gone wrong writes an immediate that is another one's.
    pub strays: u8,
}

impl Budget {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        timeouts: 0,
        prefill_crashes: 0,
        decode_crashes: 0,
        restarts: 0,
        dispatch_breaks: 0,
        generate_breaks: 0,
        cancels: 0,
        write_errors: 0,
        post_failures: 0,
        engine_failures: 0,
        arm_failures: 0,
        open_failures: 0,
        inbox_failures: 0,
        outbox_failures: 0,
        strays: 0,
    };
}

/// Takes one, where there is one.
pub(crate) fn spend(left: &mut u8) {
    *left = left.checked_sub(1).expect("only what is left is spent");
}
