//! Profiles of the timed engine: files of their own, one for a model on some GPUs, and those that come
//! with Tandem.

use std::ops::RangeInclusive;
use std::path::Path;

use tandem_core::geometry::KvKind;
use tandem_timing::{
    Attention, Dense, Exchange, Experts, KvShape, Link, Points, Profile, StepCost,
};
use toml::de::DeValue;

use crate::section::{Document, NAME, Section, double, name};
use crate::{ConfigError, Problems, Unreadable};

macro_rules! shipped {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../timing/profiles/", $name, ".toml")),
        )
    };
}
/// Names and texts of the profiles that come with Tandem.
pub const PROFILES: &[(&str, &str)] = &[
    shipped!("deepseek-r1-dp8-h200"),
    shipped!("deepseek-r1-tp16-h100"),
    shipped!("deepseek-r1-tp8-h200"),
    shipped!("llama-3-70b-tp4-h100"),
    shipped!("llama-3-70b-tp8-h100"),
    shipped!("qwen3-235b-tp4-h200"),
    shipped!("qwen3-coder-480b-tp8-h200"),
];

/// Tables that a profile needs, and those that it may have.
const NEEDED: &[&str] = &[
    "profile",
    "kv",
    "step",
    "memory",
    "dense",
    "attention",
    "link",
];
const ALL: &[&str] = &[
    "profile",
    "kv",
    "step",
    "memory",
    "dense",
    "experts",
    "attention",
    "exchange",
    "link",
];

/// Any cost, in its unit.
const COST: RangeInclusive<f64> = 0.0..=1e9;
/// What must not be 0.
const POSITIVE: RangeInclusive<f64> = 1e-6..=1e9;
/// Points of a curve, at most.
const MAX_POINTS: usize = 64;

/// Reads a profile's file.
pub fn load_profile(path: &Path) -> Result<Profile, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| Unreadable {
        path: path.to_owned(),
        error,
    })?;
    Ok(parse_profile(&text, path)?)
}

/// Reads the text of a profile that stands, or would stand, at `path`.
pub fn parse_profile(text: &str, path: &Path) -> Result<Profile, Problems> {
    let mut document = Document::parse(text, path, ALL)?;
    for table in NEEDED {
        if !document.has(table) {
            document.problem_at(None, format!("a profile needs a table [{table}]"));
        }
    }
    let head = document.section("profile", head);
    let kv = document.section("kv", kv);
    let step = document.section("step", |section| {
        let overhead_us = number(section, "overhead_us", COST);
        let layer_us = number(section, "layer_us", COST);
        Some(StepCost {
            overhead_us: overhead_us?,
            layer_us: layer_us?,
        })
    });
    let memory = document.section("memory", |s| number(s, "gb_per_s", POSITIVE));
    let dense = document.section("dense", |section| {
        let weight_mb = number(section, "weight_mb", COST);
        let ns_per_token = number(section, "ns_per_token", COST);
        Some(Dense {
            weight_mb: weight_mb?,
            ns_per_token: ns_per_token?,
        })
    });
    let has_experts = document.has("experts");
    let experts = document.section("experts", experts);
    let attention = document.section("attention", |section| {
        let ps_per_pair = number(section, "ps_per_pair", COST);
        let kv_bytes_per_token = number(section, "kv_bytes_per_token", POSITIVE);
        Some(Attention {
            ps_per_pair: ps_per_pair?,
            kv_bytes_per_token: kv_bytes_per_token?,
        })
    });
    let has_exchange = document.has("exchange");
    let exchange = document.section("exchange", exchange);
    let link = document.section("link", |section| {
        let layer_us = number(section, "layer_us", COST);
        let ns_per_token = number(section, "ns_per_token", COST);
        Some(Link {
            layer_us: layer_us?,
            ns_per_token: ns_per_token?,
        })
    });
    document.finish()?;
    let whole = || {
        let (model, context_length, gpus) = head?;
        Some(Profile {
            model,
            context_length,
            gpus,
            kv: kv?,
            step: step?,
            memory_gb_per_s: memory?,
            dense: dense?,
            experts: experts.filter(|_| has_experts),
            attention: attention?,
            exchange: exchange.filter(|_| has_exchange),
            link: link?,
        })
    };
    Ok(whole().expect("what could not be read was noted"))
}

fn head(section: &mut Section<'_, '_>) -> Option<(String, u32, u16)> {
    let model = section.need("model", NAME, name);
    let context_length = section.need_number("context_length", 2..=16_777_216);
    let gpus = section.need_number("gpus", 1..=1024);
    Some((model?, context_length?, gpus?))
}

fn kv(section: &mut Section<'_, '_>) -> Option<KvShape> {
    let layers = section.need_number("layers", 1..=1024);
    let kinds = [KvKind::Heads, KvKind::Latent].map(|kind| (kind.as_str(), kind));
    let kind = section.need_choice("kind", &kinds);
    let line = section.line_of("heads");
    let heads = section.need_number("heads", 1..=1024);
    if kind == Some(KvKind::Latent) && heads.is_some_and(|heads| heads != 1) {
        section.refuse(line, "heads: a latent is one head: want 1");
    }
    let head_dim = section.need_number("head_dim", 1..=4096);
    let tokens = section.need_number("tokens", 1..=u32::MAX);
    Some(KvShape {
        layers: layers?,
        kind: kind?,
        heads: heads?,
        head_dim: head_dim?,
        tokens: tokens?,
    })
}

fn experts(section: &mut Section<'_, '_>) -> Option<Experts> {
    let count = section.need_number("count", 1..=65_536);
    let line = section.line_of("active");
    let active = section.need_number("active", 1..=65_536);
    if let (Some(count), Some(active)) = (count, active)
        && active > count
    {
        let message = format!("active: a token takes {active} of {count} experts");
        section.refuse(line, &message);
    }
    let expert_mb = number(section, "expert_mb", COST);
    let ranks = section.need_number("ranks", 1..=65_536);
    Some(Experts {
        count: count?,
        active: active?,
        expert_mb: expert_mb?,
        ranks: ranks?,
    })
}

fn exchange(section: &mut Section<'_, '_>) -> Option<Exchange> {
    let per_layer = section.need_number("per_layer", 1..=64);
    let bytes_per_token = number(section, "bytes_per_token", POSITIVE);
    let line = section.line_of("us");
    let want = "a list of points [bytes, microseconds]";
    let points = section.need("us", want, points);
    let us = points.and_then(|points| {
        Points::new(points)
            .map_err(|why| section.refuse(line, &format!("us: want {why}")))
            .ok()
    });
    Some(Exchange {
        per_layer: per_layer?,
        bytes_per_token: bytes_per_token?,
        us: us?,
    })
}

fn points(value: &DeValue<'_>) -> Option<Vec<(f64, f64)>> {
    let point = |entry: &toml::Spanned<DeValue<'_>>| {
        let pair = entry.get_ref().as_array()?;
        let [size, time] = &pair[..] else { return None };
        Some((double(size.get_ref())?, double(time.get_ref())?))
    };
    let all = value.as_array().filter(|all| all.len() <= MAX_POINTS)?;
    all.iter().map(point).collect()
}

fn number(
    section: &mut Section<'_, '_>,
    key: &'static str,
    range: RangeInclusive<f64>,
) -> Option<f64> {
    let want = format!("a number from {} to {}", range.start(), range.end());
    section.need(key, want, |value| {
        double(value).filter(|n| range.contains(n))
    })
}
