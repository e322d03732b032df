//! `[policy]`: which workers serve a request. What the keys mean, their defaults and their sources
//! stand in `policies/README.md`.

mod rules;
mod stage;

use tandem_core::admission::AdmissionSettings;
use tandem_core::pairing::{Stage, Targets};
use tandem_policies::{
    IndexSettings, LocalPrefill, PairSettings, PolicySettings, Rule, SessionHeader,
    TopologySettings, WhenNoPrefill,
};
use toml::de::DeValue;

use crate::admission;
use crate::section::{Document, Section, text};

/// The tables that only one rule reads.
const RULE_TABLES: [(&str, Rule); 6] = [
    ("consistent_hash", Rule::ConsistentHash),
    ("prefix_aware", Rule::PrefixAware),
    ("kv_cost", Rule::KvCost),
    ("kvcache_centric", Rule::KvcacheCentric),
    ("splitwise", Rule::Splitwise),
    ("slo_aware", Rule::SloAware),
];

/// The table, if the file has it; what is wrong with it is noted. `admission` may promise what the table
/// does not.
pub(crate) fn read(
    document: &mut Document<'_>,
    admission: &AdmissionSettings,
) -> Option<PolicySettings> {
    let mut classes = admission.classes.iter();
    let all_promise = classes.all(|class| class.targets != Targets::default());
    document
        .has("policy")
        .then(|| document.section("policy", |section| settings(section, all_promise)))
}

fn settings(policy: &mut Section<'_, '_>, all_promise: bool) -> PolicySettings {
    let choose = policy.choice("choose", &Rule::NAMES);
    let seed = policy.number("seed", 0..=i64::MAX as u64);
    let when = [
        ("refuse", WhenNoPrefill::Refuse),
        ("local", WhenNoPrefill::Local),
    ];
    let when_no_prefill = policy.choice("when_no_prefill", &when).unwrap_or_default();
    let want = "a header's name such as \"x-session-id\", or \"\" for none";
    let session_header = policy.read("session_header", want, session_header);
    let pair_line = policy.line_of("pair");
    let lines = RULE_TABLES.map(|(name, _)| policy.line_of(name));
    let prefill = policy.table("prefill", |t| stage::read(t, choose, Stage::Prefill));
    let prefill = prefill.unwrap_or_else(|| stage::untold(policy, choose));
    let decode = policy.table("decode", |t| stage::read(t, choose, Stage::Decode));
    let decode = decode.unwrap_or_else(|| stage::untold(policy, choose));
    let settings = PolicySettings {
        seed,
        when_no_prefill,
        session_header: session_header.unwrap_or_default(),
        prefill,
        decode,
        pair: policy.table("pair", pair).unwrap_or_default(),
        topology: policy.table("topology", topology).unwrap_or_default(),
        local_prefill: policy
            .table("local_prefill", local_prefill)
            .unwrap_or_default(),
        index: policy.table("index", index).unwrap_or_default(),
        slo: policy.table("slo", admission::targets).unwrap_or_default(),
        consistent_hash: policy
            .table("consistent_hash", rules::hash)
            .unwrap_or_default(),
        prefix_aware: policy
            .table("prefix_aware", rules::prefix_aware)
            .unwrap_or_default(),
        kv_cost: policy.table("kv_cost", rules::kv_cost).unwrap_or_default(),
        kvcache_centric: policy
            .table("kvcache_centric", rules::kvcache)
            .unwrap_or_default(),
        splitwise: policy
            .table("splitwise", rules::splitwise)
            .unwrap_or_default(),
        slo_aware: policy
            .table("slo_aware", rules::slo_aware)
            .unwrap_or_default(),
    };
    contradictions(policy, &settings, all_promise, &lines);
    if pair_line.is_some() && settings.pair.candidates == 1 {
        policy.refuse(pair_line, "pair: with `candidates = 1` each stage chooses alone, and nothing else there counts; want 2 to 16");
    }
    settings
}

/// What each key alone cannot tell.
fn contradictions(
    policy: &mut Section<'_, '_>,
    settings: &PolicySettings,
    all_promise: bool,
    lines: &[Option<usize>; 6],
) {
    let uses = |rule| settings.prefill.choose == rule || settings.decode.choose == rule;
    for ((name, rule), line) in RULE_TABLES.iter().zip(lines) {
        if line.is_some() && !uses(*rule) {
            let message =
                format!("{name}: neither stage has `choose = \"{name}\"`, so nothing here counts");
            policy.refuse(*line, &message);
        }
    }
    let promised = all_promise || settings.slo != Targets::default();
    if uses(Rule::SloAware) && !promised {
        policy.refuse(None, &format!("`choose = \"slo_aware\"` {NEEDS_A_PROMISE}"));
    }
    let rejects = uses(Rule::KvcacheCentric)
        && settings.kvcache_centric.reject != tandem_policies::Reject::None;
    if rejects && !promised {
        policy.refuse(
            lines[3],
            &format!("kvcache_centric: `reject` {NEEDS_A_PROMISE}"),
        );
    }
}

/// Longest name of a header.
const LONGEST_HEADER: usize = 64;
/// Headers that are taken out of a request before anybody could look at them, or that are no name of
/// anything.
const NO_SESSION: [&str; 4] = ["authorization", "x-api-key", "host", "content-length"];

/// In lower case.
fn session_header(value: &DeValue<'_>) -> Option<SessionHeader> {
    let name = value.as_str()?.to_ascii_lowercase();
    if name.is_empty() {
        return Some(SessionHeader::none());
    }
    let token = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    let fits = name.len() <= LONGEST_HEADER && name.bytes().all(token);
    (fits && !NO_SESSION.contains(&&*name)).then(|| SessionHeader::named(name))
}

fn pair(section: &mut Section<'_, '_>) -> PairSettings {
    let default = PairSettings::default();
    let candidates = section.number("candidates", 1..=16);
    PairSettings {
        candidates: candidates.unwrap_or(CANDIDATES),
        topology: section
            .real("topology", 0.0..=1000.0)
            .unwrap_or(default.topology),
    }
}

fn topology(section: &mut Section<'_, '_>) -> TopologySettings {
    let want = "a list of 1 to 6 labels' keys, the nearest first, such as [\"host\", \"rack\"]";
    let levels = section.read("levels", want, |value| {
        let keys = value.as_array()?.iter();
        let keys: Option<Vec<String>> = keys
            .map(|key| text(key.get_ref()).map(str::to_owned))
            .collect();
        keys.filter(|keys| (1..=6).contains(&keys.len()))
    });
    levels.map_or_else(TopologySettings::default, |levels| TopologySettings {
        levels,
    })
}

fn local_prefill(section: &mut Section<'_, '_>) -> LocalPrefill {
    let default = LocalPrefill::default();
    let mut tokens =
        |key, least, default| section.number(key, least..=16_777_216).unwrap_or(default);
    LocalPrefill {
        max_prompt_tokens: tokens("max_prompt_tokens", 0, default.max_prompt_tokens),
        max_uncached_tokens: tokens("max_uncached_tokens", 0, default.max_uncached_tokens),
        max_queued_tokens: tokens("max_queued_tokens", 1, default.max_queued_tokens),
    }
}

fn index(section: &mut Section<'_, '_>) -> IndexSettings {
    let default = IndexSettings::default();
    let max_blocks = section.number("max_blocks", 1024..=67_108_864);
    IndexSettings {
        max_blocks: max_blocks.unwrap_or(default.max_blocks),
    }
}

/// Keys and texts of a table of labels.
pub(crate) fn labels(value: &DeValue<'_>) -> Option<Vec<(String, String)>> {
    let entries = value.as_table()?.iter();
    let labels: Option<Vec<_>> = entries
        .map(|(key, value)| {
            let value = text(value.get_ref())?.to_owned();
            Some((key.get_ref().clone().into_owned(), value))
        })
        .collect();
    labels.filter(|labels| labels.len() <= MAX_LABELS)
}

/// What to do without where something is to be kept that nobody promises.
const NEEDS_A_PROMISE: &str = "needs something promised: [policy.slo] with ttft_ms or tpot_ms, or one of \
                               them for every class of [admission]";
/// Candidates whose pairs are compared where the file has the table and does not say.
const CANDIDATES: u32 = 4;
/// Labels of a worker, at most.
const MAX_LABELS: usize = tandem_policies::MAX_LABELS;
