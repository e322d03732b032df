//! What libfabric offers on this machine, for people: each provider's promises, and which provider a
//! configured name comes to.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use libfabric_sys::{Library, LoadError, Version};
use serde::Serialize;
use tandem_memory::{HostMemory, Memory};

use crate::provider::{NATIVE_TCP, is_software, resolve, unfit};
use crate::safe::domain::Domain;
use crate::safe::hints::{self, Info, Wanted};

/// Names that an operator may configure.
const CONFIGURED: [&str; 4] = ["tcp", "shm", "verbs", "efa"];

/// libfabric on this machine. Displays as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Providers {
    /// libfabric's version.
    pub version: String,
    /// What was loaded.
    pub file: PathBuf,
    /// Usable providers (reliable datagrams, remote writes with four bytes of queue data), in
    /// libfabric's order, which puts hardware first.
    pub providers: Vec<ProviderFacts>,
    /// What configured names come to.
    pub choices: Vec<Choice>,
}

/// What one provider promises, by its first domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProviderFacts {
    /// libfabric's name, e.g. `tcp;ofi_rxm`.
    pub name: String,
    /// Network interfaces or NICs.
    pub domains: Vec<String>,
    /// Whether it moves bytes with the CPU.
    pub software: bool,
    /// How it registers memory, in libfabric's words.
    pub mr_mode: String,
    /// Bytes of an immediate that it carries; 4 are used.
    pub cq_data_size: usize,
    /// Whether a completion can mean that the bytes are in the target's memory.
    pub delivery_complete: bool,
    /// Whether its completion queues can be waited for with poll(2). `None` where it could not be
    /// opened.
    pub waits_on_descriptors: Option<bool>,
    /// Whether it keeps writes in order. Nothing here relies on it.
    pub ordered_writes: bool,
    /// Whether it says that bytes move without anybody polling. Nothing here relies on it.
    pub automatic_progress: bool,
    /// Writes in flight that it takes by its own default.
    pub tx_size: usize,
    /// Bytes of one write, at most.
    pub max_message_bytes: usize,
}

/// What a configured name comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// As in [`crate::FabricOptions::provider`].
    pub configured: String,
    /// libfabric's name.
    pub provider: String,
    /// Whether it is there.
    pub available: bool,
    /// Why this one.
    pub why: String,
}

/// Loads libfabric, asks it for all providers, and opens each once to see whether it can be waited for.
pub fn describe_providers() -> Result<Providers, LoadError> {
    let library = Library::get()?;
    // None at all is an error of fi_getinfo (ENODATA), and here an empty list.
    let infos = hints::query(library, &Wanted::default()).unwrap_or_default();
    let mut providers: Vec<ProviderFacts> = Vec::new();
    for info in infos {
        let (name, domain) = (info.provider(), info.domain());
        if unfit(&name).is_some() {
            continue;
        }
        match providers.iter_mut().find(|p| p.name == name) {
            Some(known) if known.domains.contains(&domain) => {}
            Some(known) => known.domains.push(domain),
            None => providers.push(facts(library, info)),
        }
    }
    let choice = |name| choice(name, library.version(), &providers);
    Ok(Providers {
        version: library.version().to_string(),
        file: library.file().to_owned(),
        choices: CONFIGURED.map(choice).to_vec(),
        providers,
    })
}

fn facts(library: &'static Library, info: Info) -> ProviderFacts {
    let name = info.provider();
    let delivering = Wanted {
        provider: Some(&name),
        delivery_complete: true,
        ..Wanted::default()
    };
    let delivering = hints::query(library, &delivering).unwrap_or_default();
    let (limits, promises) = (info.limits(), info.promises());
    ProviderFacts {
        domains: vec![info.domain()],
        software: is_software(&name),
        mr_mode: info.mr_mode_text(),
        cq_data_size: limits.cq_data_size,
        delivery_complete: delivering.iter().any(|i| i.provider() == name),
        ordered_writes: promises.ordered_writes,
        automatic_progress: promises.automatic_progress,
        tx_size: limits.tx_size,
        max_message_bytes: limits.max_write,
        waits_on_descriptors: waits(info),
        name,
    }
}

fn waits(info: Info) -> Option<bool> {
    let memory: Arc<dyn Memory> = Arc::new(HostMemory::create("describe", 4096).ok()?);
    let domain = Domain::open(info, false, memory).ok()?;
    Some(domain.waits_on_descriptors)
}

fn choice(configured: &str, version: Version, providers: &[ProviderFacts]) -> Choice {
    let provider = resolve(configured, version);
    let why = match configured {
        "tcp" if version < NATIVE_TCP => format!(
            "the native one, which libfabric before {NATIVE_TCP} calls net; its tcp;ofi_rxm can die \
             when a session breaks off"
        ),
        "tcp" => "the native one".into(),
        "verbs" => "verbs has no reliable datagrams of its own: ofi_rxm makes them".into(),
        _ => "libfabric's own name".into(),
    };
    Choice {
        configured: configured.into(),
        available: providers.iter().any(|p| p.name == provider),
        provider,
        why,
    }
}

impl Display for Providers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "libfabric {} ({})", self.version, self.file.display())?;
        for provider in &self.providers {
            writeln!(f, "\n{provider}")?;
        }
        writeln!(f, "\nconfigured as")?;
        for choice in &self.choices {
            let there = if choice.available { "" } else { " (not here)" };
            let Choice {
                configured,
                provider,
                why,
                ..
            } = choice;
            writeln!(f, "  {configured:<6} {provider}{there}: {why}")?;
        }
        Ok(())
    }
}

impl Display for ProviderFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = if self.software { "software" } else { "RDMA" };
        let or = |yes, there, absent| if yes { there } else { absent };
        writeln!(f, "{} ({kind})", self.name)?;
        let waits = match self.waits_on_descriptors {
            Some(true) => "can be waited for with poll(2)",
            Some(false) => "must be polled",
            None => "could not be opened",
        };
        let completion = or(
            self.delivery_complete,
            "when the bytes are in the target's memory",
            "when the bytes have left",
        );
        let order = or(self.ordered_writes, "kept", "not promised");
        let progress = or(self.automatic_progress, "by itself", "while polled");
        let longest = match self.max_message_bytes {
            bytes if bytes as u64 >= 1 << 62 => "no limit".to_owned(),
            bytes => format!("{bytes} bytes"),
        };
        let rows = [
            ("domains", self.domains.join(", ")),
            ("memory", self.mr_mode.clone()),
            ("immediate", format!("{} bytes", self.cq_data_size)),
            ("completes", completion.into()),
            ("queue", waits.into()),
            ("writes' order", order.into()),
            ("progress", progress.into()),
            ("in flight", self.tx_size.to_string()),
            ("longest write", longest),
        ];
        let rows = rows.map(|(name, value)| format!("  {name:<14} {value}"));
        f.write_str(&rows.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_s_choice_says_why() {
        let old = Version {
            major: 1,
            minor: 17,
        };
        let tcp = choice("tcp", old, &[]);
        assert_eq!((tcp.provider.as_str(), tcp.available), ("net", false));
        assert!(tcp.why.contains("before 1.18"), "{}", tcp.why);
        assert_eq!(choice("tcp", NATIVE_TCP, &[]).provider, "tcp");
    }
}
