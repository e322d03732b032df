//! The stream between a decode and a prefill worker on which one prompt is handed over.
//!
//! Ordered in each direction, as QUIC is. It can break at any moment: what was on its way then
//! arrives or does not, and each end hears of it in its own time.

use std::collections::VecDeque;
use std::sync::Arc;

use tandem_core::decode::{Input, Refusal, WriterEnd};
use tandem_core::immediate::SlotKey;
use tandem_core::{EndpointId, PageIndex, RequestId, TransferId};

use crate::names::{Attempt, Life};

/// A dispatch: where the pages of a prompt go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Order {
    pub(crate) attempt: Attempt,
    /// As the decode worker knows it.
    pub(crate) request: RequestId,
    pub(crate) decode: Life,
    /// Whom it is meant for.
    pub(crate) prefill: Life,
    pub(crate) inbox: EndpointId,
    pub(crate) pages: Arc<[PageIndex]>,
    /// Shard by shard.
    pub(crate) keys: Vec<SlotKey>,
}

/// To the prefill worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    Dispatch,
    Cancel,
    /// The decode worker has closed its end.
    End,
}

/// To the decode worker. Each is the last one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Refused(Refusal),
    Done,
    Drained,
    Failed,
    Unsettled,
}

/// The decode worker's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DecodeEnd {
    /// It dials.
    Connecting,
    /// It waits for the reply.
    Following,
    /// The writer is lost: kept until the request is gone, to tell the writer by its end.
    Holding,
    Closed,
}

/// The prefill worker's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PrefillEnd {
    /// Nothing has arrived yet.
    Unopened,
    Serving(TransferId),
    /// It has heard of the other end's end, and only answers.
    Deaf(TransferId),
    Closed,
}

/// Both ends, and what is between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) order: Arc<Order>,
    pub(crate) to_prefill: VecDeque<Word>,
    pub(crate) to_decode: VecDeque<Reply>,
    pub(crate) broken: bool,
    pub(crate) decode_end: DecodeEnd,
    pub(crate) prefill_end: PrefillEnd,
    /// The request was cancelled, or is gone.
    pub(crate) cancelled: bool,
    /// The request is gone.
    pub(crate) gone: bool,
    /// An answer found the other end closed.
    pub(crate) unsent: bool,
}

impl Stream {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order: Arc::new(order),
            to_prefill: VecDeque::new(),
            to_decode: VecDeque::new(),
            broken: false,
            decode_end: DecodeEnd::Connecting,
            prefill_end: PrefillEnd::Unopened,
            cancelled: false,
            gone: false,
            unsent: false,
        }
    }

    fn say(&mut self, word: Word) {
        if !self.broken {
            self.to_prefill.push_back(word);
        }
    }

    pub(crate) fn dispatch(&mut self) {
        self.decode_end = DecodeEnd::Following;
        self.say(Word::Dispatch);
        if self.cancelled {
            self.say(Word::Cancel);
        }
    }

    pub(crate) fn cancel(&mut self) {
        if !std::mem::replace(&mut self.cancelled, true) && self.decode_end == DecodeEnd::Following
        {
            self.say(Word::Cancel);
        }
    }

    /// The request is gone: whoever waited for that closes its end.
    pub(crate) fn request_gone(&mut self) {
        self.cancel();
        self.gone = true;
        if self.decode_end == DecodeEnd::Holding {
            self.close_decode_end();
        }
    }

    pub(crate) fn close_decode_end(&mut self) {
        self.decode_end = DecodeEnd::Closed;
        self.to_decode.clear();
        self.say(Word::End);
    }

    /// The prefill worker answers.
    pub(crate) fn answer(&mut self, reply: Reply) {
        if self.decode_end == DecodeEnd::Closed {
            self.unsent = true;
        } else if !self.broken {
            self.to_decode.push_back(reply);
        }
    }

    pub(crate) fn close_prefill_end(&mut self) {
        self.prefill_end = PrefillEnd::Closed;
        self.to_prefill.clear();
        self.unsent = false;
    }

    /// Whether nobody has anything more to do with it.
    pub(crate) fn is_over(&self) -> bool {
        let unread = self.broken || self.to_prefill.is_empty();
        self.decode_end == DecodeEnd::Closed
            && match self.prefill_end {
                PrefillEnd::Unopened => unread,
                PrefillEnd::Closed => true,
                _ => false,
            }
    }

    /// What the decode task hears when `reply` has been read.
    pub(crate) fn heard(&mut self, reply: Reply) -> Input {
        let request = self.order.request;
        let how = match reply {
            Reply::Unsettled => {
                if self.gone {
                    self.close_decode_end();
                } else {
                    self.decode_end = DecodeEnd::Holding;
                }
                let why = "unsettled".into();
                return Input::WriterLost { request, why };
            }
            Reply::Refused(why) => WriterEnd::Refused(why),
            Reply::Done => WriterEnd::Done,
            Reply::Drained => WriterEnd::Drained,
            Reply::Failed => WriterEnd::Failed("failed".into()),
        };
        self.close_decode_end();
        Input::WriterGone { request, how }
    }
}
