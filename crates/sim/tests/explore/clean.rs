//! Worlds in which every order of events is safe.

use tandem_sim::{Budget, Config, LateReads};

use super::{contextual, is_clean, is_long, layered, sharded, with};

type Mishaps = fn(&mut Budget);

/// One of each kind.
const EACH: [(&str, Mishaps); 14] = [
    ("nothing", |_| {}),
    ("a timeout", |b| b.timeouts = 1),
    ("a cancel", |b| b.cancels = 1),
    ("a prefill crash", prefill_crash),
    ("a decode crash", decode_crash),
    ("a broken dispatch", |b| b.dispatch_breaks = 1),
    ("a broken generate", |b| b.generate_breaks = 1),
    ("a write error", |b| b.write_errors = 1),
    ("a failed post", |b| b.post_failures = 1),
    ("a failed engine", |b| b.engine_failures = 1),
    ("no slot", |b| b.arm_failures = 1),
    ("no way", |b| b.open_failures = 1),
    ("a failed inbox", |b| b.inbox_failures = 1),
    ("a failed outbox", |b| b.outbox_failures = 1),
];

const fn prefill_crash(budget: &mut Budget) {
    budget.prefill_crashes = 1;
    budget.restarts += 1;
}

const fn decode_crash(budget: &mut Budget) {
    budget.decode_crashes = 1;
    budget.restarts += 1;
}

/// Explores a world with each mishap in turn.
fn survives_each(what: &str, config: &Config) {
    for (name, mishaps) in EACH {
        let config = with(config.clone(), mishaps);
        // The largest of them, by far, and no other has as little to do with transfers.
        if config.budget.generate_breaks > 0 && config.requests.len() > 1 && !is_long() {
            continue;
        }
        is_clean(&format!("{what}, {name}"), config);
    }
}

#[test]
fn two_requests_survive_any_one_mishap() {
    survives_each("two requests", &Config::small(2));
}

#[test]
fn a_request_that_is_tried_again_survives_any_one_mishap() {
    let config = Config {
        retries: 1,
        ..Config::small(1)
    };
    survives_each("tried again", &config);
}

#[test]
fn two_writes_of_a_flow_survive_any_one_mishap() {
    survives_each("two layers", &layered(1));
}

#[test]
fn a_context_behind_the_pages_survives_any_one_mishap() {
    survives_each("a context", &contextual(1));
}

#[test]
fn two_flows_of_a_transfer_survive_any_one_mishap() {
    survives_each("two shards", &sharded(1));
}

#[test]
fn a_request_survives_two_mishaps() {
    let pairs: [(&str, Mishaps); 7] = [
        ("a cancel, a broken dispatch", |b| {
            (b.cancels, b.dispatch_breaks) = (1, 1)
        }),
        ("a write error, a broken dispatch", |b| {
            (b.write_errors, b.dispatch_breaks) = (1, 1)
        }),
        ("a timeout, a broken dispatch", |b| {
            (b.timeouts, b.dispatch_breaks) = (1, 1)
        }),
        ("a timeout, a cancel", |b| (b.timeouts, b.cancels) = (1, 1)),
        ("a write error, a cancel", |b| {
            (b.write_errors, b.cancels) = (1, 1)
        }),
        ("a failed outbox, no way", |b| {
            (b.outbox_failures, b.open_failures) = (1, 1)
        }),
        ("both crash", |b| {
            prefill_crash(b);
            decode_crash(b);
        }),
    ];
    for (name, mishaps) in pairs {
        is_clean(&format!("two layers, {name}"), with(layered(1), mishaps));
    }
}

#[test]
fn a_source_is_read_only_while_it_is_held_where_a_closed_outbox_reads_nothing() {
    let mut config = Config::small(1);
    config.late_reads = LateReads::UntilClosed;
    let mishaps: Mishaps = |b| (b.dispatch_breaks, b.write_errors) = (1, 1);
    is_clean("reads until the outbox is closed", with(config, mishaps));
}

#[test]
fn larger_worlds_are_clean_too() {
    if !is_long() {
        return println!("left out: TANDEM_LONG=1 explores them");
    }
    is_clean(
        "two requests, three mishaps",
        with(Config::small(2), |b| {
            (b.cancels, b.dispatch_breaks, b.write_errors) = (1, 1, 1);
        }),
    );
    is_clean(
        "two requests, both crash",
        with(Config::small(2), |b| {
            prefill_crash(b);
            decode_crash(b);
        }),
    );
    is_clean(
        "two layers, five mishaps",
        with(layered(1), |b| {
            prefill_crash(b);
            decode_crash(b);
            (b.cancels, b.dispatch_breaks, b.timeouts) = (1, 1, 1);
        }),
    );
    is_clean(
        "two shards, five mishaps",
        with(sharded(1), |b| {
            (b.post_failures, b.write_errors, b.cancels) = (1, 1, 1);
            (b.dispatch_breaks, b.timeouts) = (1, 1);
        }),
    );
}
