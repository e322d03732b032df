//! Admission's figures: who waits, who is turned away, who moves to another pair.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use tandem_core::WorkerRole;
use tandem_core::admission::{AdmissionSettings, BreakerState, ClassId};
use tandem_core::front_door::{Blame, Rejection};
use tandem_core::pairing::Stage;

use super::METADATA;
use super::requests::QUEUE;
use crate::door::View;
use crate::roster::Roster;

const DEPTH: &str = "tandem_queue_depth";
const REJECTIONS: &str = "tandem_rejections_total";
const DRAIN: &str = "tandem_drain_tokens_per_second";
const RETRIES: &str = "tandem_retries_total";
const MIGRATIONS: &str = "tandem_migrations_total";
const BREAKER: &str = "tandem_breaker_state";

const BLAMES: [Blame; 3] = [Blame::Prefill, Blame::Decode, Blame::Fabric];

struct Class {
    name: Arc<str>,
    depth: Gauge,
    waited: Histogram,
    /// In the order of [`Rejection::NAMES`].
    rejections: Vec<Counter>,
}

/// All there from the start, so that a rate can be taken over the first event.
pub(crate) struct AdmissionMetrics {
    /// By their numbers; a reload adds to them.
    classes: RwLock<Vec<Class>>,
    drain: Gauge,
    /// In the order of [`BLAMES`].
    retries: Vec<Counter>,
    migrations: Vec<Counter>,
}

impl AdmissionMetrics {
    pub(super) fn new(recorder: &PrometheusRecorder, settings: &AdmissionSettings) -> Self {
        let gauges = [
            (
                DEPTH,
                "Requests of a class that wait for their first lease.",
            ),
            (
                DRAIN,
                "Tokens of granted leases per second while requests waited; 0 while not known.",
            ),
        ];
        for (name, what) in gauges {
            recorder.describe_gauge(name.into(), None, what.into());
        }
        let counters = [
            (REJECTIONS, "Requests that were turned away, and why."),
            (
                RETRIES,
                "Requests that went to another pair before their first token, by who had failed.",
            ),
            (
                MIGRATIONS,
                "Answers that went on on another pair, by who had failed.",
            ),
        ];
        for (name, what) in counters {
            recorder.describe_counter(name.into(), None, what.into());
        }
        let by_blame = |name| {
            let counter = |blame: Blame| counter(recorder, name, &[("stage", blame.as_str())]);
            BLAMES.into_iter().map(counter).collect()
        };
        let classes = settings.classes.iter();
        Self {
            classes: RwLock::new(classes.map(|c| Class::new(recorder, &c.name)).collect()),
            drain: recorder.register_gauge(&Key::from_static_name(DRAIN), &METADATA),
            retries: by_blame(RETRIES),
            migrations: by_blame(MIGRATIONS),
        }
    }

    /// Classes that are new have figures from now on.
    pub(super) fn follow(&self, recorder: &PrometheusRecorder, settings: &AdmissionSettings) {
        let mut classes = self.classes.write().unwrap_or_else(PoisonError::into_inner);
        let known = classes.len();
        let more = settings.classes.iter().skip(known);
        classes.extend(more.map(|class| Class::new(recorder, &class.name)));
    }

    fn classes(&self) -> RwLockReadGuard<'_, Vec<Class>> {
        self.classes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a class is called.
    pub(crate) fn name(&self, class: ClassId) -> Option<Arc<str>> {
        let classes = self.classes();
        let class = classes.get(usize::from(class.0));
        class.map(|class| Arc::clone(&class.name))
    }

    /// A request had its first lease after it had waited so long.
    pub(crate) fn waited(&self, class: ClassId, seconds: f64) {
        if let Some(class) = self.classes().get(usize::from(class.0)) {
            class.waited.record(seconds);
        }
    }

    /// A request was turned away.
    pub(crate) fn rejected(&self, class: ClassId, why: &Rejection) {
        let reason = Rejection::NAMES.iter().position(|n| *n == why.as_str());
        let classes = self.classes();
        let class = classes.get(usize::from(class.0));
        if let Some(counter) = reason.and_then(|at| class?.rejections.get(at)) {
            counter.increment(1);
        }
    }

    /// A request goes to another pair.
    pub(crate) fn moved(&self, blame: Blame, begun: bool) {
        let counters = if begun {
            &self.migrations
        } else {
            &self.retries
        };
        let at = BLAMES.iter().position(|b| *b == blame);
        if let Some(counter) = at.and_then(|at| counters.get(at)) {
            counter.increment(1);
        }
    }

    /// Takes over what the door sees.
    pub(super) fn look(&self, view: &View) {
        for (class, queued) in self.classes().iter().zip(&view.queued_by_class) {
            class.depth.set(*queued as f64);
        }
        self.drain.set(view.drain.unwrap_or(0) as f64);
    }
}

impl Class {
    fn new(recorder: &PrometheusRecorder, name: &str) -> Self {
        let class = ("class", name);
        let rejection = |reason| counter(recorder, REJECTIONS, &[class, ("reason", reason)]);
        Self {
            name: name.into(),
            depth: recorder.register_gauge(&labelled(DEPTH, &[class]), &METADATA),
            waited: recorder.register_histogram(&labelled(QUEUE, &[class]), &METADATA),
            rejections: Rejection::NAMES.into_iter().map(rejection).collect(),
        }
    }
}

fn counter(
    recorder: &PrometheusRecorder,
    name: &'static str,
    labels: &[(&'static str, &str)],
) -> Counter {
    recorder.register_counter(&labelled(name, labels), &METADATA)
}

fn labelled(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let labels = labels.iter().map(|(k, v)| Label::new(*k, (*v).to_owned()));
    Key::from_parts(name, labels.collect::<Vec<_>>())
}

/// The breakers of all workers that have registered.
pub(super) fn breakers(view: &View, roster: &Roster) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let what = "0 closed, 1 half open (one request may try the worker), 2 open (none may).";
    recorder.describe_gauge(BREAKER.into(), None, what.into());
    for seat in roster.seats().values() {
        let Some(worker) = &seat.worker else { continue };
        let (id, role) = (&worker.facts.worker, worker.facts.role);
        for (stage, name) in [(Stage::Prefill, "prefill"), (Stage::Decode, "decode")] {
            let does = match stage {
                Stage::Prefill => role == WorkerRole::Prefill,
                Stage::Decode => role.decodes(),
            };
            if !does {
                continue;
            }
            let state = view
                .breakers
                .iter()
                .find(|(w, s, _)| w == id && *s == stage);
            let value = match state.map_or(BreakerState::Closed, |(_, _, state)| *state) {
                BreakerState::Closed => 0.0,
                BreakerState::HalfOpen => 1.0,
                BreakerState::Open => 2.0,
            };
            let labels = vec![
                Label::new("worker", id.as_str().to_owned()),
                Label::new("stage", name),
            ];
            let key = Key::from_parts(BREAKER, labels);
            recorder.register_gauge(&key, &METADATA).set(value);
        }
    }
    recorder.handle().render()
}
