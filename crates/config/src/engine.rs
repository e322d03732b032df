//! `[engine]`: what computes for a worker.

use std::path::PathBuf;

use crate::error::unknown;
use crate::profile::PROFILES;
use crate::section::{Section, double, text};

/// What computes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum EngineConfig {
    /// The model itself, on the CPU.
    #[default]
    Embedded,
    /// A clock: see [`TimedConfig`].
    Timed(TimedConfig),
}

/// An engine that takes the time that a model on some GPUs would.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedConfig {
    /// Which model and GPUs. Needed.
    pub profile: ProfileSource,
    /// Seconds that pass for a second of the model's: 0.1 is ten times as fast, 0 does not wait at all.
    /// Default 1.
    pub time_scale: f64,
    /// Bytes of one head's entry of a token in its plane (of the latent, for MLA) as it lies in a page,
    /// instead of the model's own. Default 2.
    pub entry_bytes: u16,
}

/// Where a profile is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileSource {
    /// It comes with Tandem.
    Shipped(&'static str),
    /// A file.
    File(PathBuf),
}

/// Anything slower could be a day for a token.
const MAX_SCALE: f64 = 100.0;

pub(crate) fn read(section: &mut Section<'_, '_>) -> Option<EngineConfig> {
    let kinds = [("embedded", false), ("timed", true)];
    let timed = section.choice("kind", &kinds).unwrap_or(false);
    if !timed {
        for key in ["profile", "time_scale", "entry_bytes"] {
            let line = section.line_of(key);
            if line.is_some() {
                section.refuse(line, &format!("{key}: is for kind = \"timed\""));
            }
        }
    }
    let line = section.line_of("profile");
    let want = "a profile's name, or the path of its file (with a / or ending in .toml)";
    let named = match timed {
        true => section.need("profile", want, |value| text(value).map(str::to_owned)),
        false => section.read("profile", want, |value| text(value).map(str::to_owned)),
    };
    let profile = named.and_then(|named| {
        source(section, &named)
            .map_err(|message| section.refuse(line, &message))
            .ok()
    });
    let want = format!("a number from 0 to {MAX_SCALE}");
    let time_scale = section.read("time_scale", want, |value| {
        double(value).filter(|n| (0.0..=MAX_SCALE).contains(n))
    });
    let entry_bytes = section.read("entry_bytes", "an even number from 2 to 8192", |value| {
        let bytes = u16::try_from(crate::section::integer(value)?).ok()?;
        (bytes.is_multiple_of(2) && (2..=8192).contains(&bytes)).then_some(bytes)
    });
    if !timed {
        return Some(EngineConfig::Embedded);
    }
    Some(EngineConfig::Timed(TimedConfig {
        profile: profile?,
        time_scale: time_scale.unwrap_or(1.0),
        entry_bytes: entry_bytes.unwrap_or(2),
    }))
}

fn source(section: &Section<'_, '_>, named: &str) -> Result<ProfileSource, String> {
    if named.contains('/') || named.ends_with(".toml") {
        return Ok(ProfileSource::File(section.in_folder(named)));
    }
    let names: Vec<&'static str> = PROFILES.iter().map(|(name, _)| *name).collect();
    let found = names.iter().find(|name| **name == named);
    let found = found.map(|name| ProfileSource::Shipped(name));
    found.ok_or_else(|| unknown("profile", named, "", &names))
}
