//! The requests that are in flight, how far each is, and why the latest ones went where they went.
//!
//! Owns no more than clients could send at once, and the last [`REMEMBERED`] decisions. Holds nothing
//! of what a client or a model said.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dashmap::DashMap;
use serde_json::{Map, Value, json};
use tandem_core::pairing::Pair;
use tandem_core::{RequestId, WorkerId};
use tokio::time::Instant;

use crate::caller::Caller;

/// Ended requests whose decisions can be looked up.
const REMEMBERED: usize = 1024;
/// Steps of one request that are kept; those in the middle of a long search are left out.
const STEPS: usize = 16;

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its body comes, is parsed and tokenised.
    Reading,
    /// It waits for a pair with room.
    Queued,
    /// A pair is asked.
    Asking,
    /// The lease is granted; its prompt is computed and transferred.
    Prefilling,
    /// Its prompt has arrived.
    Decoding,
}

/// How many there are.
const STAGES: usize = 5;

impl Stage {
    /// Time spent in it, as the status page names it.
    const fn spent_as(self) -> &'static str {
        match self {
            Self::Reading => "read",
            Self::Queued => "queue",
            Self::Asking => "lease",
            Self::Prefilling => "prefill",
            Self::Decoding => "decode",
        }
    }

    const ALL: [Self; STAGES] = [
        Self::Reading,
        Self::Queued,
        Self::Asking,
        Self::Prefilling,
        Self::Decoding,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Queued => "queued",
            Self::Asking => "asking",
            Self::Prefilling => "prefilling",
            Self::Decoding => "decoding",
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: DashMap<RequestId, Arc<Entry>>,
    ended: Mutex<VecDeque<Decision>>,
}

#[derive(Debug)]
struct Entry {
    /// The client's name for it, or ours.
    name: String,
    endpoint: &'static str,
    caller: Caller,
    arrived: Instant,
    tokens: AtomicU64,
    progress: Mutex<Progress>,
}

#[derive(Clone, Debug)]
struct Progress {
    stage: Stage,
    since: Instant,
    /// Time in each stage before this one; a request that is tried again is in some of them twice.
    spent: [Duration; STAGES],
    first_token: Option<Instant>,
    prompt_tokens: u64,
    pair: Option<Pair>,
    /// Pages of its lease.
    pages: Option<u32>,
    steps: Vec<(u64, Step)>,
}

impl Progress {
    fn enter(&mut self, stage: Stage, now: Instant) {
        self.spent[self.stage as usize] += now - self.since;
        self.stage = stage;
        self.since = now;
    }
}

/// Something that was decided about a request.
#[derive(Clone, Debug)]
enum Step {
    Asked(Pair),
    NotTaken(String),
    Reserved,
    Ended(String),
}

/// An ended request's way.
#[derive(Debug)]
struct Decision {
    request: RequestId,
    name: String,
    endpoint: &'static str,
    tenant: Arc<str>,
    ended_at_ms: u64,
    total: Duration,
    ttft: Option<Duration>,
    tokens: u64,
    progress: Progress,
}

impl Decision {
    fn json(&self) -> Value {
        let progress = &self.progress;
        let pair = progress.pair.as_ref();
        let how = progress
            .steps
            .iter()
            .rev()
            .find_map(|(_, step)| match step {
                Step::Ended(how) => Some(how.as_str()),
                Step::Asked(_) | Step::NotTaken(_) | Step::Reserved => None,
            });
        let how = how.unwrap_or("client_gone");
        let stages: Map<String, Value> = Stage::ALL
            .into_iter()
            .zip(progress.spent)
            .filter(|(_, spent)| !spent.is_zero())
            .map(|(stage, spent)| (stage.spent_as().to_owned(), json!(ms(spent))))
            .collect();
        json!({
            "request": self.request.to_string(),
            "request_id": self.name,
            "endpoint": self.endpoint,
            "tenant": &*self.tenant,
            "ended_at_ms": self.ended_at_ms,
            "outcome": how,
            "failed": !FINISHED.contains(&how),
            "decode": pair.map(|pair| pair.decode.as_str()),
            "prefill": pair.and_then(|pair| pair.prefill.as_ref()).map(WorkerId::as_str),
            "prompt_tokens": progress.prompt_tokens,
            "tokens": self.tokens,
            "ttft_ms": self.ttft.map(ms),
            "total_ms": ms(self.total),
            "stages": stages,
            "steps": shown(&progress.steps),
        })
    }
}

/// How requests end well.
const FINISHED: [&str; 4] = ["stop", "length", "tool_calls", "content_filter"];

/// Milliseconds with their fraction.
fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Requests {
    /// A request has arrived.
    pub(crate) fn enter(
        self: &Arc<Self>,
        request: RequestId,
        name: String,
        endpoint: &'static str,
        caller: Caller,
    ) -> Tracked {
        let now = Instant::now();
        let entry = Arc::new(Entry {
            name,
            endpoint,
            caller,
            arrived: now,
            tokens: AtomicU64::new(0),
            progress: Mutex::new(Progress {
                stage: Stage::Reading,
                since: now,
                spent: [Duration::ZERO; STAGES],
                first_token: None,
                prompt_tokens: 0,
                pair: None,
                pages: None,
                steps: Vec::new(),
            }),
        });
        self.open.insert(request, Arc::clone(&entry));
        Tracked {
            requests: Arc::clone(self),
            request,
            way: Way(entry),
        }
    }

    /// How many were sent to each worker, for their prompts or their answers, and have not ended.
    pub(crate) fn by_worker(&self) -> HashMap<WorkerId, usize> {
        let mut counts = HashMap::new();
        for entry in &self.open {
            let Some(pair) = entry.progress().pair else {
                continue;
            };
            for worker in [Some(pair.decode), pair.prefill].into_iter().flatten() {
                *counts.entry(worker).or_default() += 1;
            }
        }
        counts
    }

    /// The same for one worker.
    pub(crate) fn on(&self, worker: &WorkerId) -> usize {
        let is_there =
            |pair: &Pair| pair.decode == *worker || pair.prefill.as_ref() == Some(worker);
        let open = self.open.iter();
        open.filter(|entry| entry.progress().pair.as_ref().is_some_and(is_there))
            .count()
    }

    /// Those in flight, the oldest first.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.rows(|request, entry| Some(entry.json(request)))
    }

    /// Leases that were granted to this gateway's requests and have not ended, the oldest first.
    pub(crate) fn leases(&self) -> Vec<Value> {
        self.rows(|request, entry| {
            let progress = entry.progress();
            let (pair, pages) = (progress.pair?, progress.pages?);
            Some(json!({
                "request": request.to_string(),
                "decode": pair.decode.as_str(),
                "prefill": pair.prefill.as_ref().map(WorkerId::as_str),
                "pages": pages,
                "stage": progress.stage.as_str(),
                "age_ms": millis(entry.arrived),
            }))
        })
    }

    fn rows(&self, row: impl Fn(RequestId, &Entry) -> Option<Value>) -> Vec<Value> {
        let mut rows: Vec<_> = self
            .open
            .iter()
            .filter_map(|entry| Some((entry.arrived, row(*entry.key(), &entry)?)))
            .collect();
        rows.sort_by_key(|(arrived, _)| *arrived);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Why a request went where it went, by our id for it or by its `x-request-id`; of several of that
    /// name the latest.
    pub(crate) fn explain(&self, name: &str) -> Option<Value> {
        let is_meant = |request: &RequestId, own: &str| own == name || request.to_string() == name;
        let open = self.open.iter().find(|e| is_meant(e.key(), &e.name));
        if let Some(entry) = open {
            let mut value = entry.json(*entry.key());
            value["steps"] = shown(&entry.progress().steps);
            return Some(value);
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut latest = ended.iter().rev();
        let decision = latest.find(|decision| is_meant(&decision.request, &decision.name))?;
        Some(json!({
            "request": decision.request.to_string(),
            "request_id": decision.name,
            "tenant": &*decision.tenant,
            "stage": "ended",
            "ended_at_ms": decision.ended_at_ms,
            "steps": shown(&decision.progress.steps),
        }))
    }

    /// The last `most` that ended, the latest first.
    pub(crate) fn recent(&self, most: usize) -> Vec<Value> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().rev().take(most).map(Decision::json).collect()
    }
}

impl Entry {
    fn progress(&self) -> Progress {
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn json(&self, request: RequestId) -> Value {
        let progress = self.progress();
        let pair = progress.pair.as_ref();
        json!({
            "request": request.to_string(),
            "request_id": self.name,
            "endpoint": self.endpoint,
            "tenant": &*self.caller.tenant,
            "key": self.caller.key.as_deref(),
            "stage": progress.stage.as_str(),
            "age_ms": millis(self.arrived),
            "stage_age_ms": millis(progress.since),
            "prompt_tokens": progress.prompt_tokens,
            "tokens": self.tokens.load(Ordering::Relaxed),
            "decode": pair.map(|pair| pair.decode.as_str()),
            "prefill": pair.and_then(|pair| pair.prefill.as_ref()).map(WorkerId::as_str),
        })
    }
}

/// A request's place among those in flight. Dropping it says that the request has ended.
#[derive(Debug)]
pub(crate) struct Tracked {
    requests: Arc<Requests>,
    request: RequestId,
    way: Way,
}

impl Tracked {
    /// A further answer to the same request.
    pub(crate) fn another(&self, request: RequestId) -> Self {
        let Entry {
            name,
            endpoint,
            caller,
            ..
        } = &*self.way.0;
        self.requests
            .enter(request, name.clone(), endpoint, caller.clone())
    }
}

impl Deref for Tracked {
    type Target = Way;

    fn deref(&self) -> &Way {
        &self.way
    }
}

/// Where it is written down how far a request is.
#[derive(Clone, Debug)]
pub(crate) struct Way(Arc<Entry>);

impl Way {
    /// Who asks.
    pub(crate) fn caller(&self) -> &Caller {
        &self.0.caller
    }

    /// It is there now.
    pub(crate) fn stage(&self, stage: Stage) {
        self.change(|progress, now| progress.enter(stage, now));
    }

    /// Its prompt is known.
    pub(crate) fn prompt(&self, tokens: u64) {
        self.change(|progress, _| progress.prompt_tokens = tokens);
    }

    /// The door chose these for it.
    pub(crate) fn asked(&self, pair: &Pair) {
        self.stage(Stage::Asking);
        self.change(|progress, _| progress.pair = Some(pair.clone()));
        self.step(Step::Asked(pair.clone()));
    }

    /// They did not take it on.
    pub(crate) fn not_taken(&self, why: &str) {
        self.stage(Stage::Queued);
        self.change(|progress, _| progress.pair = None);
        self.step(Step::NotTaken(why.to_owned()));
    }

    /// They granted a lease of so many pages.
    pub(crate) fn reserved(&self, pages: u32) {
        self.stage(Stage::Prefilling);
        self.change(|progress, _| progress.pages = Some(pages));
        self.step(Step::Reserved);
    }

    /// One more token.
    pub(crate) fn token(&self) {
        if self.0.tokens.fetch_add(1, Ordering::Relaxed) == 0 {
            self.change(|progress, now| progress.first_token = Some(now));
        }
    }

    /// How it ended: `stop`, or an error's code.
    pub(crate) fn ended(&self, how: &str) {
        self.step(Step::Ended(how.to_owned()));
    }

    fn step(&self, step: Step) {
        let after = millis(self.0.arrived);
        self.change(|progress, _| {
            if progress.steps.len() == STEPS {
                progress.steps.remove(STEPS / 2);
            }
            progress.steps.push((after, step));
        });
    }

    fn change(&self, change: impl FnOnce(&mut Progress, Instant)) {
        let progress = self.0.progress.lock();
        let mut progress = progress.unwrap_or_else(PoisonError::into_inner);
        change(&mut progress, Instant::now());
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.requests.open.remove(&self.request);
        let entry = &self.way.0;
        let mut progress = entry.progress();
        progress.enter(progress.stage, Instant::now());
        let since = |moment: Instant| moment - entry.arrived;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let decision = Decision {
            request: self.request,
            name: entry.name.clone(),
            endpoint: entry.endpoint,
            tenant: Arc::clone(&entry.caller.tenant),
            ended_at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            total: since(progress.since),
            ttft: progress.first_token.map(since),
            tokens: entry.tokens.load(Ordering::Relaxed),
            progress,
        };
        let ended = self.requests.ended.lock();
        let mut ended = ended.unwrap_or_else(PoisonError::into_inner);
        if ended.len() == REMEMBERED {
            ended.pop_front();
        }
        ended.push_back(decision);
    }
}

fn shown(steps: &[(u64, Step)]) -> Value {
    let step = |(after_ms, step): &(u64, Step)| {
        let mut value = match step {
            Step::Asked(pair) => json!({
                "step": "asked",
                "decode": pair.decode.as_str(),
                "prefill": pair.prefill.as_ref().map(WorkerId::as_str),
                "why": pair.why.to_string(),
            }),
            Step::NotTaken(why) => json!({"step": "not taken on", "why": why}),
            Step::Reserved => json!({"step": "reserved"}),
            Step::Ended(how) => json!({"step": "ended", "why": how}),
        };
        value["after_ms"] = json!(after_ms);
        value
    };
    steps.iter().map(step).collect()
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(decode: &str) -> Pair {
        Pair {
            decode: WorkerId::new(decode).unwrap(),
            prefill: Some(WorkerId::new("p").unwrap()),
            local: None,
            cached_tokens: 0,
            why: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_requests_way_is_told_while_it_is_in_flight_and_after() {
        let requests = Arc::new(Requests::default());
        let id = RequestId(7);
        let tracked = requests.enter(id, "mine".into(), "chat", Caller::of("acme"));
        tracked.stage(Stage::Queued);
        assert_eq!(requests.json()[0]["stage"], "queued");
        tracked.asked(&pair("d0"));
        tracked.not_taken("no room");
        tracked.asked(&pair("d1"));
        tracked.reserved(5);
        let worker = |name: &str| WorkerId::new(name).unwrap();
        assert_eq!(requests.on(&worker("d1")), 1);
        assert_eq!(requests.on(&worker("d0")), 0);
        assert_eq!(requests.on(&worker("p")), 1);
        assert_eq!(
            requests.by_worker(),
            [("d1", 1), ("p", 1)].map(|(w, n)| (worker(w), n)).into()
        );
        assert_eq!(requests.leases()[0]["pages"], 5);
        tracked.ended("stop");
        let open = requests.explain("mine").unwrap();
        drop(tracked);
        assert!(requests.json().is_empty() && requests.leases().is_empty());
        let ended = requests.explain(&id.to_string()).unwrap();
        assert_eq!(ended["steps"], open["steps"]);
        let whys: Vec<_> = ended["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["why"].clone())
            .collect();
        let chosen = pair("d0").why.to_string();
        let want = [&chosen, "no room", &chosen].map(Value::from);
        assert_eq!(whys[..3], want);
        assert_eq!(requests.explain("other"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_request_tells_how_long_each_stage_took() {
        let requests = Arc::new(Requests::default());
        let wait = |ms| tokio::time::advance(Duration::from_millis(ms));
        let tracked = requests.enter(RequestId(1), "mine".into(), "chat", Caller::of("t"));
        wait(1).await;
        tracked.stage(Stage::Queued);
        wait(10).await;
        tracked.asked(&pair("d0"));
        wait(2).await;
        tracked.not_taken("no room");
        wait(20).await;
        tracked.asked(&pair("d1"));
        wait(2).await;
        tracked.reserved(1);
        wait(50).await;
        tracked.stage(Stage::Decoding);
        wait(5).await;
        tracked.token();
        tracked.token();
        wait(100).await;
        tracked.ended("stop");
        drop(tracked);
        let row = &requests.recent(5)[0];
        let want =
            json!({"read": 1.0, "queue": 30.0, "lease": 4.0, "prefill": 50.0, "decode": 105.0});
        assert_eq!(row["stages"], want);
        assert_eq!(
            (&row["ttft_ms"], &row["total_ms"]),
            (&json!(90.0), &json!(190.0))
        );
        assert_eq!((&row["failed"], &row["tokens"]), (&json!(false), &json!(2)));
        assert_eq!(row["decode"], "d1");
    }

    #[tokio::test]
    async fn only_so_many_ways_and_steps_are_kept() {
        let requests = Arc::new(Requests::default());
        for n in 0..REMEMBERED as u128 + 3 {
            let tracked = requests.enter(RequestId(n), n.to_string(), "chat", Caller::of("t"));
            for _ in 0..40 {
                tracked.not_taken("full");
            }
            tracked.ended("timeout");
        }
        assert_eq!(requests.explain("2"), None);
        let kept = requests.explain("3").unwrap();
        let steps = kept["steps"].as_array().unwrap();
        assert_eq!(steps.len(), STEPS);
        assert_eq!(steps[STEPS - 1]["why"], "timeout");
    }
}
