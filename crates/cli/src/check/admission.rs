//! `[admission]` and its tables.

use std::time::Duration;

use tandem_config::AdmissionSettings;
use tandem_core::admission::{ClassSettings, TenantSettings};

use super::Table;

pub(super) fn tables(settings: &AdmissionSettings) -> String {
    let breaker = settings.breaker;
    let own = Table::new("admission")
        .text(
            "default_class",
            &settings.class(settings.default_class).name,
        )
        .raw("early_rejection", settings.early_rejection)
        .millis("aging_ms", settings.aging)
        .raw("retries", settings.retries)
        .raw("migrations", settings.migrations)
        .raw("breaker_failures", breaker.failures)
        .millis("breaker_open_ms", breaker.open)
        .millis("breaker_open_most_ms", breaker.open_most)
        .done();
    let classes = settings.classes.iter().map(class);
    let tenants = settings.tenants.iter();
    let tenants =
        tenants.map(|(name, own)| tenant(&format!("admission.tenant.{}", key(name)), own));
    let others = tenant("admission.any_tenant", &settings.other_tenants);
    own + &classes.collect::<String>() + &tenants.collect::<String>() + &others
}

fn class(class: &ClassSettings) -> String {
    let millis = |time: Option<Duration>| time.map(|time| time.as_millis());
    Table::new(&format!("admission.class.{}", key(&class.name)))
        .raw("priority", class.priority)
        .raw("weight", class.weight)
        .unless_absent("ttft_ms", millis(class.targets.ttft), "no target")
        .unless_absent("tpot_ms", millis(class.targets.tpot), "no target")
        .unless_absent(
            "queue_deadline_ms",
            millis(class.queue_deadline),
            "request_timeout_ms",
        )
        .raw("queue", class.queue)
        .raw("tenant_queue", class.tenant_queue)
        .done()
}

fn tenant(table: &str, tenant: &TenantSettings) -> String {
    let limits = &tenant.limits;
    Table::new(table)
        .raw("weight", tenant.weight)
        .unless_absent(
            "requests_per_second",
            limits.requests_per_second,
            "no limit",
        )
        .unless_absent("tokens_per_minute", limits.tokens_per_minute, "no limit")
        .unless_absent("concurrency", limits.concurrency, "no limit")
        .done()
}

/// A name may hold a dot, which would end the key.
fn key(name: &str) -> String {
    toml::Value::String(name.to_owned()).to_string()
}
