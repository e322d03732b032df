//! Every order of events in small worlds: clean as they are, and not with a rule broken.
//!
//! `cargo test -p tandem-sim -- --nocapture` prints how many states there were, and for each fault the
//! shortest way to it.
#![allow(
    clippy::print_stdout,
    reason = "figures and traces, for whoever asks for them"
)]

mod clean;
mod faults;
mod known;
mod rounds;

use stateright::{Checker, HasDiscoveries, Model};
use tandem_sim::{Budget, Config, Exploration, Violation};

/// What an exploration found.
struct Found {
    states: usize,
    /// The shortest counterexample, and what is wrong at its end.
    wrong: Option<(Vec<String>, Violation)>,
}

fn explore(config: Config) -> Found {
    let checker = Exploration::new(config)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let paths = checker.discoveries().into_values();
    let shortest = paths.min_by_key(|path| path.clone().into_actions().len());
    let wrong = shortest.and_then(|path| {
        let wrong = checker.model().verdict(path.last_state())?;
        let steps = path.into_actions().into_iter().map(|a| format!("{a:?}"));
        Some((steps.collect(), wrong))
    });
    Found {
        states: checker.unique_state_count(),
        wrong,
    }
}

/// Explores all of a world in which nothing goes wrong.
fn is_clean(name: &str, config: Config) {
    let found = explore(config);
    if let Some((steps, wrong)) = found.wrong {
        panic!("{name}: {wrong:?} after\n  {}", steps.join("\n  "));
    }
    println!("{name}: {} states, all well", found.states);
}

/// Explores a world until something is wrong, and says what.
fn goes_wrong(name: &str, config: Config) -> Violation {
    let found = explore(config);
    let Some((steps, wrong)) = found.wrong else {
        panic!("{name}: {} states, and nothing was found", found.states);
    };
    println!(
        "{name}: {wrong:?} after {} steps, {} states\n  {}",
        steps.len(),
        found.states,
        steps.join("\n  ")
    );
    wrong
}

/// With these mishaps.
fn with(mut config: Config, mishaps: fn(&mut Budget)) -> Config {
    mishaps(&mut config.budget);
    config
}

/// Two shards on each side: two flows for each transfer.
fn sharded(requests: u8) -> Config {
    let mut config = Config::small(requests);
    config.prefill.shards = 2;
    config.decode.shards = 2;
    config
}

/// Two writes in each flow.
fn layered(requests: u8) -> Config {
    Config {
        layers: 2,
        ..Config::small(requests)
    }
}

/// A context behind the layer.
fn contextual(requests: u8) -> Config {
    Config {
        context: true,
        ..Config::small(requests)
    }
}

fn is_long() -> bool {
    std::env::var_os("TANDEM_LONG").is_some()
}
