//! One generation's figures: its log line, metrics and spans at its end, all from the same times.

mod line;
mod traced;
mod whole;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tandem_core::RequestId;
use tandem_core::admission::ClassId;
use tandem_core::pairing::Pair;
use tandem_telemetry::{PromptTimes, RequestTimes, Stage, TraceContext};
use tandem_wire::proto;
use tokio::time::Instant;

use crate::api::error::ApiError;
use crate::api::request::Endpoint;
use crate::caller::Caller;
use crate::generate::Fate;
use crate::metrics::{At, Counted, End, Metrics, OfModel};
use crate::requests::{Tracked, Way};

use whole::Whole;

/// Where a request comes from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The client's id for it, or ours.
    pub(crate) name: String,
    /// Its place in a trace.
    pub(crate) trace: TraceContext,
}

/// Written down however the request ends: dropping it writes the line. Holds nothing of what the
/// client or the model said.
pub(crate) struct Journal {
    metrics: Arc<Metrics>,
    of_model: Arc<OfModel>,
    counted: Counted,
    fate: Arc<Fate>,
    tracked: Tracked,
    request: RequestId,
    origin: Origin,
    /// Of a request of several answers.
    whole: Option<Arc<Whole>>,
    /// Which of its answers.
    choice: usize,
    endpoint: Endpoint,
    stream: bool,
    /// By the wall's clock.
    arrived: SystemTime,
    times: RequestTimes,
    prompt_tokens: u64,
    cached_tokens: Option<u64>,
    /// Where that is configured.
    prefix_hashes: Option<String>,
    /// Where its trace is recorded.
    asked: Option<Box<traced::Asked>>,
    class: ClassId,
    /// To how many other pairs it went after a failure.
    moves: u32,
    pair: Option<Pair>,
    finish_reason: Option<&'static str>,
}

impl Journal {
    /// A request has arrived, for this model as far as is known.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        model: &str,
        (fate, tracked): (Arc<Fate>, Tracked),
        request: RequestId,
        origin: Origin,
        endpoint: Endpoint,
    ) -> Self {
        Self {
            of_model: metrics.of_model(model),
            counted: metrics.in_stage.enter(),
            metrics,
            fate,
            tracked,
            request,
            origin,
            whole: None,
            choice: 0,
            endpoint,
            stream: false,
            arrived: SystemTime::now(),
            times: RequestTimes::new(now()),
            prompt_tokens: 0,
            cached_tokens: None,
            prefix_hashes: None,
            asked: None,
            class: ClassId::default(),
            moves: 0,
            pair: None,
            finish_reason: None,
        }
    }

    /// Of a further answer to the same request, which from then on is more than its first answer.
    pub(crate) fn next(&mut self, request: RequestId, choice: usize, prompt_tokens: usize) -> Self {
        let whole = match &self.whole {
            Some(whole) => Arc::clone(whole),
            None => {
                let whole = Arc::new(Whole::new(self));
                self.origin.trace = whole.trace.child();
                Arc::clone(self.whole.insert(whole))
            }
        };
        let origin = Origin {
            name: self.origin.name.clone(),
            trace: whole.trace.child(),
        };
        let mut next = Self::new(
            Arc::clone(&self.metrics),
            self.of_model.model(),
            (Arc::clone(&self.fate), self.tracked.another(request)),
            request,
            origin,
            self.endpoint,
        );
        next.whole = Some(whole);
        next.choice = choice;
        next.arrived = self.arrived;
        next.times = RequestTimes::new(self.times.arrived());
        next.read(prompt_tokens, self.stream);
        next
    }

    /// Its prompt is known.
    pub(crate) fn read(&mut self, prompt_tokens: usize, stream: bool) {
        self.prompt_tokens = prompt_tokens as u64;
        self.tracked.prompt(self.prompt_tokens);
        self.stream = stream;
    }

    /// Names of its prompt's blocks are to be logged.
    pub(crate) fn prefix(&mut self, hashes: String) {
        self.prefix_hashes = Some(hashes);
    }

    /// What is asked of the model.
    pub(crate) fn asks(&mut self, sampling: &proto::Sampling, new_tokens: u32) {
        if self.origin.trace.is_sampled() && self.metrics.spans.is_on() {
            self.asked = Some(Box::new(traced::Asked::new(sampling, new_tokens)));
        }
    }

    /// As workers are told of its trace: W3C's two texts, empty where it is not recorded.
    pub(crate) fn trace(&self) -> (String, String) {
        let trace = &self.origin.trace;
        if trace.is_sampled() {
            (trace.traceparent(), trace.tracestate())
        } else {
            Default::default()
        }
    }

    /// It waits for a pair.
    pub(crate) fn queued(&mut self, class: ClassId) {
        self.class = class;
        self.times.submitted(now());
        self.counted.reach(At::Queue);
        self.tracked.stage(Stage::Queue);
    }

    /// This pair was asked last.
    pub(crate) fn paired(&mut self, pair: &Pair, asked: Instant) {
        self.times.paired(asked.into_std());
        if let Some(local) = pair.local {
            self.metrics.local_prefill(local.as_str());
        }
        self.pair = Some(pair.clone());
    }

    /// It granted the lease.
    pub(crate) fn reserved(&mut self) {
        self.times.reserved(now());
        self.counted.reach(At::Prefill);
        if let Some(waited) = self.times.stage(Stage::Queue) {
            let seconds = waited.as_secs_f64();
            self.metrics.admission.waited(self.class, seconds);
        }
    }

    /// It goes on on the pair that was asked last, which granted a lease.
    pub(crate) fn moved(&mut self) {
        self.moves += 1;
        self.times.reserved(now());
    }

    /// Its pages have arrived.
    pub(crate) fn started(&mut self, _: &proto::Started) {
        self.times.started(now());
        self.tracked.started();
    }

    /// A token has come.
    pub(crate) fn token(&mut self) {
        if self.times.tokens_came(now(), 1) {
            self.counted.reach(At::Decode);
            self.of_model.first_token(&self.times, self.prompt_tokens);
        }
        self.of_model.tokens(&mut self.times, 1);
        self.tracked.token();
    }

    /// The decode worker has said its last.
    pub(crate) fn told(&mut self, finished: &proto::Finished) {
        let cached = u64::from(finished.cached_tokens);
        self.cached_tokens = Some(cached.min(self.prompt_tokens));
        if let Some(prompt) = &finished.prompt_times {
            self.times.prompt(PromptTimes {
                compute: Duration::from_micros(prompt.compute_us),
                exposed: Duration::from_micros(prompt.exposed_us),
            });
        }
    }

    /// Where else it is written down how far the request is.
    pub(crate) fn way(&self) -> Way {
        Way::clone(&self.tracked)
    }

    /// Who asks.
    pub(crate) fn caller(&self) -> &Caller {
        self.tracked.caller()
    }

    /// The request failed.
    pub(crate) fn failed(&self, error: &ApiError) {
        self.fate.failed(error);
    }

    /// The answer is complete.
    pub(crate) fn finished(&mut self, reason: &'static str) {
        self.finish_reason = Some(reason);
        self.tracked.ended(reason);
    }

    /// What it failed with; also where its client left.
    fn error(&self) -> Option<&str> {
        error(self.fate.error(), self.finish_reason)
    }

    /// The reply's. An answer that is sent whole has none yet where it has ended.
    fn status(&self) -> u16 {
        let left = self.fate.error().is_none() && self.finish_reason.is_none();
        self.fate.status().unwrap_or(if left { 499 } else { 200 })
    }

    /// In OpenTelemetry's words.
    fn operation(&self) -> &'static str {
        if self.endpoint == Endpoint::Completions {
            "text_completion"
        } else {
            "chat"
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.times.ended(now());
        self.tracked.took(&self.times);
        if self.finish_reason.is_none() {
            self.tracked.ended(self.error().unwrap_or("cancelled"));
        }
        let end = End {
            operation: self.operation(),
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            finish_reason: self.finish_reason,
            error: error(self.fate.error(), self.finish_reason),
        };
        self.metrics.ended(&self.of_model, &mut self.times, &end);
        self.metrics
            .spans
            .record(&self.origin.trace, || self.spans());
        if let Some(whole) = &self.whole {
            whole.add(self);
        }
        self.line();
    }
}

/// What neither failed nor finished was left by its client.
fn error<'a>(error: Option<&'a str>, finish_reason: Option<&str>) -> Option<&'a str> {
    match finish_reason {
        None => error.or(Some("client_gone")),
        Some(_) => error,
    }
}

/// Tokio's clock, which tests may move.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
