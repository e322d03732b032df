//! Opening: choose a provider, start the thread.

use std::sync::Arc;

use libfabric_sys::Library;
use tandem_core::immediate::SLOTS;
use tandem_memory::Memory;

use crate::cpu::CPUS;
use crate::driver::command::RegionKey;
use crate::driver::port::outbox_entries;
use crate::driver::room::QueueSize;
use crate::error::{CallError, Errno, OpenError};
use crate::info::{FabricInfo, NicInfo};
use crate::options::{FabricOptions, MAX_COMPLETION_ENTRIES, MAX_NICS};
use crate::provider;
use crate::safe::domain::Domain;
use crate::safe::hints::{self, Info, Wanted};

/// The options within their ranges.
pub(crate) fn check(options: &FabricOptions) -> Result<(), OpenError> {
    let bad = |option, want: String| Err(OpenError::Option { option, want });
    if options.slots == 0 || options.slots > SLOTS {
        return bad("slots", format!("1 to {SLOTS}"));
    }
    if options.nics.is_empty() || options.nics.len() > MAX_NICS {
        return bad("nics", format!("1 to {MAX_NICS}"));
    }
    if options.cpu.is_some_and(|cpu| cpu >= CPUS) {
        return bad("cpu", format!("below {CPUS}"));
    }
    if options.in_flight_writes == 0 {
        return bad("in_flight_writes", "at least 1".into());
    }
    let entries = 1..=MAX_COMPLETION_ENTRIES;
    if options
        .completion_entries
        .is_some_and(|n| !entries.contains(&n))
    {
        return bad(
            "completion_entries",
            format!("1 to {MAX_COMPLETION_ENTRIES}"),
        );
    }
    Ok(())
}

/// The first way that libfabric offers to use a NIC, and whether it completes on delivery.
pub(crate) fn choose(
    options: &FabricOptions,
    nic: Option<&str>,
) -> Result<(Info, bool), OpenError> {
    let library = Library::open(options.library.as_deref())?;
    let name = provider::resolve(&options.provider, library.version());
    if options.require_rdma && provider::is_software(&name) {
        return Err(OpenError::NotRdma {
            wanted: options.provider.clone(),
            provider: name,
        });
    }
    if let Some(why) = provider::unfit(&name) {
        return Err(OpenError::Unfit {
            provider: name,
            why,
        });
    }
    // shm and efa have addresses of their own kind.
    let mut domains = Vec::new();
    let sockets = !["shm", "sm2", "efa", "efa-direct"].contains(&name.as_str());
    let bind = options.bind.filter(|_| sockets);
    for delivery_complete in [true, false] {
        let wanted = Wanted {
            provider: Some(&name),
            bind,
            delivery_complete,
            window: options.in_flight_writes as usize,
        };
        match hints::query(library, &wanted) {
            Ok(found) => {
                for info in found.into_iter().filter(|info| info.provider() == name) {
                    if nic.is_none_or(|nic| is_of(&info.domain(), nic)) {
                        return Ok((info, delivery_complete));
                    }
                    domains.push(info.domain());
                }
            }
            Err(Errno::NO_DATA) => {}
            Err(errno) => {
                let error = crate::error::CallError {
                    call: "fi_getinfo",
                    errno,
                };
                return Err(OpenError::Call {
                    provider: name,
                    error,
                });
            }
        }
    }
    if let Some(nic) = nic.filter(|_| !domains.is_empty()) {
        domains.sort_unstable();
        domains.dedup();
        return Err(OpenError::NoNic {
            nic: nic.to_owned(),
            provider: name,
            available: domains,
        });
    }
    let available = provider::available(library)
        .into_iter()
        .map(|p| p.name)
        .collect();
    Err(OpenError::NoProvider {
        wanted: options.provider.clone(),
        available,
    })
}

/// Whether a domain is this NIC's: EFA's are named after it with an ending (`rdmap16s27-rdm`).
fn is_of(domain: &str, nic: &str) -> bool {
    domain == nic || domain.strip_prefix(nic).is_some_and(|r| r.starts_with('-'))
}

/// Opens a domain for each NIC and registers the arena there. The thread that calls it owns what it
/// returns.
pub(crate) fn open_domains(
    options: &FabricOptions,
    memory: &Arc<dyn Memory>,
) -> Result<Vec<Domain>, OpenError> {
    let open = |nic: &Option<String>| open_domain(options, nic.as_deref(), Arc::clone(memory));
    options.nics.iter().map(open).collect()
}

fn open_domain(
    options: &FabricOptions,
    nic: Option<&str>,
    memory: Arc<dyn Memory>,
) -> Result<Domain, OpenError> {
    let (info, delivery_complete) = choose(options, nic)?;
    let provider = info.provider();
    if options.require_rdma && provider::is_software(&provider) {
        return Err(OpenError::NotRdma {
            wanted: options.provider.clone(),
            provider,
        });
    }
    let bytes = memory.len();
    if provider == "shm"
        && let Err(error) = crate::shm::remove_leftovers()
    {
        tracing::warn!(%error, "cannot look for leftovers in /dev/shm");
    }
    let queue = QueueSize::of(options.completion_entries, provider::is_software(&provider));
    let domain = Domain::open(info, delivery_complete, memory)
        .map_err(|error| refused(provider.clone(), bytes, error))?;
    let window = (options.in_flight_writes as usize).min(domain.limits.tx_size);
    let entries = queue.entries.max(outbox_entries(window));
    match domain.try_queue(entries) {
        Ok(()) => Ok(domain),
        Err(CallError { errno, .. }) => Err(OpenError::Queue {
            provider,
            entries,
            errno,
        }),
    }
}

fn refused(provider: String, bytes: usize, error: CallError) -> OpenError {
    if error.call != "fi_mr_reg" {
        return OpenError::Call { provider, error };
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    OpenError::Register {
        provider,
        bytes,
        errno: error.errno,
        locked: limit.map_or_else(|| "unlimited".into(), |limit| format!("{limit} bytes")),
    }
}

/// What the domains are; there is one at least.
pub(crate) fn describe(domains: &[Domain], options: &FabricOptions) -> FabricInfo {
    let domain = &domains[0];
    let info = &domain.info;
    let nic = |domain: &Domain| NicInfo {
        domain: domain.info.domain(),
        name: RegionKey {
            base: domain.base(),
            key: domain.key(),
        },
    };
    let provider = info.provider();
    FabricInfo {
        software: provider::is_software(&provider),
        provider,
        fabric: info.fabric(),
        nics: domains.iter().map(nic).collect(),
        version: info.library().version(),
        mr_mode: info.mr_mode_text(),
        len: domain.memory().len() as u64,
        cq_data_size: domain.limits.cq_data_size,
        delivery_complete: domains.iter().all(|d| d.delivery_complete),
        waits_on_descriptors: domains.iter().all(|d| d.waits_on_descriptors),
        window: (options.in_flight_writes as usize)
            .min(domain.limits.tx_size)
            .max(1) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_is_refused_is_told_with_its_size_and_both_limits() {
        let error = |call| CallError {
            call,
            errno: Errno(12),
        };
        let text = refused("verbs".into(), 1 << 40, error("fi_mr_reg")).to_string();
        assert!(
            text.contains("verbs cannot register an arena of 1099511627776 bytes"),
            "{text}"
        );
        assert!(
            text.contains("kv_memory") && text.contains("ulimit -l"),
            "{text}"
        );
        let other = refused("verbs".into(), 1, error("fi_domain"));
        assert!(matches!(other, OpenError::Call { .. }));
    }
}
