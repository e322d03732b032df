//! `[engine]`, and profiles: what they come to, and how what is wrong is told.

use std::path::Path;
use std::time::Duration;

use tandem_timing::{Profile, Work};

use crate::{
    Config, EngineConfig, PROFILES, ProfileSource, TimedConfig, load_profile, parse_profile,
};

const WORKER: &str =
    "[worker]\nid = \"w\"\nrole = \"both\"\nlisten = \"127.0.0.1:0\"\nmodel = \"m.gguf\"\n";

fn engine(text: &str) -> Result<EngineConfig, Vec<String>> {
    let text = format!("{WORKER}{text}");
    match Config::parse(&text, Path::new("/etc/t.toml")) {
        Ok(config) => Ok(config.worker.unwrap().engine),
        Err(problems) => Err(problems.list().iter().map(ToString::to_string).collect()),
    }
}

fn profile(name: &str) -> Profile {
    let (_, text) = PROFILES.iter().find(|(n, _)| *n == name).unwrap();
    parse_profile(text, Path::new(name)).unwrap()
}

#[test]
fn an_engine_is_embedded_unless_it_is_timed() {
    assert_eq!(engine(""), Ok(EngineConfig::Embedded));
    assert_eq!(
        engine("[engine]\nkind = \"embedded\"\n"),
        Ok(EngineConfig::Embedded)
    );
    let timed = TimedConfig {
        profile: ProfileSource::Shipped("deepseek-r1-tp8-h200"),
        time_scale: 1.0,
        entry_bytes: 2,
    };
    let text = "[engine]\nkind = \"timed\"\nprofile = \"deepseek-r1-tp8-h200\"\n";
    assert_eq!(engine(text), Ok(EngineConfig::Timed(timed)));
    let text =
        "[engine]\nkind = \"timed\"\nprofile = \"p.toml\"\ntime_scale = 0.1\nentry_bytes = 8\n";
    let timed = TimedConfig {
        profile: ProfileSource::File("/etc/p.toml".into()),
        time_scale: 0.1,
        entry_bytes: 8,
    };
    assert_eq!(engine(text), Ok(EngineConfig::Timed(timed)));
}

#[test]
fn a_cache_of_which_nothing_is_said_has_no_more_room_than_the_profiles_gpus() {
    let kv = |text: &str| {
        let text = format!("{WORKER}{text}");
        let config = Config::parse(&text, Path::new("/etc/t.toml")).unwrap();
        config.worker.unwrap().kv
    };
    let page = 1 << 20;
    assert_eq!(kv("").pages(page, None), 512);
    assert_eq!(kv("").pages(page, Some(100)), 100);
    assert_eq!(kv("").pages(page, Some(9000)), 512);
    assert_eq!(kv("kv_pages = 7\n").pages(page, Some(100)), 7);
    assert_eq!(kv("kv_memory = \"1GiB\"\n").pages(page, Some(100)), 1024);
}

#[test]
fn what_an_engine_cannot_be_is_told_with_its_line() {
    let wrong = |text: &str| engine(text).unwrap_err().join("; ");
    assert_eq!(
        wrong("[engine]\nkind = \"timed\"\n"),
        "/etc/t.toml:6: [engine] needs `profile`: a profile's name, or the path of its file (with a / or \
         ending in .toml)"
    );
    let near = wrong("[engine]\nkind = \"timed\"\nprofile = \"deepseek-r1-tp8-h20\"\n");
    assert!(
        near.ends_with("did you mean `deepseek-r1-tp8-h200`?"),
        "{near}"
    );
    assert_eq!(
        wrong("[engine]\nprofile = \"llama-3-70b-tp4-h100\"\n"),
        "/etc/t.toml:7: [engine] profile: is for kind = \"timed\""
    );
    let text = "threads = 2\n[engine]\nkind = \"timed\"\nprofile = \"a.toml\"\nentry_bytes = 3\ntime_scale = -1\n";
    let all = engine(text).unwrap_err();
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.iter().any(|one| one.contains("threads: is not for")));
}

#[test]
fn every_profile_that_comes_with_tandem_can_be_read() {
    for (name, _) in PROFILES {
        let profile = profile(name);
        // It can hold one prompt of its own context length, and computes a token within a second.
        assert!(profile.kv.tokens >= profile.context_length, "{name}");
        let step = profile.step(&Work::decode(profile.context_length));
        assert!(step < Duration::from_secs(1), "{name}");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../timing/profiles");
    let mut there: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    there.sort();
    let stems = there.iter().map(|path| path.file_stem().unwrap());
    assert!(stems.eq(PROFILES.iter().map(|(name, _)| *name)));
    let read = load_profile(&there[0]).unwrap();
    assert_eq!(read, profile(PROFILES[0].0));
}

#[test]
fn what_is_wrong_with_a_profile_is_located() {
    let (_, text) = PROFILES[0];
    let wrong = |from: &str, to: &str| {
        assert!(text.contains(from));
        let text = text.replace(from, to);
        let problems = parse_profile(&text, Path::new("p.toml")).unwrap_err();
        let all: Vec<String> = problems.list().iter().map(ToString::to_string).collect();
        all.join("; ")
    };
    let line = |part: &str| 1 + text.lines().position(|l| l.starts_with(part)).unwrap();
    assert_eq!(
        wrong("weight_mb", "weigth_mb"),
        format!(
            "p.toml:{}: [dense] needs `weight_mb`: a number from 0 to 1000000000; \
             p.toml:{}: unknown key `weigth_mb` in [dense]; did you mean `weight_mb`?",
            line("[dense]"),
            line("weight_mb")
        )
    );
    let steep = wrong("[7219200, 95.5]", "[7219200, 41]");
    assert!(
        steep.ends_with("us: want a curve that is never steeper than it was before"),
        "{steep}"
    );
    let no_table = wrong("[link]", "[linc]");
    assert!(
        no_table.contains("a profile needs a table [link]"),
        "{no_table}"
    );
    assert!(wrong("active = 8", "active = 800").contains("takes 800 of 256 experts"));
    assert!(wrong("heads = 1", "heads = 2").contains("a latent is one head"));
}

#[test]
fn profiles_of_any_bytes_are_read_or_refused() {
    let (_, text) = PROFILES[0];
    bolero::check!()
        .with_type::<Vec<(u16, u8)>>()
        .for_each(|edits| {
            let mut bytes = text.as_bytes().to_vec();
            for (at, byte) in edits.iter().take(5) {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
            }
            let text = String::from_utf8_lossy(&bytes);
            if let Err(problems) = parse_profile(&text, Path::new("p.toml")) {
                assert!(!problems.list().is_empty());
            }
        });
}

/// Prints how far a profile is from a published figure, and refuses more than `percent`.
fn within(what: &str, ours_ms: f64, published_ms: f64, percent: f64) {
    let off = 100.0 * (ours_ms / published_ms - 1.0);
    let line = format!("{what}: {ours_ms:.3} ms, published {published_ms} ms: {off:+.1} %");
    assert!(off.abs() <= percent, "{line}");
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn qwen3_235b_has_the_papers_layer_times_within_1_3_percent() {
    let p = profile("qwen3-235b-tp4-h200");
    let last_chunks = [
        (0, 4096, 2.267),
        (0, 8192, 4.578),
        (0, 16_384, 9.860),
        (16_384, 16_384, 13.295),
        (49_152, 16_384, 20.344),
        (114_688, 16_384, 34.895),
    ];
    for (start, tokens, published) in last_chunks {
        let layer = p.layer(&Work::chunk(start, tokens)).total();
        within(
            &format!("a layer of {tokens} behind {start}"),
            ms(layer),
            published,
            1.3,
        );
    }
    for (tokens, published) in [(4096, 0.661), (8192, 0.952), (16_384, 1.610)] {
        within(
            &format!("a layer's transfer of {tokens}"),
            ms(p.push(tokens)),
            published,
            2.1,
        );
    }
}

#[test]
fn deepseek_r1_tp8_has_the_published_decode_times_within_6_6_percent() {
    let p = profile("deepseek-r1-tp8-h200");
    let batch = |n: u32, before| p.step(&(0..n).map(|_| Work::decode(before)).sum());
    // What the prefills of the other requests add to each of a request's own tokens.
    let prefill = ms(p.step(&Work::chunk(0, 1024)));
    let token = |n: u32, before, out: f64| ms(batch(n, before)) + f64::from(n - 1) * prefill / out;
    let published = [
        (4, 5120, 8192.0, 10.93),
        (8, 1536, 1024.0, 12.8),
        (16, 1536, 1024.0, 17.2),
        (32, 1536, 1024.0, 25.6),
        (64, 1536, 1024.0, 34.6),
    ];
    for (n, before, out, tpot) in published {
        within(
            &format!("a token of {n} at once"),
            token(n, before, out),
            tpot,
            6.6,
        );
    }
}

#[test]
fn deepseek_r1_tp16_has_the_published_decode_times_and_prefill_slope_within_2_3_percent() {
    let p = profile("deepseek-r1-tp16-h100");
    let published = [
        (128, 23.1),
        (1024, 23.2),
        (2048, 23.3),
        (3072, 23.6),
        (4096, 23.7),
        (8192, 24.0),
    ];
    for (before, tpot) in published {
        within(
            &format!("a token behind {before}"),
            ms(p.step(&Work::decode(before))),
            tpot,
            2.3,
        );
    }
    let prompt = |tokens| ms(p.step(&Work::chunk(0, tokens)));
    within(
        "8192 tokens less 4096",
        prompt(8192) - prompt(4096),
        263.9 - 199.7,
        0.2,
    );
}

#[test]
fn llama_3_70b_has_the_published_step_time_of_another_set_up_within_0_6_percent() {
    // One H200 in FP8: half the bytes, all of the matrices, no exchange.
    let mut p = profile("llama-3-70b-tp4-h100");
    p.dense.weight_mb *= 4.0 / 2.0;
    p.dense.ns_per_token *= 4.0;
    p.exchange = None;
    p.memory_gb_per_s = 4320.0;
    let step = ms(p.step(&Work::decode(0)));
    within("a token", step, 1000.0 / 51.14, 0.6);
    // Twice the GPUs halve what is divided among them.
    let (four, eight) = (
        profile("llama-3-70b-tp4-h100"),
        profile("llama-3-70b-tp8-h100"),
    );
    let work = Work::chunk(0, 2048);
    let (four, eight) = (four.layer(&work), eight.layer(&work));
    for (whole, half) in [
        (four.weights_us, eight.weights_us),
        (four.compute_us, eight.compute_us),
        (four.prefill_attention_us, eight.prefill_attention_us),
    ] {
        assert!((half / whole - 0.5).abs() < 0.001, "{half} of {whole}");
    }
}
