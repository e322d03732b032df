//! The one line of the log that a request has.

use std::time::{Duration, UNIX_EPOCH};

use tandem_telemetry::Stage;

use super::Journal;

impl Journal {
    /// Writes it. Names and numbers only: nothing of what the client or the model said.
    pub(super) fn line(&self) {
        let stage = |stage| millis(self.times.stage(stage));
        let pair = self.pair.as_ref();
        let prefill = pair.and_then(|pair| pair.prefill.as_ref());
        tracing::info!(
            request_id = self.origin.name,
            trace_id = self.origin.trace.trace_id(),
            request = %self.request,
            choice = self.whole.is_some().then_some(self.choice),
            endpoint = self.endpoint.as_str(),
            tenant = &*self.tracked.caller().tenant,
            key = self.tracked.caller().key.as_deref(),
            model = self.of_model.model(),
            stream = self.stream,
            status = self.status(),
            error = self.error(),
            finish_reason = self.finish_reason,
            worker_prefill = prefill.map(|worker| worker.as_str()),
            worker_decode = pair.map(|pair| pair.decode.as_str()),
            why = pair.map(|pair| tracing::field::display(&pair.why)),
            class = self.metrics.admission.name(self.class).as_deref(),
            moves = self.moves,
            arrived_ms = self.arrived_ms(),
            prompt_tokens = self.prompt_tokens,
            cached_tokens = self.cached_tokens,
            completion_tokens = self.times.tokens(),
            read_ms = stage(Stage::Read),
            queue_ms = stage(Stage::Queue),
            lease_ms = stage(Stage::Lease),
            prefill_queue_ms = stage(Stage::PrefillQueue),
            prefill_ms = stage(Stage::Prefill),
            kv_transfer_ms = stage(Stage::Transfer),
            first_token_ms = stage(Stage::FirstToken),
            decode_ms = stage(Stage::Decode),
            ttft_ms = millis(self.times.ttft()),
            tpot_ms = millis(self.times.tpot()),
            itl_p99_ms = millis(self.times.gaps().quantile(0.99)),
            e2e_ms = millis(self.times.end_to_end()),
            prefix_hashes = self.prefix_hashes,
            "request"
        );
    }

    fn arrived_ms(&self) -> u64 {
        let since = self.arrived.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// To the microsecond.
fn millis(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_micros() as f64 / 1e3)
}
