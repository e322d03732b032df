//! One request: sent, read and timed from its scheduled moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::time::timeout_at;

use super::Context;
use super::collector::Sample;
use crate::body::Api;
use crate::endpoint::{HttpError, Reply};
use crate::record::{Failure, FailureKind, Outcome, Record};
use crate::stream::{AnswerTimes, Meter, StreamError, message};
use crate::units::micros;
use crate::workload::Turn;

/// What is sent.
pub(super) struct Call<'a> {
    pub(super) index: u64,
    pub(super) number: u32,
    pub(super) class: usize,
    pub(super) session: Option<u64>,
    pub(super) turn: &'a Turn,
    pub(super) body: Bytes,
    /// Whether the answer's text is wanted.
    pub(super) keep_text: bool,
}

/// An error's body is read up to here.
const ERROR_BODY: usize = 64 << 10;
/// How much of it is shown.
const SHOWN: usize = 300;
/// How long an answer that has ended may keep its stream open.
const LINGER: Duration = Duration::from_secs(1);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What has been seen so far, whatever comes of it. Times from the scheduled send.
struct Seen {
    scheduled: Instant,
    connected_us: Option<u64>,
    head_us: Option<u64>,
    status: Option<u16>,
    done_us: Option<u64>,
    meter: Meter,
}

impl Seen {
    fn now_us(&self) -> u64 {
        self.us(Instant::now())
    }

    fn us(&self, at: Instant) -> u64 {
        micros(at.saturating_duration_since(self.scheduled))
    }
}

/// Sends it and hands its record to the collector. The answer's text, where there is a whole answer.
pub(super) async fn exchange(
    context: &Arc<Context>,
    call: Call<'_>,
    scheduled: Instant,
) -> Option<String> {
    let begun = Instant::now();
    context.live.counters.sent.fetch_add(1, Ordering::Relaxed);
    let mut seen = Seen {
        scheduled,
        connected_us: None,
        head_us: None,
        status: None,
        done_us: None,
        meter: Meter::new(call.keep_text),
    };
    let mut record = blank(context, &call, scheduled);
    record.lateness_us = micros(begun.saturating_duration_since(scheduled));
    context.live.note(|now| {
        now.sent += 1;
        now.lateness.record(record.lateness_us);
    });
    let deadline = scheduled + context.plan.timeout;
    let talk = talk(context, &call, &record.request_id, &mut seen);
    let talked = match timeout_at(deadline.into(), talk).await {
        Ok(talked) => talked,
        Err(_) => Err(timed_out(context.plan.timeout, &seen)),
    };
    record.e2e_us = seen.done_us.unwrap_or_else(|| seen.now_us());
    record.connected_us = seen.connected_us;
    record.head_us = seen.head_us;
    record.status = seen.status;
    record.ttft_us = seen.meter.ttft_us();
    record.events = seen.meter.events() as u64;
    let times = settle(context, &call, &mut record, talked);
    let text = times.is_some().then(|| seen.meter.take_text());
    context.collect(Sample { record, times }).await;
    text
}

/// Fills in how it ended.
fn settle(
    context: &Context,
    call: &Call<'_>,
    record: &mut Record,
    talked: Result<AnswerTimes, Failure>,
) -> Option<AnswerTimes> {
    let counters = &context.live.counters;
    context.live.note(|now| match &talked {
        Ok(times) => {
            now.answered += 1;
            times
                .tpot_us
                .iter()
                .for_each(|us| now.tpot.record(*us as u64));
        }
        Err(_) => now.failed += 1,
    });
    match talked {
        Ok(times) => {
            counters.answered.fetch_add(1, Ordering::Relaxed);
            record.answered(&times, context.slos[call.class].as_ref());
            Some(times)
        }
        Err(failure) => {
            counters.failed.fetch_add(1, Ordering::Relaxed);
            record.failed(failure);
            None
        }
    }
}

/// The record of a request of which nothing is known yet.
pub(super) fn blank(context: &Context, call: &Call<'_>, scheduled: Instant) -> Record {
    let at = scheduled.saturating_duration_since(context.start);
    let seed = context.plan.workload.said_by();
    let run = context.plan.repeat;
    Record {
        index: call.index,
        turn: call.number,
        class: context.classes[call.class].clone(),
        phase: context.schedule.phase(call.index, at),
        request_id: format!("loadtest-{seed:x}-{run}-{}-{}", call.index, call.number),
        scheduled_us: micros(at),
        lateness_us: 0,
        connected_us: None,
        head_us: None,
        ttft_us: None,
        tpot_us: None,
        itl_p99_us: None,
        longest_gap_us: None,
        e2e_us: 0,
        wanted_input_tokens: call.turn.input_tokens,
        wanted_output_tokens: call.turn.output_tokens,
        input_tokens: None,
        cached_tokens: None,
        output_tokens: 0,
        token_source: None,
        events: 0,
        clipped: call.turn.clipped,
        status: None,
        outcome: Outcome::Failed,
        failure: None,
        finish_reason: None,
    }
}

async fn talk(
    context: &Context,
    call: &Call<'_>,
    request_id: &str,
    seen: &mut Seen,
) -> Result<AnswerTimes, Failure> {
    let api: Api = context.plan.asking.api;
    let headers = headers(context, call, request_id);
    let asked = context
        .endpoint
        .ask(Method::POST, api.path(), call.body.clone(), &headers);
    let reply = asked.await.map_err(|error| {
        if matches!(error, HttpError::Connect { .. }) {
            context.live.connected(false);
        }
        broken(&error)
    });
    let mut reply = reply?;
    context.live.connected(true);
    seen.connected_us = Some(seen.us(reply.connected));
    seen.head_us = Some(seen.now_us());
    seen.status = Some(reply.status.as_u16());
    if !reply.status.is_success() {
        let failure = refused(&mut reply).await;
        context.endpoint.keep(reply);
        return Err(failure);
    }
    is_stream(&reply)?;
    read(context, &mut reply, seen).await?;
    let times = seen.meter.finish().map_err(|error| unfinished(&error))?;
    linger(context, reply).await;
    Ok(times)
}

fn headers(context: &Context, call: &Call<'_>, request_id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some((name, classes)) = &context.class_header {
        headers.insert(name.clone(), classes[call.class].clone());
    }
    if let (Some(name), Some(session)) = (&context.plan.session_header, call.session) {
        let seed = context.plan.workload.said_by();
        if let Ok(value) = HeaderValue::try_from(format!("{seed}-{session}")) {
            headers.insert(name.clone(), value);
        }
    }
    headers
}

/// Reads the stream until it says that it is over, or ends.
async fn read(context: &Context, reply: &mut Reply, seen: &mut Seen) -> Result<(), Failure> {
    loop {
        let piece = reply.next().await.map_err(|error| cut(&error, seen))?;
        let at = seen.now_us();
        let Some(piece) = piece else {
            seen.done_us = Some(at);
            return Ok(());
        };
        let before = seen.meter.events();
        let pushed = seen.meter.push(at, &piece);
        let new = (seen.meter.events() - before) as u64;
        context
            .live
            .counters
            .events
            .fetch_add(new, Ordering::Relaxed);
        if before == 0
            && let Some(ttft_us) = seen.meter.ttft_us()
        {
            context.live.note(|now| now.ttft.record(ttft_us));
        }
        pushed.map_err(|error| unfinished(&error))?;
        if seen.meter.is_done() {
            seen.done_us = Some(at);
            return Ok(());
        }
    }
}

/// Gives the connection back once the body has ended; one that does not end is not used again.
async fn linger(context: &Context, mut reply: Reply) {
    let end = tokio::time::timeout(LINGER, reply.rest(ERROR_BODY)).await;
    if matches!(end, Ok(Ok(_))) {
        context.endpoint.keep(reply);
    }
}

fn is_stream(reply: &Reply) -> Result<(), Failure> {
    let kind = reply.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        return Ok(());
    }
    let kind = String::from_utf8_lossy(kind.unwrap_or(b"none")).into_owned();
    Err(Failure {
        kind: FailureKind::NotAStream,
        message: format!(
            "{} with content-type {kind}, want text/event-stream: is this an OpenAI-compatible endpoint that streams?",
            reply.status
        ),
    })
}

/// What a server says with a status that is no success.
async fn refused(reply: &mut Reply) -> Failure {
    let status = reply.status;
    let body = reply.rest(ERROR_BODY).await.unwrap_or_default();
    Failure {
        kind: FailureKind::Status,
        message: format!("{status}: {}", error_message(&body)),
    }
}

/// The message in an error's body, or its beginning.
pub(crate) fn error_message(body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let text = match &json {
        Some(json) => message(json.get("error").unwrap_or(json)),
        None => String::from_utf8_lossy(body).trim().to_owned(),
    };
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    if shown.is_empty() {
        "no reason given".to_owned()
    } else {
        shown
    }
}

fn broken(error: &HttpError) -> Failure {
    Failure {
        kind: match error {
            HttpError::Connect { .. } => FailureKind::Connect,
            _ => FailureKind::Connection,
        },
        message: error.to_string(),
    }
}

/// A connection that broke in the middle of an answer.
fn cut(error: &HttpError, seen: &Seen) -> Failure {
    let events = seen.meter.events();
    Failure {
        kind: FailureKind::Stopped,
        message: format!("the stream broke after {events} events: {error}"),
    }
}

fn unfinished(error: &StreamError) -> Failure {
    Failure {
        kind: match error {
            StreamError::Garbage { .. } | StreamError::TooLong(_) => FailureKind::Garbage,
            StreamError::Server(_) => FailureKind::StreamError,
            StreamError::Stopped { .. } => FailureKind::Stopped,
            StreamError::Empty => FailureKind::Empty,
        },
        message: error.to_string(),
    }
}

fn timed_out(timeout: Duration, seen: &Seen) -> Failure {
    let stage = match (seen.head_us, seen.meter.events()) {
        (None, _) => "no answer".to_owned(),
        (Some(_), 0) => "no token".to_owned(),
        (Some(_), events) => format!("no end after {events} events"),
    };
    Failure {
        kind: FailureKind::Timeout,
        message: format!(
            "{stage} within {} s of the scheduled send (--timeout)",
            timeout.as_secs_f64()
        ),
    }
}
