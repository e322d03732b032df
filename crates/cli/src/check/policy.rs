//! `[policy]` as it was understood: all that counts, and nothing that its reader would refuse.

use tandem_config::PolicySettings;
use tandem_policies::{Headroom, Picker, Reject, Rule, StageSettings, WhenNoPrefill};

use super::{Table, labels, quoted};

/// The table and its tables.
pub(super) fn tables(policy: &PolicySettings) -> String {
    let when = match policy.when_no_prefill {
        WhenNoPrefill::Refuse => "refuse",
        WhenNoPrefill::Local => "local",
    };
    let mut text = Table::new("policy")
        .unless_absent("seed", policy.seed, "drawn at start")
        .text("when_no_prefill", when)
        .text(
            "session_header",
            policy.session_header.name().unwrap_or_default(),
        )
        .done();
    text += &stage("policy.prefill", &policy.prefill);
    text += &stage("policy.decode", &policy.decode);
    if policy.pair.candidates > 1 {
        text += &Table::new("policy.pair")
            .raw("candidates", policy.pair.candidates)
            .raw("topology", policy.pair.topology)
            .done();
    }
    let levels: Vec<_> = policy.topology.levels.iter().map(quoted).collect();
    text += &Table::new("policy.topology")
        .raw("levels", toml::Value::Array(levels))
        .done();
    let local = policy.local_prefill;
    text += &Table::new("policy.local_prefill")
        .raw("max_prompt_tokens", local.max_prompt_tokens)
        .raw("max_uncached_tokens", local.max_uncached_tokens)
        .raw("max_queued_tokens", local.max_queued_tokens)
        .done();
    text += &Table::new("policy.index")
        .raw("max_blocks", policy.index.max_blocks)
        .done();
    let millis = |time: Option<std::time::Duration>| time.map(|t| t.as_millis());
    text += &Table::new("policy.slo")
        .unless_absent("ttft_ms", millis(policy.slo.ttft), "nothing promised")
        .unless_absent("tpot_ms", millis(policy.slo.tpot), "nothing promised")
        .done();
    text + &rules(policy)
}

fn stage(name: &str, stage: &StageSettings) -> String {
    let mut table = Table::new(name).text("choose", stage.choose.as_str());
    if stage.choose == Rule::Scored {
        table = table.text("picker", stage.picker.as_str());
        if let Picker::Softmax { temperature } = stage.picker {
            table = table.raw("temperature", temperature);
        }
        let weights = stage.weights.iter();
        let weights = weights.map(|(scorer, weight)| format!("{} = {weight}", scorer.as_str()));
        let weights: Vec<String> = weights.collect();
        table = table.raw("weights", format!("{{ {} }}", weights.join(", ")));
    }
    let wanted = stage.labels.iter().map(|(key, value)| (key, value));
    table.raw("labels", labels(wanted)).done()
}

/// The tables of the rules that are used.
fn rules(policy: &PolicySettings) -> String {
    let uses = |rule| policy.prefill.choose == rule || policy.decode.choose == rule;
    let mut text = String::new();
    let mut table = |rule, fill: &dyn Fn(Table) -> Table| {
        if uses(rule) {
            text += &fill(Table::new(&format!("policy.{}", rule.as_str()))).done();
        }
    };
    table(Rule::ConsistentHash, &|t| {
        t.raw("load_factor", policy.consistent_hash.load_factor)
    });
    let aware = policy.prefix_aware;
    table(Rule::PrefixAware, &|t| {
        t.raw("cache_threshold", aware.cache_threshold)
            .raw("balance_abs_threshold", aware.balance_abs_threshold)
            .raw("balance_rel_threshold", aware.balance_rel_threshold)
    });
    let cost = policy.kv_cost;
    table(Rule::KvCost, &|t| {
        t.raw("overlap_score_credit", cost.overlap_score_credit)
            .raw(
                "overlap_score_credit_decay",
                cost.overlap_score_credit_decay,
            )
            .raw("prefill_load_scale", cost.prefill_load_scale)
            .raw("router_temperature", cost.router_temperature)
    });
    let centric = policy.kvcache_centric;
    table(Rule::KvcacheCentric, &|t| {
        let model = centric.prefill_model.map(|model| format!("{model:?}"));
        let t = t
            .unless_absent("prefill_model", model, "as measured")
            .unless_absent(
                "transfer_gbps",
                centric.transfer_gbps,
                "never the slowest part",
            )
            .text("reject", centric.reject.as_str());
        if centric.reject == Reject::Predicted {
            return t.millis("predicted_decode_ms", centric.predicted_decode);
        }
        t
    });
    let splitwise = policy.splitwise;
    table(Rule::Splitwise, &|t| {
        t.raw(
            "prompt_max_pending_tokens",
            splitwise.prompt_max_pending_tokens,
        )
        .raw("token_mem_high", splitwise.token_mem_high)
        .raw("mixed_pool", splitwise.mixed_pool)
    });
    let slo = policy.slo_aware;
    table(Rule::SloAware, &|t| {
        let headroom = match slo.headroom {
            Headroom::Most => "most",
            Headroom::Least => "least",
        };
        t.text("headroom", headroom)
            .text("reject", slo.reject.as_str())
    });
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tandem_config::Config;

    use super::*;

    #[test]
    fn every_preset_and_every_rule_comes_to_the_same_after_it_was_shown() {
        let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/presets");
        let mut texts: Vec<String> = std::fs::read_dir(presets)
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        for (name, _) in Rule::NAMES {
            let weights = match name {
                "scored" => {
                    "weights = { prefix = 2, queue = 0.5 }\npicker = \"softmax\"\ntemperature = 0.3\n"
                }
                _ => "",
            };
            texts.push(format!(
                "[policy]\nseed = 3\nsession_header = \"\"\n[policy.prefill]\nchoose = \"{name}\"\n{weights}labels = {{ pool = \"a\" }}\n\
                 [policy.slo]\nttft_ms = 100\n[policy.pair]\ntopology = 2.5\n"
            ));
        }
        for text in texts {
            let read = |text: &str| Config::parse(text, Path::new("t.toml")).expect(text).policy;
            let policy = read(&text).unwrap();
            let shown = tables(&policy);
            assert_eq!(read(&shown).as_ref(), Some(&policy), "{shown}");
        }
    }
}
