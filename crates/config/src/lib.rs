//! One TOML schema for every process of Tandem, and its resolution.
//!
//! A file is parsed to a table that knows where each value stands, and each section is then read
//! into its fully typed form. All that is wrong is reported at once, each with file and line.
//!
//! Reads no file but in [`Config::load`], opens no path that a file names, and knows no default
//! that depends on the machine but the number of cores.

#![forbid(unsafe_code)]

mod admin;
mod admission;
mod api_key;
mod auth;
mod changes;
mod control;
mod engine;
mod error;
mod fabric;
mod gateway;
mod http;
mod identity;
mod keys;
mod listeners;
mod log;
mod policy;
mod profile;
mod section;
mod size;
mod telemetry;
mod tls;
mod topology;
mod worker;

use std::path::Path;

pub use admin::AdminConfig;
pub use api_key::ApiKey;
pub use auth::{AuthConfig, JwtAlgorithm, JwtClaims, JwtConfig, Required};
pub use changes::changed_keys;
pub use control::ControlConfig;
pub use engine::{EngineConfig, ProfileSource, TimedConfig};
pub use error::{ConfigError, Problem, Problems, Unreadable};
pub use fabric::FabricConfig;
pub use gateway::GatewayConfig;
pub use http::{CorsOrigins, HttpConfig};
pub use identity::IdentityConfig;
pub use keys::{InvalidExpiry, KeyEntry, KeyFile, parse_expiry};
pub use log::{LogConfig, LogFormat, LogLevel};
pub use profile::{PROFILES, load_profile, parse_profile};
pub use section::is_name;
pub use size::{format_bytes, parse_bytes};
pub use tandem_core::admission::{AdmissionSettings, Limits};
pub use tandem_policies::PolicySettings;
pub use telemetry::{HttpUrl, InvalidUrl, Secret, TelemetryConfig};
pub use tls::TlsConfig;
pub use worker::{InvalidSha256, KvBudget, Sha256, WorkerConfig};

use section::{Document, SECTIONS};
use tandem_topology::DeviceMap;

/// What one file says, checked and with all defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[gateway]` with what it uses of the other tables; `None` where the file has no such table.
    pub gateway: Option<GatewayConfig>,
    /// `[worker]` with what it uses of the other tables; `None` where the file has no such table.
    pub worker: Option<WorkerConfig>,
    /// `[policy]` and its tables; `None` where the file has none. A preset has nothing else.
    pub policy: Option<PolicySettings>,
    /// `[admission]`; `None` where the file has no such table.
    pub admission: Option<AdmissionSettings>,
    /// `[topology]`: which NICs and cores belong to which device, as far as the file says.
    pub topology: DeviceMap,
    /// `[log]`.
    pub log: LogConfig,
}

impl Config {
    /// Reads and resolves a file. Relative paths in it are relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self::parse(&text, path)?)
    }

    /// Resolves the text of a file that stands, or would stand, at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Problems> {
        let mut document = Document::parse(text, path, SECTIONS)?;
        let listen_lines = listeners::lines(&document);
        let identity = document.section("identity", identity::read);
        let control = document.section("control", control::read);
        let fabric = document.section("fabric", fabric::read);
        let log = document.section("log", log::read);
        let has_tls = document.has("tls");
        let http = document.section("http", |section| http::read(section, has_tls));
        let tls = document.section("tls", tls::read).filter(|_| has_tls);
        let telemetry = document.section("telemetry", telemetry::read);
        let has_admission = document.has("admission");
        let admission = document.section("admission", admission::read);
        let policy = policy::read(&mut document, &admission);
        let has_topology = document.has("topology");
        let topology = topology::read(&mut document, text);
        let has_gateway = document.has("gateway");
        let has_worker = document.has("worker");
        let auth = document.section("auth", auth::read);
        let admin = document.section("admin", admin::read);
        let gateway = document.section("gateway", |section| gateway::read(section, &auth));
        let (worker, engine) = worker_and_engine(&mut document);
        let addresses = [
            gateway.as_ref().filter(|_| has_gateway).map(|g| g.listen),
            admin.as_ref().filter(|_| has_gateway).map(|a| a.listen),
            worker.as_ref().filter(|_| has_worker).map(|w| w.listen),
        ];
        listeners::refuse_clashes(&mut document, addresses, listen_lines);
        let preset = has_topology || has_admission || policy.is_some();
        if !has_gateway && !has_worker && !preset {
            let message = "neither [gateway] nor [worker]: nothing to run";
            document.problem_at(None, message.to_owned());
        }
        document.finish()?;

        let gateway = gateway.filter(|_| has_gateway);
        let admission = match &gateway {
            Some(gateway) => admission.within(gateway.queue_limit),
            None => admission,
        };
        let gateway = gateway.map(|gateway| GatewayConfig {
            auth,
            admin,
            http,
            tls,
            policy: policy.clone().unwrap_or_default(),
            telemetry: telemetry.clone(),
            admission: admission.clone(),
            identity: identity.clone().resolve("gateway"),
            control,
            ..gateway
        });
        let worker = worker.filter(|_| has_worker).map(|worker| WorkerConfig {
            identity: identity.resolve(worker.id.as_str()),
            engine: engine.unwrap_or_default(),
            fabric,
            control,
            topology: topology.clone(),
            telemetry,
            ..worker
        });
        Ok(Self {
            gateway,
            worker,
            policy,
            admission: has_admission.then_some(admission),
            topology,
            log,
        })
    }
}

/// `[worker]`, and `[engine]`, which says what the other may hold.
fn worker_and_engine(document: &mut Document<'_>) -> (Option<WorkerConfig>, Option<EngineConfig>) {
    if document.has("engine") && !document.has("worker") {
        let message = "[engine] is of a worker: there is no [worker]";
        document.problem_at(None, message.to_owned());
    }
    let engine = document.section("engine", engine::read);
    let timed = matches!(engine, Some(EngineConfig::Timed(_)));
    let worker = document.section("worker", |section| {
        if timed {
            worker::refuse_models_keys(section);
        }
        worker::read(section)
    });
    (worker, engine)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
