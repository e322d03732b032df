//! What the two ends of a dispatch stream read, and how they hear that it broke.

use std::sync::Arc;

use tandem_core::decode::{Input, Refusal, WriterEnd};
use tandem_core::{Instant, prefill};

use crate::names::Attempt;
use crate::stream::{DecodeEnd, PrefillEnd, Reply, Word};
use crate::world::{Setup, World};

impl World {
    pub(super) fn not_connected(&mut self, setup: &Setup, attempt: Attempt) {
        let Some(stream) = self.streams.get_mut(&attempt) else {
            return;
        };
        let stream = Arc::make_mut(stream);
        stream.decode_end = DecodeEnd::Closed;
        let d = stream.order.decode.index();
        let input = Input::WriterGone {
            request: stream.order.request,
            how: WriterEnd::Refused(Refusal::Busy(String::new())),
        };
        self.decode_hears(setup, d, Instant::ZERO, input);
    }

    pub(super) fn prefill_reads(&mut self, setup: &Setup, attempt: Attempt) {
        let Some(stream) = self.streams.get_mut(&attempt) else {
            return;
        };
        let stream = Arc::make_mut(stream);
        let (order, p) = (Arc::clone(&stream.order), stream.order.prefill.index());
        let word = stream.to_prefill.pop_front();
        match (word, stream.prefill_end) {
            (Some(Word::Dispatch), _) => {
                if self.prefills[p].life == order.prefill {
                    return self.take_on(setup, p, order);
                }
                stream.answer(Reply::Refused(Refusal::StalePeer));
                stream.close_prefill_end();
            }
            (Some(Word::Cancel), PrefillEnd::Serving(transfer)) => {
                let early = setup.config.is(crate::Fault::AckBeforeDrain);
                if early && let Some(held) = self.prefill(p).held.get_mut(&transfer) {
                    held.told = true;
                    self.answer(p, transfer, Reply::Drained);
                }
                let input = prefill::Input::Cancel { transfer };
                self.prefill_hears(setup, p, Instant::ZERO, input);
            }
            (Some(Word::End), PrefillEnd::Serving(transfer)) => {
                stream.prefill_end = PrefillEnd::Deaf(transfer);
                let input = prefill::Input::PeerEnded { transfer };
                self.prefill_hears(setup, p, Instant::ZERO, input);
            }
            _ => {}
        }
    }

    pub(super) fn decode_reads(&mut self, setup: &Setup, attempt: Attempt) {
        let Some(stream) = self.streams.get_mut(&attempt) else {
            return;
        };
        let stream = Arc::make_mut(stream);
        if let Some(reply) = stream.to_decode.pop_front() {
            let input = stream.heard(reply);
            let d = stream.order.decode.index();
            self.decode_hears(setup, d, Instant::ZERO, input);
        }
    }

    pub(super) fn decode_end_lost(&mut self, setup: &Setup, attempt: Attempt) {
        let Some(stream) = self.streams.get_mut(&attempt) else {
            return;
        };
        let stream = Arc::make_mut(stream);
        stream.close_decode_end();
        let d = stream.order.decode.index();
        let (request, why) = (stream.order.request, "the stream broke".into());
        self.decode_hears(setup, d, Instant::ZERO, Input::WriterLost { request, why });
    }

    pub(super) fn prefill_end_lost(&mut self, setup: &Setup, attempt: Attempt) {
        let Some(stream) = self.streams.get_mut(&attempt) else {
            return;
        };
        let stream = Arc::make_mut(stream);
        let (PrefillEnd::Serving(transfer) | PrefillEnd::Deaf(transfer)) = stream.prefill_end
        else {
            return;
        };
        stream.prefill_end = PrefillEnd::Deaf(transfer);
        if stream.unsent {
            stream.close_prefill_end();
        }
        let p = stream.order.prefill.index();
        let input = prefill::Input::PeerLost { transfer };
        self.prefill_hears(setup, p, Instant::ZERO, input);
    }
}
