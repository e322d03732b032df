//! The tables of single rules.

use std::time::Duration;

use tandem_policies::{
    ConsistentHash, Headroom, KvCost, KvcacheCentric, PrefixAware, Reject, SloAware, Splitwise,
};
use toml::de::DeValue;

use crate::section::{Section, real};

pub(super) fn hash(section: &mut Section<'_, '_>) -> ConsistentHash {
    let want = "0 (no bound) or a number from 1 to 1000";
    let load_factor = section.read("load_factor", want, |value| {
        real(value).filter(|n| *n == 0.0 || (1.0..=1000.0).contains(n))
    });
    ConsistentHash {
        load_factor: load_factor.unwrap_or(ConsistentHash::default().load_factor),
    }
}

pub(super) fn prefix_aware(section: &mut Section<'_, '_>) -> PrefixAware {
    let default = PrefixAware::default();
    let share = section.real("cache_threshold", 0.0..=1.0);
    let most = section.number("balance_abs_threshold", 0..=1_000_000);
    let ratio = section.real("balance_rel_threshold", 1.0..=1000.0);
    PrefixAware {
        cache_threshold: share.unwrap_or(default.cache_threshold),
        balance_abs_threshold: most.unwrap_or(default.balance_abs_threshold),
        balance_rel_threshold: ratio.unwrap_or(default.balance_rel_threshold),
    }
}

pub(super) fn kv_cost(section: &mut Section<'_, '_>) -> KvCost {
    let default = KvCost::default();
    let mut real = |key, range, default| section.real(key, range).unwrap_or(default);
    KvCost {
        overlap_score_credit: real(
            "overlap_score_credit",
            0.0..=1.0,
            default.overlap_score_credit,
        ),
        overlap_score_credit_decay: real(
            "overlap_score_credit_decay",
            0.0..=1000.0,
            default.overlap_score_credit_decay,
        ),
        prefill_load_scale: real(
            "prefill_load_scale",
            0.0..=1000.0,
            default.prefill_load_scale,
        ),
        router_temperature: real(
            "router_temperature",
            0.0..=1000.0,
            default.router_temperature,
        ),
    }
}

pub(super) fn kvcache(section: &mut Section<'_, '_>) -> KvcacheCentric {
    let default = KvcacheCentric::default();
    let want = "four numbers of milliseconds: constant, per token to compute, per token held, per \
                square of a token to compute";
    let prefill_model = section.read("prefill_model", want, model);
    let transfer_gbps = section.real("transfer_gbps", 0.001..=1_000_000.0);
    let reject = section.choice("reject", &Reject::NAMES).unwrap_or_default();
    let line = section.line_of("predicted_decode_ms");
    let decode = section.number("predicted_decode_ms", 1..=86_400_000);
    if line.is_some() && reject != Reject::Predicted {
        section.refuse(
            line,
            "predicted_decode_ms: only `reject = \"predicted\"` has it",
        );
    }
    KvcacheCentric {
        prefill_model,
        transfer_gbps,
        reject,
        predicted_decode: decode.map_or(default.predicted_decode, Duration::from_millis),
    }
}

fn model(value: &DeValue<'_>) -> Option<[f32; 4]> {
    let numbers: Option<Vec<f32>> = value
        .as_array()?
        .iter()
        .map(|number| real(number.get_ref()).filter(|n| *n >= 0.0))
        .collect();
    // A prompt that costs nothing for its tokens would leave every queue empty.
    <[f32; 4]>::try_from(numbers?)
        .ok()
        .filter(|model| model[1] > 0.0)
}

pub(super) fn splitwise(section: &mut Section<'_, '_>) -> Splitwise {
    let default = Splitwise::default();
    let most = section.number("prompt_max_pending_tokens", 1..=16_777_216);
    let share = section.real("token_mem_high", 0.01..=1.0);
    Splitwise {
        prompt_max_pending_tokens: most.unwrap_or(default.prompt_max_pending_tokens),
        token_mem_high: share.unwrap_or(default.token_mem_high),
        mixed_pool: section.flag("mixed_pool").unwrap_or(default.mixed_pool),
    }
}

pub(super) fn slo_aware(section: &mut Section<'_, '_>) -> SloAware {
    let rooms = [("least", Headroom::Least), ("most", Headroom::Most)];
    // Without a decode time there is nothing to predict loads by.
    let rejects = [("none", Reject::None), ("arrival", Reject::Arrival)];
    SloAware {
        headroom: section.choice("headroom", &rooms).unwrap_or_default(),
        reject: section.choice("reject", &rejects).unwrap_or_default(),
    }
}
