//! Any text as a configuration file: settings, or complaints of one line each. Never a panic.

use std::path::Path;

use super::Config;

const VALID: &str = "[gateway]\ntokenizer = \"m.gguf\"\nworkers = [\"127.0.0.1:7101\"]\n\
    [auth]\nkeys = \"k.toml\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
    [worker]\nid = \"d\"\nrole = \"both\"\nlisten = \"127.0.0.1:0\"\nmodel = \"m.gguf\"\nkv_memory = \"1 GiB\"\n\
    devices = [\"node0\"]\n[engine]\nkind = \"timed\"\nprofile = \"p.toml\"\ntime_scale = 0.5\n[fabric]\nprovider = \"tcp\"\nnics = 2\n[control]\nkeep_alive_ms = 50\n\
    [http]\nhttp3 = true\ncors_origins = [\"https://a\"]\n\
    [tls]\ncertificate = \"c\"\nkey = \"k\"\n[policy.prefill]\nchoose = \"random\"\n[[topology.device]]\ndevice = \"node0\"\ncores = [0, 7]\n\
    [telemetry]\notlp_endpoint = \"http://[::1]:4318/a\"\nheaders = { a = \"b\" }\nsample = 0.5\n";

fn parse(text: &str) {
    if let Err(problems) = Config::parse(text, Path::new("etc/t.toml")) {
        assert!(!problems.list().is_empty());
        for problem in problems.list() {
            let text = problem.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
        }
    }
}

#[test]
fn files_of_any_bytes() {
    bolero::check!().for_each(|bytes: &[u8]| parse(&String::from_utf8_lossy(bytes)));
}

#[test]
fn files_with_a_few_other_bytes() {
    assert_eq!(Config::parse(VALID, Path::new("t.toml")).err(), None);
    bolero::check!()
        .with_type::<Vec<(u16, u8)>>()
        .for_each(|edits| {
            let mut bytes = VALID.as_bytes().to_vec();
            for (at, byte) in edits.iter().take(5) {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
            }
            parse(&String::from_utf8_lossy(&bytes));
        });
}
