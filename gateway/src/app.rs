//! What all of the gateway's replies are made from.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tandem_wire::Endpoint;
use tokio::sync::{Notify, watch};

use crate::api::error::{ApiError, RETRY_AFTER};
use crate::auth::Gate;
use crate::door::{Door, View};
use crate::http::Tls;
use crate::live::Live;
use crate::metrics::{self, Metrics};
use crate::reading::Reading;
use crate::relay::Farewells;
use crate::reload::Reloads;
use crate::requests::Requests;
use crate::roster::Roster;

/// Shared by all connections.
pub(crate) struct App {
    pub(crate) door: Door,
    pub(crate) roster: Arc<Roster>,
    pub(crate) farewells: Farewells,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reading: Reading,
    /// Whether the log names the blocks of prompts.
    pub(crate) log_prefix_hashes: bool,
    /// Of the control plane; it knows until when certificates hold.
    pub(crate) endpoint: Endpoint,
    /// The certificate that operators see, where they do.
    pub(crate) admin_tls: Option<Tls>,
    /// Who may come in.
    pub(crate) gate: Arc<Gate>,
    /// Those in flight.
    pub(crate) requests: Arc<Requests>,
    /// The configuration that is in force.
    pub(crate) live: Live,
    /// `None` where the gateway was started without a file.
    pub(crate) reloads: Option<Reloads>,
    /// Seconds since 1970 at which the gateway started.
    pub(crate) started: u64,
    pub(crate) stopping: AtomicBool,
    /// Told when the admin listener asks the gateway to stop.
    pub(crate) stop: Notify,
    /// True once requests that are still open must end.
    pub(crate) halt: watch::Sender<bool>,
}

impl App {
    /// The name under which the model is served.
    pub(crate) fn model_name<'a>(&'a self, view: &'a View) -> &'a str {
        match &view.served {
            Some(served) => &served.name,
            None => self.reading.model_name(),
        }
    }

    /// Resolves when requests that are still open must end, to the error that they end with.
    pub(crate) fn halted(&self) -> impl Future<Output = ApiError> + Send + use<> {
        let mut halt = self.halt.subscribe();
        async move {
            // An error means that the gateway itself has gone.
            let _ = halt.wait_for(|halt| *halt).await;
            ApiError::busy("stopping", "The gateway is stopping.", RETRY_AFTER)
        }
    }

    /// A request's whole time.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.live.get().request_timeout
    }

    /// The longest request body.
    pub(crate) fn max_body_bytes(&self) -> u64 {
        self.live.get().max_body_bytes
    }

    /// All figures, in Prometheus's form.
    pub(crate) fn figures(&self) -> String {
        let view = self.door.view();
        self.metrics.prefix_index(view.index);
        let own = self
            .metrics
            .render(self.door.in_flight(), &view, &self.roster);
        own + &metrics::operations(self, &view)
    }

    /// Whether it is about to stop, and not to be sent anything new.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
