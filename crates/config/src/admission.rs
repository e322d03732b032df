//! `[admission]`: who may wait and how long, who comes next, what a tenant may use, and how often a
//! request that failed is tried again.

use std::time::Duration;

use tandem_core::admission::{
    AdmissionSettings, BreakerSettings, ClassId, ClassSettings, Limits, Targets, TenantSettings,
};

use crate::section::{Section, text};

/// Longest class and tenant names, in bytes.
const LONGEST_NAME: usize = 63;
/// Classes that a file may have: each has metrics of its own.
const MOST_CLASSES: usize = 64;
/// `[gateway] queue_limit` at most: what a class that says nothing has.
const UNBOUNDED: usize = 1_000_000;
const DAY_MS: u64 = 86_400_000;

/// Reads the table. Bounds of queues are not yet within `[gateway] queue_limit`.
pub(crate) fn read(section: &mut Section<'_, '_>) -> AdmissionSettings {
    let defaults = AdmissionSettings::one_class(UNBOUNDED);
    let line = section.line_of("default_class");
    let default_class = section.read("default_class", "a class's name", |value| {
        text(value).map(ToOwned::to_owned)
    });
    let early_rejection = section.flag("early_rejection");
    let aging = section.millis("aging_ms", 1..=DAY_MS, 10_000);
    let retries = section.number("retries", 0..=16);
    let migrations = section.number("migrations", 0..=16);
    let breaker = breaker(section);
    let class_line = section.line_of("class");
    let classes = section.tables("class", class);
    if classes.len() > MOST_CLASSES {
        let found = classes.len();
        section.refuse(
            class_line,
            &format!("class: want at most {MOST_CLASSES}, found {found}"),
        );
    }
    let classes = named(section, class_line, "class", classes);
    let mut classes: Vec<ClassSettings> = classes
        .into_iter()
        .map(|(name, class)| ClassSettings { name, ..class })
        .collect();
    if classes.is_empty() {
        classes.clone_from(&defaults.classes);
    }
    let tenant_line = section.line_of("tenant");
    let tenants = section.tables("tenant", tenant);
    let tenants = named(section, tenant_line, "tenant", tenants);
    let other_tenants = section.table("any_tenant", tenant);
    let mut settings = AdmissionSettings {
        queue: UNBOUNDED,
        classes,
        default_class: ClassId(0),
        tenants: tenants.into_iter().collect(),
        other_tenants: other_tenants.unwrap_or_default(),
        early_rejection: early_rejection.unwrap_or(defaults.early_rejection),
        aging,
        retries: retries.unwrap_or(defaults.retries),
        migrations: migrations.unwrap_or(defaults.migrations),
        breaker,
    };
    match the_default(&settings, default_class.as_deref()) {
        Ok(class) => settings.default_class = class,
        Err(why) => section.refuse(line.or(class_line), &why),
    }
    settings
}

/// The class of requests that name none.
fn the_default(settings: &AdmissionSettings, named: Option<&str>) -> Result<ClassId, String> {
    let names: Vec<&str> = settings.classes.iter().map(|c| c.name.as_str()).collect();
    match named {
        Some(name) => settings.class_named(name).ok_or_else(|| {
            let names = names.join(", ");
            format!("default_class: no class {name:?}; there are {names}")
        }),
        None if names.len() == 1 => Ok(ClassId(0)),
        None => settings.class_named("default").ok_or_else(|| {
            let names = names.join(", ");
            format!("needs `default_class`, the class of requests that name none: one of {names}")
        }),
    }
}

fn breaker(section: &mut Section<'_, '_>) -> BreakerSettings {
    let defaults = BreakerSettings::default();
    let failures = section.number("breaker_failures", 0..=1_000_000);
    let line = section.line_of("breaker_open_most_ms");
    let open = section.millis("breaker_open_ms", 1..=DAY_MS, 1_000);
    let open_most = section.millis("breaker_open_most_ms", 1..=DAY_MS, 60_000);
    if open_most < open {
        let (open, most) = (open.as_millis(), open_most.as_millis());
        let why = format!("breaker_open_most_ms: {most} is below breaker_open_ms, {open}");
        section.refuse(line, &why);
    }
    BreakerSettings {
        failures: failures.unwrap_or(defaults.failures),
        open,
        open_most,
        seed: defaults.seed,
    }
}

fn class(section: &mut Section<'_, '_>) -> ClassSettings {
    let targets = targets(section);
    let queue_deadline = millis(section, "queue_deadline_ms");
    let queue = section.number("queue", 1..=UNBOUNDED).unwrap_or(UNBOUNDED);
    let tenant_queue = section.number("tenant_queue", 1..=UNBOUNDED);
    ClassSettings {
        name: String::new(),
        priority: section.number("priority", 0..=1000).unwrap_or(0),
        weight: section.number("weight", 1..=1000).unwrap_or(1),
        targets,
        queue_deadline,
        queue,
        tenant_queue: tenant_queue.unwrap_or(queue).min(queue),
        gone: false,
    }
}

fn tenant(section: &mut Section<'_, '_>) -> TenantSettings {
    TenantSettings {
        weight: section.number("weight", 1..=1000).unwrap_or(1),
        limits: limits(section),
    }
}

/// What is promised, of a class or by the policy.
pub(crate) fn targets(section: &mut Section<'_, '_>) -> Targets {
    Targets {
        ttft: millis(section, "ttft_ms"),
        tpot: millis(section, "tpot_ms"),
    }
}

/// What a tenant or a key may use.
pub(crate) fn limits(section: &mut Section<'_, '_>) -> Limits {
    Limits {
        requests_per_second: section.number("requests_per_second", 1..=1_000_000),
        tokens_per_minute: section.number("tokens_per_minute", 1..=1 << 40),
        concurrency: section.number("concurrency", 1..=1_000_000),
    }
}

fn millis(section: &mut Section<'_, '_>, key: &'static str) -> Option<Duration> {
    section.number(key, 1..=DAY_MS).map(Duration::from_millis)
}

/// Leaves out, and notes, what has a name that could not stand in a header and a metric's label.
fn named<T>(
    section: &mut Section<'_, '_>,
    line: Option<usize>,
    kind: &str,
    tables: Vec<(String, T)>,
) -> Vec<(String, T)> {
    let fits = |name: &str| {
        (1..=LONGEST_NAME).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let (good, bad): (Vec<_>, Vec<_>) = tables.into_iter().partition(|(name, _)| fits(name));
    for (name, _) in bad {
        let shown: String = name.chars().take(LONGEST_NAME).collect();
        let why =
            format!("{kind} {shown:?}: want 1 to {LONGEST_NAME} letters, digits, '-', '_' or '.'");
        section.refuse(line, &why);
    }
    good
}
