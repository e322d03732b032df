//! What has to be known of a run whose figures are right in themselves. Pure.

use crate::summary::Summary;
use crate::workload::Workload;

/// A larger share of prompts that all differ is in no cache by chance.
const LITTLE: f64 = 0.05;
/// Tokens that a chat's template may put before every prompt: those are shared.
const TEMPLATE: u64 = 32;

/// What is to be told beside the figures.
pub(super) fn notes(measured: &Summary, workload: &Workload) -> Vec<String> {
    let mut notes = Vec::new();
    let (cached, all) = (measured.cached_tokens, measured.input_tokens);
    let template = if workload.chat { TEMPLATE } else { 0 };
    let shared = template * measured.all.counts.answered();
    if workload.prompts_differ() && cached > shared + (all as f64 * LITTLE) as u64 {
        let share = cached as f64 / all.max(1) as f64 * 100.0;
        notes.push(format!(
            "{share:.0} % of the prompts' tokens were in the server's cache, though no two prompts of this test begin \
             alike: most likely an earlier test with the same --seed asked the same. Take a --seed farther away than that \
             test had runs, for each run takes the next one, or start the server anew"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plan::Load;
    use crate::testing::plan;
    use crate::workload::{PrefixGroups, Source};

    fn measured(cached_tokens: u64) -> Summary {
        let mut measured = Summary::default();
        measured.all.counts.attained = 10;
        measured.input_tokens = 2560;
        measured.cached_tokens = cached_tokens;
        measured
    }

    fn workload(change: impl FnOnce(&mut crate::workload::Synthetic)) -> Workload {
        let mut workload = Workload::clone(&plan(Load::Trace { speed: 1.0 }).workload);
        let Source::Synthetic(made) = &*workload.source else {
            panic!("made-up prompts");
        };
        let mut made = made.clone();
        change(&mut made);
        workload.source = Arc::new(Source::Synthetic(made));
        workload
    }

    #[test]
    fn prompts_that_differ_and_were_cached_were_asked_before() {
        let differing = workload(|_| {});
        let told = notes(&measured(2400), &differing);
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("94 % of the prompts' tokens") && told[0].contains("--seed"),
            "{told:?}"
        );
        for cached in [0, 320, 128 + 320] {
            assert_eq!(notes(&measured(cached), &differing), [""; 0], "{cached}");
        }
        let completions = Workload {
            chat: false,
            ..differing
        };
        assert_eq!(notes(&measured(320), &completions).len(), 1);
    }

    #[test]
    fn prompts_that_share_their_beginning_may_be_cached() {
        let sessions = workload(|made| made.turns = "2".parse().unwrap());
        let groups = PrefixGroups {
            groups: 2,
            tokens: 64,
            skew: 0.0,
        };
        let groups = workload(|made| made.prefix = Some(groups));
        for shared in [sessions, groups] {
            assert_eq!(notes(&measured(2400), &shared), [""; 0]);
        }
    }
}
