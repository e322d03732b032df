//! `tandem check`: what a configuration file comes to, as a file of the same schema with all
//! defaults filled in.

mod admission;
mod gateway;
mod policy;
mod worker;

use std::fmt::{self, Display, Write};
use std::path::Path;
use std::time::Duration;

use tandem_config::{
    Config, ControlConfig, FabricConfig, IdentityConfig, LogFormat, TelemetryConfig, WorkerConfig,
    format_bytes,
};

use crate::console::say;
use crate::failure::Failure;

/// Prints the file's meaning, or fails with all that is wrong with it.
pub(crate) fn run(path: &Path) -> Result<(), Failure> {
    let config = Config::load(path)?;
    refuse_contradiction(path, &config)?;
    if let Some(worker) = &config.worker {
        worker::profile(&worker.engine)?;
    }
    say(&format!(
        "# {} is right in itself and comes to what follows. Models, libraries, devices and certificates \
         are looked at when it starts.\n{}",
        path.display(),
        Summary(&config)
    ));
    Ok(())
}

/// A configuration with all its defaults, as TOML.
pub(crate) fn describe(config: &Config) -> String {
    Summary(config).to_string()
}

/// What a worker would refuse at its start, whatever machine it is on.
fn refuse_contradiction(path: &Path, config: &Config) -> Result<(), Failure> {
    match &config.worker {
        Some(WorkerConfig { fabric, .. })
            if fabric.require_rdma && tandem_fabric::is_software(&fabric.provider) =>
        {
            Err(Failure::mendable(format!(
                "{}: [fabric] require_rdma: the provider {:?} is software",
                path.display(),
                fabric.provider
            )))
        }
        _ => Ok(()),
    }
}

struct Summary<'a>(&'a Config);

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config {
            gateway,
            worker,
            policy,
            admission,
            topology,
            log,
        } = self.0;
        if let Some(gateway) = gateway {
            f.write_str(&gateway::tables(gateway))?;
        }
        if let Some(worker) = worker {
            f.write_str(&worker::tables(worker))?;
            f.write_str(&fabric_table(&worker.fabric))?;
        }
        if let Some(policy) = gateway
            .as_ref()
            .map(|gateway| &gateway.policy)
            .or(policy.as_ref())
        {
            f.write_str(&policy::tables(policy))?;
        }
        let own = gateway.as_ref().map(|gateway| &gateway.admission);
        if let Some(settings) = own.or(admission.as_ref()) {
            f.write_str(&admission::tables(settings))?;
        }
        f.write_str(&topology_tables(topology))?;
        let of_gateway = gateway
            .iter()
            .map(|g| (&g.identity, g.control, &g.telemetry));
        let of_worker = worker
            .iter()
            .map(|w| (&w.identity, w.control, &w.telemetry));
        for (identity, control, telemetry) in of_gateway.chain(of_worker).take(1) {
            f.write_str(&identity_table(identity))?;
            f.write_str(&control_table(control))?;
            f.write_str(&telemetry_table(telemetry))?;
        }
        let format = match log.format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        let log = Table::new("log")
            .text("level", log.level)
            .text("format", format)
            .0;
        f.write_str(log.trim_end())
    }
}

/// A table that is being written; optional keys that are not set stand as comments.
struct Table(String);

impl Table {
    fn new(name: &str) -> Self {
        Self(format!("\n[{name}]\n"))
    }

    fn raw(mut self, key: &str, value: impl Display) -> Self {
        let _ = writeln!(self.0, "{key} = {value}");
        self
    }

    fn text(self, key: &str, value: impl Display) -> Self {
        self.raw(key, toml::Value::String(value.to_string()))
    }

    fn millis(self, key: &str, value: Duration) -> Self {
        self.raw(key, value.as_millis())
    }

    fn unless_absent(self, key: &str, value: Option<impl Display>, absent: &str) -> Self {
        match value {
            Some(value) => self.raw(key, value),
            None => self.raw(&format!("# {key}"), format!("({absent})")),
        }
    }

    /// A comment of its own.
    fn note(mut self, text: Option<&str>) -> Self {
        if let Some(text) = text {
            let _ = writeln!(self.0, "# {text}");
        }
        self
    }

    fn done(self) -> String {
        self.0
    }
}

fn quoted(text: impl Display) -> toml::Value {
    toml::Value::String(text.to_string())
}

fn fabric_table(fabric: &FabricConfig) -> String {
    let library = fabric.library.as_ref().map(|p| quoted(p.display()));
    Table::new("fabric")
        .unless_absent("library", library, "TANDEM_LIBFABRIC, or libfabric.so.1")
        .text("provider", &fabric.provider)
        .raw("require_rdma", fabric.require_rdma)
        .text("bind", fabric.bind)
        .raw("nics", nics(&fabric.nics))
        .unless_absent("cpu", fabric.cpu, "any")
        .raw("in_flight_writes", fabric.in_flight_writes)
        .unless_absent(
            "completion_entries",
            fabric.completion_entries,
            "65536 on hardware; software's grow",
        )
        .text("max_write_bytes", format_bytes(fabric.max_write_bytes))
        .unless_absent("disorder", fabric.disorder, "none; for tests")
        .done()
}

fn topology_tables(topology: &tandem_topology::DeviceMap) -> String {
    let table = |entry: &tandem_topology::DeviceEntry| {
        let table = Table::new("[topology.device]");
        let nics: Option<Vec<_>> = entry.nics.as_ref().map(|n| n.iter().map(quoted).collect());
        let list = |values: Vec<String>| format!("[{}]", values.join(", "));
        let nics = nics.map(|n| list(n.iter().map(ToString::to_string).collect()));
        let cores = entry.cores.as_ref();
        let cores = cores.map(|c| list(c.iter().map(ToString::to_string).collect()));
        table
            .text("device", entry.device)
            .unless_absent("nics", nics, "discovered")
            .unless_absent("cores", cores, "discovered")
            .done()
    };
    topology.device.iter().map(table).collect()
}

/// A table of texts, in one line.
fn labels<'l>(labels: impl IntoIterator<Item = (&'l String, &'l String)>) -> String {
    let pairs = labels.into_iter();
    let pairs: Vec<String> = pairs
        .map(|(k, v)| format!("{} = {}", quoted(k), quoted(v)))
        .collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn devices(names: &[tandem_topology::DeviceName]) -> String {
    let names: Vec<String> = names.iter().map(|n| quoted(n).to_string()).collect();
    format!("[{}]", names.join(", "))
}

fn nics(nics: &[Option<String>]) -> String {
    let names: Vec<String> = nics
        .iter()
        .flatten()
        .map(|n| quoted(n).to_string())
        .collect();
    if names.is_empty() {
        nics.len().to_string()
    } else {
        format!("[{}]", names.join(", "))
    }
}

fn identity_table(identity: &IdentityConfig) -> String {
    Table::new("identity")
        .text("directory", identity.directory.display())
        .text("name", &identity.name)
        .done()
}

fn control_table(control: ControlConfig) -> String {
    Table::new("control")
        .millis("keep_alive_ms", control.keep_alive)
        .millis("idle_timeout_ms", control.idle_timeout)
        .done()
}

fn telemetry_table(telemetry: &TelemetryConfig) -> String {
    let resource = telemetry.resource.iter();
    let resource: toml::Table = resource.map(|(k, v)| (k.clone(), quoted(v))).collect();
    let endpoint = telemetry.otlp_endpoint.as_ref().map(quoted);
    let names: Vec<&str> = telemetry.headers.keys().map(String::as_str).collect();
    let table = Table::new("telemetry")
        .raw("vllm_names", telemetry.vllm_names)
        .raw("log_prefix_hashes", telemetry.log_prefix_hashes)
        .unless_absent("otlp_endpoint", endpoint, "nobody is told")
        .raw("sample", toml::Value::Float(telemetry.sample))
        .text("service_name", &telemetry.service_name)
        .raw("resource", toml::Value::Table(resource))
        .millis("otlp_interval_ms", telemetry.otlp_interval)
        .millis("otlp_timeout_ms", telemetry.otlp_timeout)
        .raw("otlp_queue_limit", telemetry.otlp_queue_limit);
    // Whoever sees this may see no secrets.
    let headers = if names.is_empty() {
        "none".to_owned()
    } else {
        format!("{}: not shown", names.join(", "))
    };
    table
        .unless_absent("headers", None::<&str>, &headers)
        .done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_a_file_that_comes_to_the_same() {
        let text = "[gateway]\ntokenizer = \"t\"\nworkers = [\"127.0.0.1:1\"]\n\
                    default_max_tokens = 5\ntool_dialect = \"hermes\"\ndrain_pause_ms = 9\n\
                    [http]\nhttp3 = true\ncors_origins = [\"https://a\"]\nhosts = [\"a\"]\n\
                    max_uri_bytes = 100\n[tls]\ncertificate = \"c\"\nkey = \"k\"\n\
                    [auth]\nkeys = \"k.toml\"\njwks = \"j.json\"\njwt_issuer = \"i\"\n\
                    jwt_audience = \"a\"\njwt_claims = { class = \"c\", concurrency = \"n\" }\n[admin]\nlisten = \"127.0.0.1:1\"\n\
                    tls = { certificate = \"d\", key = \"l\" }\n[policy]\nseed = 3\n[policy.decode]\n\
                    choose = \"random\"\n[admission]\nretries = 1\ndefault_class = \"a\"\n\
                    [admission.class.a]\nttft_ms = 9\n[admission.class.b]\npriority = 2\n\
                    [admission.tenant.t]\nweight = 2\n[admission.any_tenant]\nconcurrency = 3\n[control]\nkeep_alive_ms = 100\n\
                    [telemetry]\notlp_endpoint = \"http://c:4318\"\nsample = 0.25\nresource = { \"a.b\" = \"c\" }\n\
                    [identity]\nname = \"n\"\n[log]\nformat = \"json\"\n\
                    [worker]\nid = \"w\"\nrole = \"both\"\nlisten = \"127.0.0.1:0\"\nmodel = \"m\"\n\
                    kv_pages = 3\n[engine]\nkind = \"timed\"\nprofile = \"p.toml\"\ntime_scale = 0.25\n\
                    [fabric]\nlibrary = \"l.so\"\ncpu = 1\ncompletion_entries = 70\nmax_write_bytes = 8192\n";
        let config = Config::parse(text, Path::new("/etc/t.toml")).unwrap();
        let again = Summary(&config).to_string();
        let again = Config::parse(&again, Path::new("/etc/t.toml")).expect(&again);
        assert_eq!(again, config);
        let text = "[worker]\nid = \"w\"\nrole = \"both\"\nlisten = \"127.0.0.1:0\"\nmodel = \"m\"\n\
                    threads = 1\nkv_dtype = \"bf16\"\n";
        let config = Config::parse(text, Path::new("/etc/t.toml")).unwrap();
        let again = Summary(&config).to_string();
        assert_eq!(Config::parse(&again, Path::new("/etc/t.toml")), Ok(config));
    }

    #[test]
    fn a_dialect_that_nobody_named_is_said_to_be_found() {
        let text = "[gateway]\ntokenizer = \"t\"\nworkers = []\nreasoning_dialect = \"think\"\n";
        let config = Config::parse(text, Path::new("/etc/t.toml")).unwrap();
        let summary = Summary(&config).to_string();
        assert!(
            summary.contains("\nreasoning_dialect = \"think\"\n"),
            "{summary}"
        );
        let found = "\n# tool_dialect = (what the model's chat template shows)\n";
        assert!(summary.contains(found), "{summary}");
    }

    #[test]
    fn a_summary_shows_no_secret() {
        let text = "[gateway]\ntokenizer = \"t\"\nworkers = []\n\
                    [telemetry]\nheaders = { authorization = \"hunter2\" }\n";
        let config = Config::parse(text, Path::new("/etc/t.toml")).unwrap();
        let summary = Summary(&config).to_string();
        assert!(!summary.contains("hunter2"), "{summary}");
        assert!(summary.contains("# headers = (authorization: not shown)"));
    }
}
