//! A server that was found, and the runs against it.

mod preflight;

pub use preflight::StartError;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::body::{Api, UsageAsked};
use crate::drive::{self, Live, RunError};
use crate::endpoint::{Endpoint, Target};
use crate::plan::RunPlan;
use crate::results::{Run, RunEnd};
use crate::server_metrics::{Scrapers, Watching};

/// A server that answers, and a runtime of our own: to be used from threads that have none.
pub struct Harness {
    // `None` only while it is dropped.
    runtime: Option<Runtime>,
    endpoint: Arc<Endpoint>,
    model: String,
    usage: UsageAsked,
    max_context: Option<u32>,
    scrapers: Option<Scrapers>,
}

/// Descriptors that are not connections.
const OTHER_DESCRIPTORS: u64 = 64;
/// The first reading of metrics is this long before a start that was agreed on: longer than it may take.
const EARLY: Duration = Duration::from_secs(3);

impl Harness {
    /// Finds the server, asks for its models and sends it one tiny request, so that a wrong address, key or
    /// model shows before a test starts. Without a `model` the server's only one is taken.
    ///
    /// # Errors
    ///
    /// [`StartError`] says what to do.
    pub fn start(target: Target, api: Api, model: Option<String>) -> Result<Self, StartError> {
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("loadtest")
            .build()
            .map_err(StartError::Runtime)?;
        let endpoint = runtime.block_on(Endpoint::find(target))?;
        let found = runtime.block_on(preflight::look(&endpoint, api, model))?;
        Ok(Self {
            runtime: Some(runtime),
            endpoint: Arc::new(endpoint),
            model: found.model,
            usage: found.usage,
            max_context: found.max_context,
            scrapers: None,
        })
    }

    /// Reads these servers' metrics during each run.
    #[must_use]
    pub fn with_metrics(mut self, scrapers: Scrapers) -> Self {
        self.scrapers = Some(scrapers);
        self
    }

    /// The model that is asked.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The token counts that the server can be asked for.
    #[must_use]
    pub const fn usage(&self) -> UsageAsked {
        self.usage
    }

    /// Tokens of prompt and answer together that the model takes, where the server says so.
    #[must_use]
    pub const fn max_context(&self) -> Option<u32> {
        self.max_context
    }

    /// The server's address.
    #[must_use]
    pub fn url(&self) -> String {
        self.endpoint.target().url.to_string()
    }

    /// Carries out a run; blocks until its end. `requests` gets a line of JSON for each request.
    ///
    /// # Errors
    ///
    /// [`RunError`]: the plan cannot be carried out, or a file not be written.
    pub fn run(
        &self,
        plan: &RunPlan,
        live: &Arc<Live>,
        requests: Option<&mut (dyn Write + Send)>,
    ) -> Result<Run, RunError> {
        let runtime = self.runtime.as_ref().expect("there until it is dropped");
        if self.scrapers.is_some() {
            // What happens before all parts begin together is nothing of the run's.
            drive::wait_for_start(plan, EARLY, live);
        }
        let watching = self.scrapers.as_ref().map(Scrapers::begin);
        let mut run = drive::run(runtime.handle(), &self.endpoint, plan, live, requests)?;
        // A run may be too short to tell by the number of connections that failed.
        if run.ended == RunEnd::Complete
            && live.is_unconnected()
            && runtime.block_on(self.endpoint.is_gone())
        {
            run.ended = RunEnd::ServerGone;
        }
        run.server = watching.map(Watching::finish).unwrap_or_default();
        Ok(run)
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // May be called where nothing may block.
            runtime.shutdown_background();
        }
    }
}

/// So many connections need more descriptors than this process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted} requests at a time need as many connections, and this process may have {allowed} open files: \
     raise the limit (ulimit -n) or ask for fewer"
)]
pub struct TooFewDescriptors {
    /// Connections.
    pub wanted: u64,
    /// Open files.
    pub allowed: u64,
}

/// Raises this process's limit of open files as far as it may and as is needed.
///
/// # Errors
///
/// [`TooFewDescriptors`].
pub(crate) fn allow_connections(wanted: u64) -> Result<(), TooFewDescriptors> {
    let limit = getrlimit(Resource::Nofile);
    let needed = wanted + OTHER_DESCRIPTORS;
    let most = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    if needed > most || setrlimit(Resource::Nofile, raised).is_err() {
        let allowed = most;
        return Err(TooFewDescriptors { wanted, allowed });
    }
    Ok(())
}

/// Raises this process's limit of open files as far as it may.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where it may not, it stays as it is.
    let _ = setrlimit(Resource::Nofile, raised);
}
