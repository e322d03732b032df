//! Whole files: what they resolve to, and what they are told when they are wrong.

mod access;
mod admission;
mod files;
mod gateway;
mod http;
mod policy;
mod problems;
mod telemetry;
mod timed;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tandem_core::WorkerRole;
use tandem_core::geometry::KvDtype;

use super::*;

const GATEWAY: &str = "[gateway]\ntokenizer = \"model.gguf\"\nworkers = [\"127.0.0.1:7101\"]\n";
const WORKER: &str = "[worker]\nid = \"decode-0\"\nrole = \"decode\"\nlisten = \"127.0.0.1:0\"\n\
                      model = \"model.gguf\"\n";

fn parse(text: &str) -> Result<Config, Problems> {
    Config::parse(text, Path::new("etc/t.toml"))
}

fn complaints(text: &str) -> Vec<String> {
    let problems = parse(text).expect_err("a wrong file");
    problems.list().iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_complaint(text: &str, want: &str) {
    assert_eq!(complaints(text), [format!("etc/t.toml:{want}")]);
}
