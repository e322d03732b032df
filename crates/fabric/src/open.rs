//! Opening: choose a provider, start the thread.

use std::sync::Arc;

use libfabric_sys::Library;
use tandem_core::immediate::SLOTS;
use tandem_memory::Memory;

use crate::error::{Errno, OpenError};
use crate::info::FabricInfo;
use crate::options::FabricOptions;
use crate::provider;
use crate::safe::domain::Domain;
use crate::safe::hints::{self, Info, Wanted};

/// The options within their ranges.
pub(crate) fn check(options: &FabricOptions) -> Result<(), OpenError> {
    let bad = |option, want: String| Err(OpenError::Option { option, want });
    if options.slots == 0 || options.slots > SLOTS {
        return bad("slots", format!("1 to {SLOTS}"));
    }
    if options.in_flight_writes == 0 {
        return bad("in_flight_writes", "at least 1".into());
    }
    if options.completion_entries < options.in_flight_writes as usize {
        return bad("completion_entries", "at least in_flight_writes".into());
    }
    Ok(())
}

/// The first way that libfabric offers, and whether it completes on delivery.
pub(crate) fn choose(options: &FabricOptions) -> Result<(Info, bool), OpenError> {
    let library = Library::get()?;
    let name = provider::resolve(&options.provider, library.version());
    if options.require_rdma && provider::is_software(&name) {
        return Err(OpenError::NotRdma {
            wanted: options.provider.clone(),
            provider: name,
        });
    }
    // shm and efa have addresses of their own kind.
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
                let exact = found.into_iter().find(|info| info.provider() == name);
                if let Some(info) = exact {
                    return Ok((info, delivery_complete));
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
    let available = provider::available(library)
        .into_iter()
        .map(|p| p.name)
        .collect();
    Err(OpenError::NoProvider {
        wanted: options.provider.clone(),
        available,
    })
}

/// Opens the domain and registers the arena. The thread that calls it owns what it returns.
pub(crate) fn open_domain(
    options: &FabricOptions,
    memory: Arc<dyn Memory>,
) -> Result<Domain, OpenError> {
    let (info, delivery_complete) = choose(options)?;
    let provider = info.provider();
    if options.require_rdma && provider::is_software(&provider) {
        return Err(OpenError::NotRdma {
            wanted: options.provider.clone(),
            provider,
        });
    }
    if provider == "shm"
        && let Err(error) = crate::shm::remove_leftovers()
    {
        tracing::warn!(%error, "cannot look for leftovers in /dev/shm");
    }
    Domain::open(info, delivery_complete, memory)
        .map_err(|error| OpenError::Call { provider, error })
}

/// What `domain` is.
pub(crate) fn describe(domain: &Domain, options: &FabricOptions) -> FabricInfo {
    let info = &domain.info;
    let provider = info.provider();
    FabricInfo {
        software: provider::is_software(&provider),
        provider,
        fabric: info.fabric(),
        domain: info.domain(),
        version: info.library().version(),
        mr_mode: info.mr_mode_text(),
        base: domain.base(),
        key: domain.key(),
        len: domain.memory().len() as u64,
        cq_data_size: domain.limits.cq_data_size,
        delivery_complete: domain.delivery_complete,
        waits_on_descriptors: domain.waits_on_descriptors,
        window: (options.in_flight_writes as usize)
            .min(domain.limits.tx_size)
            .max(1) as u32,
    }
}
