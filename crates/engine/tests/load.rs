//! Files that are no model, or not the one that was meant.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::path::Path;

use tandem_engine::testing::TinyLlama;
use tandem_engine::{EmbeddedModel, ModelOptions};

fn error(path: &Path) -> String {
    let error = EmbeddedModel::load(path, ModelOptions::default())
        .unwrap_err()
        .to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn tiny(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("tiny.Q8_0.gguf");
    TinyLlama::default().write_gguf(&path).unwrap();
    path
}

/// Replaces bytes by as many others.
fn patch(path: &Path, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes
        .windows(from.len())
        .position(|w| w == from)
        .expect("the bytes to replace");
    bytes[at..at + to.len()].copy_from_slice(to);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_file_cut_short_anywhere_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny(folder.path());
    let bytes = std::fs::read(&path).unwrap();
    for keep in [
        5,
        20,
        200,
        bytes.len() / 4,
        bytes.len() / 2,
        bytes.len() - 40,
    ] {
        std::fs::write(&path, &bytes[..keep]).unwrap();
        let error = error(&path);
        assert!(error.contains("is cut short"), "{keep} bytes: {error}");
    }
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny(folder.path());
    patch(
        &path,
        b"\x05\0\0\0\0\0\0\0llama",
        b"\x05\0\0\0\0\0\0\0qwen9",
    );
    let unknown = error(&path);
    assert!(
        unknown.ends_with("has architecture \"qwen9\"; supported: llama"),
        "{unknown}"
    );
    std::fs::write(&path, "no model at all").unwrap();
    assert!(error(&path).ends_with("is not a GGUF file"));
    let missing = error(&folder.path().join("nothing.gguf"));
    assert!(missing.contains("nothing.gguf: No such file"), "{missing}");
    assert!(error(folder.path()).contains("config.json: No such file"));
}

#[test]
fn a_wrong_checksum_names_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny(folder.path());
    let model = EmbeddedModel::load(&path, ModelOptions::default()).unwrap();
    let has = model.describe().fingerprint;
    let options = |sha256: &str| ModelOptions {
        sha256: Some(sha256.to_owned()),
        name: Some("small".to_owned()),
        ..ModelOptions::default()
    };
    let right = EmbeddedModel::load(&path, options(&has.to_uppercase())).unwrap();
    assert_eq!(right.describe().model, "small");
    let wrong = EmbeddedModel::load(&path, options(&"0".repeat(64)))
        .unwrap_err()
        .to_string();
    assert!(
        wrong.contains(&has) && wrong.contains(&"0".repeat(64)),
        "{wrong}"
    );
}

#[test]
fn safetensors_cut_short_or_of_another_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    TinyLlama::default()
        .write_safetensors(folder.path())
        .unwrap();
    let weights = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    for keep in [3, 100, bytes.len() - 1] {
        std::fs::write(&weights, &bytes[..keep]).unwrap();
        let error = error(folder.path());
        assert!(error.contains("is cut short"), "{keep} bytes: {error}");
    }
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("\"llama\"", "\"mamba\"")).unwrap();
    assert!(error(folder.path()).contains("architecture \"mamba\""));
    let scaled = text.replace(
        "\"rope_scaling\":null",
        "\"rope_scaling\":{\"type\":\"yarn\"}",
    );
    std::fs::write(&config, scaled).unwrap();
    std::fs::write(&weights, &bytes).unwrap();
    assert!(error(folder.path()).contains("needs rope scaling"));
}
