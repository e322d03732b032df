//! How many requests are in which stage now.

use ::metrics::{Gauge, Key, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::METADATA;

const NAME: &str = "tandem_requests_in_stage";
const ABOUT: &str =
    "Requests in each stage now: queue lasts until the lease, prefill until the first token.";

/// What a request is about. Coarser than the stages whose times are taken: a gateway does not see a
/// prompt's computation end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Read,
    Queue,
    Prefill,
    Decode,
}

const NAMES: [&str; 4] = ["read", "queue", "prefill", "decode"];

/// A gauge for each.
pub(crate) struct InStage([Gauge; NAMES.len()]);

impl InStage {
    pub(super) fn new(recorder: &PrometheusRecorder) -> Self {
        recorder.describe_gauge(NAME.into(), None, ABOUT.into());
        Self(NAMES.map(|stage| {
            let key = Key::from_parts(NAME, vec![Label::new("stage", stage)]);
            recorder.register_gauge(&key, &METADATA)
        }))
    }

    /// A request is there.
    pub(crate) fn enter(&self) -> Counted {
        self.0[At::Read as usize].increment(1.0);
        Counted {
            gauges: self.0.clone(),
            at: At::Read,
        }
    }
}

/// One request's place. Dropping it takes it away.
pub(crate) struct Counted {
    gauges: [Gauge; NAMES.len()],
    at: At,
}

impl Counted {
    /// It has come to another stage.
    pub(crate) fn reach(&mut self, at: At) {
        if at != self.at {
            self.gauges[self.at as usize].decrement(1.0);
            self.gauges[at as usize].increment(1.0);
            self.at = at;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.gauges[self.at as usize].decrement(1.0);
    }
}
