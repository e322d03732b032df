//! Admission: who may wait, who comes next, and who is turned away at once.
//!
//! Owns the queue of requests that wait for a lease ([`Queue`]), what each tenant and API key may use
//! ([`Meters`]), how fast the queue drains ([`DrainRate`]) and which workers have failed too often in
//! a row ([`Breakers`]). It refuses to know workers' loads and pages: the front door does.
//!
//! **Who comes next.** Classes have priorities; a class of a lower number is served first (as with
//! vLLM's `priority`). That is what operators expect of "interactive before batch": a share would
//! let batch work delay a chat whenever both wait. Classes of one priority share by weight, tenants
//! in a class too, both by deficit round robin (Shreedhar and Varghese, 1996) over tokens, so that
//! one long prompt counts as much as many short ones. Within a tenant the request's own priority
//! decides, then its arrival. So that no class waits for ever, one placement in [`AGED_ONE_IN`] goes
//! to the oldest request that has waited longer than the aging time, whatever its class.
//!
//! What must hold: every queue is bounded, in all, by class and by tenant; no request is overtaken for
//! ever; time comes in as an argument.

mod breaker;
mod drain;
mod drr;
mod follow;
mod meter;
mod queue;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use breaker::{BreakerSettings, BreakerState, Breakers};
pub use drain::DrainRate;
pub use follow::{MOST_CLASSES_EVER, TooManyClasses};
pub use meter::{Allowance, Bucket, Exceeded, Limits, Meters, Never, Rate};
pub use queue::{AGED_ONE_IN, Full, Queue, Waiting};

/// A class of requests, by its place in [`AdmissionSettings::classes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

/// Who pays for a request: the unit of fairness. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// A tenant of that name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Its name, to keep.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.0
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TenantId {
    /// The tenant of requests that name none.
    fn default() -> Self {
        Self::new("default")
    }
}

/// What a class promises, for policies that can aim at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Targets {
    /// Time to first token.
    pub ttft: Option<Duration>,
    /// Time per output token after the first.
    pub tpot: Option<Duration>,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClassSettings {
    /// As clients and operators write it.
    pub name: String,
    /// A lower number is served first.
    pub priority: u16,
    /// Its share among classes of the same priority. At least 1.
    pub weight: u32,
    /// What policies aim at.
    pub targets: Targets,
    /// A request waits no longer than this for its first lease; `None`: as long as the request may last.
    pub queue_deadline: Option<Duration>,
    /// Requests of this class that may wait.
    pub queue: usize,
    /// Of these, those of one tenant.
    pub tenant_queue: usize,
    /// The configuration has it no more: it is there for requests that have not ended, and nobody can
    /// name it.
    pub gone: bool,
}

impl ClassSettings {
    /// A class without a deadline or targets of its own.
    #[must_use]
    pub fn new(name: impl Into<String>, queue: usize) -> Self {
        Self {
            name: name.into(),
            priority: 0,
            weight: 1,
            targets: Targets::default(),
            queue_deadline: None,
            queue,
            tenant_queue: queue,
            gone: false,
        }
    }
}

/// What a tenant gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TenantSettings {
    /// Its share among the tenants of a class. At least 1.
    pub weight: u32,
    /// What all its requests together may use.
    pub limits: Limits,
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self {
            weight: 1,
            limits: Limits::default(),
        }
    }
}

/// All of admission's settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdmissionSettings {
    /// Requests that may wait, of all classes together.
    pub queue: usize,
    /// At least one; [`ClassId`] counts them.
    pub classes: Vec<ClassSettings>,
    /// The class of requests that name none.
    pub default_class: ClassId,
    /// Tenants with settings of their own.
    pub tenants: BTreeMap<String, TenantSettings>,
    /// All other tenants, each by itself.
    pub other_tenants: TenantSettings,
    /// Whether a request is turned away at its arrival where it could not start in time.
    pub early_rejection: bool,
    /// One that has waited longer is served whatever its class is, now and then.
    pub aging: Duration,
    /// Other pairs that a request is tried on after it failed before its first token.
    pub retries: u32,
    /// Other pairs that a request goes on with after it failed in mid-answer.
    pub migrations: u32,
    /// When a worker that fails is left alone.
    pub breaker: BreakerSettings,
}

impl AdmissionSettings {
    /// One class named `default`, and nobody limited.
    #[must_use]
    pub fn one_class(queue: usize) -> Self {
        Self {
            queue,
            classes: vec![ClassSettings::new("default", queue)],
            default_class: ClassId(0),
            tenants: BTreeMap::new(),
            other_tenants: TenantSettings::default(),
            early_rejection: true,
            aging: Duration::from_secs(10),
            retries: 2,
            migrations: 2,
            breaker: BreakerSettings::default(),
        }
    }

    /// With `queue` as the bound of all, and so of each class.
    #[must_use]
    pub fn within(mut self, queue: usize) -> Self {
        self.queue = queue;
        for class in &mut self.classes {
            class.queue = class.queue.min(queue);
            class.tenant_queue = class.tenant_queue.min(class.queue);
        }
        self
    }

    /// One class; an unknown id is a fault of the caller's.
    ///
    /// # Panics
    /// Where there is no such class.
    #[must_use]
    pub fn class(&self, class: ClassId) -> &ClassSettings {
        &self.classes[usize::from(class.0)]
    }

    /// The class of that name.
    #[must_use]
    pub fn class_named(&self, name: &str) -> Option<ClassId> {
        let found = self.nameable().find(|(_, class)| class.name == name);
        found.map(|(id, _)| id)
    }

    /// What a tenant gets.
    #[must_use]
    pub fn tenant(&self, tenant: &TenantId) -> &TenantSettings {
        let own = self.tenants.get(tenant.as_str());
        own.unwrap_or(&self.other_tenants)
    }
}
