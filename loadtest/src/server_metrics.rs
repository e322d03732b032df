//! What a server says of itself during a run: its Prometheus metrics, read before, during and after.
//!
//! `exposition` and `gathered` are pure; the shell around them is a thread of its own with a task for each address.
//! What must hold: readings never hold up the load. They are made by a thread that sends nothing else, one at a time
//! for each address, each with a deadline and a limit of bytes; one that fails is noted, and the run goes on.

mod exposition;
mod figures;
#[cfg(test)]
mod fuzz;
mod gathered;
mod reading;

pub use exposition::{Kind, Labels};
pub use figures::{Family, Series, SeriesFigures, ServerMetrics};
pub use reading::ReadError;

use std::sync::Arc;
use std::time::{Duration, Instant};

use regex::Regex;
use tandem_wire::task::{self, Task};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::endpoint::Target;
use gathered::Gathered;
use reading::Source;

/// The families that a summary shows: those of vLLM, SGLang and Tandem that tell of tokens, times, queues and caches.
pub const SHOWN: &str = "(vllm:|sglang:|tandem_)(num_|requests_|request_queue_|queue_|time_|inter_token_|e2e_|prompt_tokens|\
    generation_tokens|cached_tokens|gen_throughput|token_usage|kv_|cache_|prefix_cache_|retries|migrations|rejections|\
    worker_pushed)";

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(1);

/// Which families a summary shows: a regular expression that a name has to begin with.
#[derive(Clone, Debug)]
pub struct Names(Regex);

/// What is no regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?}: want the beginning of a name, or a regular expression such as vllm:|tandem_ ({reason})"
)]
pub struct NamesError {
    found: String,
    reason: String,
}

impl std::str::FromStr for Names {
    type Err = NamesError;

    fn from_str(text: &str) -> Result<Self, NamesError> {
        let whole = format!("^(?:{text})");
        Regex::new(&whole).map(Self).map_err(|error| NamesError {
            found: text.to_owned(),
            reason: last_line(&error.to_string()),
        })
    }
}

/// Where an expression is wrong is drawn above what is wrong.
fn last_line(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default();
    last.trim_start_matches("error:").trim().to_owned()
}

/// Servers whose metrics can be read.
pub struct Scrapers {
    // `None` only while it is dropped.
    runtime: Option<Runtime>,
    sources: Vec<Arc<Source>>,
    shown: Names,
}

impl Scrapers {
    /// Reads each of `urls` once, so that a wrong one shows before a test. The target's key and headers go to its own
    /// host and port only.
    ///
    /// # Errors
    ///
    /// [`ReadError`]: which cannot be read, and why.
    pub fn start(urls: &[String], target: &Target, shown: Names) -> Result<Self, ReadError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .thread_name("loadtest-metrics")
            .build()
            .map_err(ReadError::Runtime)?;
        let sources = runtime.block_on(async {
            let mut sources = Vec::new();
            for url in urls {
                let source = Source::find(url, target).await?;
                source.read().await?;
                sources.push(Arc::new(source));
            }
            Ok::<_, ReadError>(sources)
        })?;
        Ok(Self {
            runtime: Some(runtime),
            sources,
            shown,
        })
    }

    /// Reads all once and goes on each second until [`Watching::finish`].
    pub(crate) fn begin(&self) -> Watching<'_> {
        let runtime = self.runtime.as_ref().expect("there until it is dropped");
        let (stop, stopped) = watch::channel(());
        let start = Instant::now();
        let sources = self.sources.iter();
        let first = sources.map(|source| {
            let source = Arc::clone(source);
            let _within = runtime.enter();
            task::spawn("metrics", async move {
                let mut gathered = Gathered::default();
                read(&source, start, &mut gathered).await;
                gathered
            })
        });
        let first: Vec<Task<Gathered>> = first.collect();
        let tasks = first.into_iter().zip(&self.sources).map(|(first, source)| {
            let gathered = runtime.block_on(first.join()).unwrap_or_default();
            let (source, stopped) = (Arc::clone(source), stopped.clone());
            let _within = runtime.enter();
            task::spawn("metrics", each_second(source, start, gathered, stopped))
        });
        Watching {
            tasks: tasks.collect(),
            scrapers: self,
            stop,
        }
    }
}

impl Drop for Scrapers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // May be called where nothing may block.
            runtime.shutdown_background();
        }
    }
}

async fn read(source: &Source, start: Instant, gathered: &mut Gathered) {
    match source.read().await {
        Ok(samples) => gathered.observe(start.elapsed(), samples),
        Err(error) => gathered.failed(error.to_string()),
    }
}

/// Reads until it is told to stop, or nobody could tell it any more; then once more.
async fn each_second(
    source: Arc<Source>,
    start: Instant,
    mut gathered: Gathered,
    mut stopped: watch::Receiver<()>,
) -> Gathered {
    let mut ticks = interval_at(tokio::time::Instant::now() + EVERY, EVERY);
    // A slow server is asked less often, never twice at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stopped.changed() => break,
            _ = ticks.tick() => read(&source, start, &mut gathered).await,
        }
    }
    read(&source, start, &mut gathered).await;
    gathered
}

/// Readings during one run.
pub(crate) struct Watching<'a> {
    scrapers: &'a Scrapers,
    tasks: Vec<Task<Gathered>>,
    stop: watch::Sender<()>,
}

impl Watching<'_> {
    /// Reads all once more; waits for that no longer than two readings may take.
    pub(crate) fn finish(self) -> Vec<ServerMetrics> {
        drop(self.stop);
        let Scrapers {
            runtime,
            sources,
            shown,
        } = self.scrapers;
        let runtime = runtime.as_ref().expect("there until it is dropped");
        let gathered = self.tasks.into_iter().zip(sources).map(|(task, source)| {
            let gathered = runtime.block_on(task.join()).unwrap_or_default();
            gathered.finish(source.url(), |name| shown.0.is_match(name))
        });
        gathered.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_by_their_beginning_or_by_an_expression() {
        let shown = |names: &str, name| names.parse::<Names>().unwrap().0.is_match(name);
        assert!(shown(SHOWN, "vllm:num_requests_running"));
        assert!(shown(SHOWN, "tandem_time_to_first_token_seconds"));
        assert!(
            shown(SHOWN, "sglang:token_usage") && shown(SHOWN, "tandem_worker_pushed_bytes_total")
        );
        assert!(!shown(SHOWN, "tandem_build_info"));
        assert!(!shown(SHOWN, "process_vllm:x"));
        assert!(shown(".*_seconds$", "a_seconds") && !shown(".*_seconds$", "a_seconds_x"));
        let error = "a(".parse::<Names>().unwrap_err().to_string();
        assert!(
            error.contains("\"a(\": want the beginning of a name"),
            "{error}"
        );
        assert!(
            !error.contains('\n') && error.contains("unclosed group"),
            "{error}"
        );
    }
}
