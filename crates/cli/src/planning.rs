//! What `tandem plan` and `tandem experiment` are told: profiles, policies and traces, as a simulation takes them.

use std::path::Path;
use std::time::Duration;

use tandem_config::{Config, PROFILES, load_profile, parse_profile};
use tandem_loadtest::trace::{Slice, Trace};
use tandem_plan::{Blocks, Request, Slo};
use tandem_policies::{PolicySettings, Rule};
use tandem_timing::Profile;

use crate::failure::Failure;

/// Tables of `policies/presets`, by their files' names.
const PRESETS: &[(&str, &str)] = &[
    (
        "agents",
        include_str!("../../../policies/presets/agents.toml"),
    ),
    ("chat", include_str!("../../../policies/presets/chat.toml")),
    (
        "code-completion",
        include_str!("../../../policies/presets/code-completion.toml"),
    ),
    (
        "laptop",
        include_str!("../../../policies/presets/laptop.toml"),
    ),
    (
        "long-documents",
        include_str!("../../../policies/presets/long-documents.toml"),
    ),
    (
        "mixed-tenants",
        include_str!("../../../policies/presets/mixed-tenants.toml"),
    ),
];

/// A profile that comes with Tandem, or a file.
pub(crate) fn profile(name: &str) -> Result<Profile, Failure> {
    if let Some((_, text)) = PROFILES.iter().find(|(known, _)| *known == name) {
        let parsed = parse_profile(text, Path::new(name));
        return parsed.map_err(|problems| Failure::fault(problems.to_string()));
    }
    if name.contains('/') || Path::new(name).extension().is_some_and(|end| end == "toml") {
        return Ok(load_profile(Path::new(name))?);
    }
    let known: Vec<&str> = PROFILES.iter().map(|(known, _)| *known).collect();
    Err(Failure::mendable(format!(
        "no profile {name:?}: want one of {}, or a file such as ./mine.toml",
        known.join(", ")
    )))
}

/// A rule for both stages, a preset, or a file with a `[policy]`.
pub(crate) fn policy(name: &str) -> Result<PolicySettings, Failure> {
    let own = |text: &str| {
        let parsed = Config::parse(text, Path::new(name));
        parsed.map_err(|problems| Failure::fault(problems.to_string()))
    };
    if let Some((_, rule)) = Rule::NAMES.iter().find(|(known, _)| *known == name) {
        let mut settings = own(&rule_table(*rule, &PROMISE))?
            .policy
            .unwrap_or_default();
        // Whoever takes it has a promise of its own, or none.
        settings.slo = PolicySettings::default().slo;
        return Ok(settings);
    }
    let config = match PRESETS.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => own(text)?,
        None if name.contains('/') || name.ends_with(".toml") => Config::load(Path::new(name))?,
        None => {
            let rules = Rule::NAMES.iter().map(|(name, _)| *name);
            let presets = PRESETS.iter().map(|(name, _)| *name);
            let all: Vec<&str> = rules.chain(presets).collect();
            return Err(Failure::mendable(format!(
                "no policy {name:?}: want one of {}, or a file with a [policy]",
                all.join(", ")
            )));
        }
    };
    let none = || Failure::mendable(format!("{name}: has no [policy]"));
    config.policy.ok_or_else(none)
}

/// Some rules are refused without one.
const PROMISE: Slo = Slo {
    ttft: Duration::from_secs(2),
    tpot: Duration::from_millis(25),
};

/// A configuration's `[policy]`: a rule for both stages, with what is promised; `scored` weighs what a worker holds, when
/// it would answer, its room and its steps.
pub(crate) fn rule_table(rule: Rule, slo: &Slo) -> String {
    let weights = |stage: &str, weights: &str| match rule {
        Rule::Scored => format!("[policy.{stage}]\nweights = {{ {weights} }}\n"),
        _ => String::new(),
    };
    format!(
        "[policy]\nchoose = \"{}\"\n[policy.slo]\nttft_ms = {}\ntpot_ms = {}\n{}{}",
        rule.as_str(),
        slo.ttft.as_millis().max(1),
        slo.tpot.as_millis().max(1),
        weights("prefill", "prefix = 1, ttft = 2"),
        weights("decode", "pages = 1, tpot = 1")
    )
}

/// A trace's requests, and how many of them were shortened.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) requests: Vec<Request>,
    pub(crate) clipped: usize,
    /// Requests of the trace, or of the slice of it.
    pub(crate) all: usize,
}

/// Reads a trace, and at most so many requests of it. What does not fit `context` tokens is shortened: first the
/// prompt's beginning stays, as a replay of it against a server does.
pub(crate) fn requests(
    path: &Path,
    slice: Slice,
    most: usize,
    context: u32,
) -> Result<Asked, Failure> {
    let trace = Trace::read(path, slice).map_err(|e| Failure::mendable(format!("--trace {e}")))?;
    Ok(of_trace(&trace, most, context))
}

fn of_trace(trace: &Trace, most: usize, context: u32) -> Asked {
    let mut clipped = 0;
    let request = |row: &tandem_loadtest::trace::TraceRow| {
        let answer = row.output_tokens.min(context.saturating_sub(1)).max(1);
        let prompt = row.input_tokens.min(context.saturating_sub(answer)).max(1);
        clipped += usize::from((prompt, answer) != (row.input_tokens, row.output_tokens));
        let blocks = prompt.div_ceil(trace.block_tokens.max(1)) as usize;
        let ids = row.blocks.get(..blocks.min(row.blocks.len()));
        let ids = ids.filter(|ids| !ids.is_empty());
        Request {
            blocks: ids.map(|ids| Blocks {
                tokens: trace.block_tokens,
                ids: ids.into(),
            }),
            session: row.session(),
            ..Request::new(row.at, prompt, answer)
        }
    };
    Asked {
        requests: trace.rows.iter().take(most).map(request).collect(),
        all: trace.rows.len(),
        clipped,
    }
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// With three digits that count, for people and for JSON.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().ceil() as i32;
    if digits <= 0 {
        return value.round();
    }
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_loadtest::trace::TraceRow;

    #[test]
    fn every_preset_and_every_rule_is_a_policy_and_others_are_refused_with_the_names() {
        for (name, _) in PRESETS {
            policy(name).unwrap();
        }
        for (name, rule) in Rule::NAMES {
            assert_eq!(policy(name).unwrap().prefill.choose, rule);
        }
        let error = policy("fastest").unwrap_err().to_string();
        assert!(
            error.contains("least_loaded") && error.contains("agents"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_profile_is_refused_with_those_there_are() {
        let error = profile("deepseek").unwrap_err().to_string();
        assert!(error.contains("deepseek-r1-tp8-h200"), "{error}");
        assert_eq!(profile("llama-3-70b-tp8-h100").unwrap().gpus, 8);
    }

    #[test]
    fn long_requests_are_shortened_with_their_blocks() {
        let row = |input_tokens, output_tokens, blocks: u64| TraceRow {
            at: Duration::ZERO,
            input_tokens,
            output_tokens,
            blocks: (0..blocks).collect(),
            class: None,
        };
        let trace = Trace {
            rows: vec![row(1500, 10, 3), row(5000, 100, 10), row(10, 9, 0)],
            block_tokens: 512,
        };
        let asked = of_trace(&trace, 10, 2000);
        assert_eq!((asked.clipped, asked.all), (1, 3));
        let lengths: Vec<_> = asked
            .requests
            .iter()
            .map(|r| (r.prompt, r.answer))
            .collect();
        assert_eq!(lengths, [(1500, 10), (1900, 100), (10, 9)]);
        let blocks = |at: usize| asked.requests[at].blocks.as_ref().map(|b| b.ids.len());
        assert_eq!([blocks(0), blocks(1), blocks(2)], [Some(3), Some(4), None]);
        assert_eq!(of_trace(&trace, 1, 2000).requests.len(), 1);
    }

    #[test]
    fn three_digits_are_kept() {
        let all = [0.0, 1234.6, 12.345, 0.012_345, 1.0];
        assert_eq!(all.map(rounded), [0.0, 1235.0, 12.3, 0.0123, 1.0]);
    }
}
