//! The binary as the one at the terminal meets it: exit codes and the one line on standard error.
//! Nothing here needs a model or libfabric.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

const MODEL: &str = "model.gguf";

fn tandem(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tandem"))
        .args(args)
        .current_dir(folder)
        .env_remove("TANDEM_MODEL")
        .env("TANDEM_CACHE", folder.join("cache"))
        .output()
        .expect("tandem runs")
}

#[track_caller]
fn assert_refused(output: &Output, code: i32, lines: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().collect::<Vec<_>>(), lines, "{output:?}");
    assert_eq!(output.status.code(), Some(code), "{output:?}");
}

/// A folder with a file that passes for a model as long as nobody reads it.
fn folder_with_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(MODEL), "").expect("a file");
    folder
}

#[test]
fn check_says_what_is_wrong_where_and_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[gateway]\nlisen = \"127.0.0.1:8080\"\ntokenizer = \"t\"\nworkers = []\n\
                queue_limit = 0\n";
    std::fs::write(folder.path().join("g.toml"), text).unwrap();
    let output = tandem(folder.path(), &["check", "--config", "g.toml"]);
    let lines = [
        "tandem: g.toml:2: unknown key `lisen` in [gateway]; did you mean `listen`?",
        "tandem: g.toml:5: [gateway] queue_limit: want a whole number from 1 to 1000000, found 0",
    ];
    assert_refused(&output, 2, &lines);
}

#[test]
fn check_refuses_rdma_from_a_software_provider() {
    let folder = folder_with_model();
    let text = "[worker]\nid = \"d\"\nrole = \"decode\"\nlisten = \"127.0.0.1:1\"\nmodel = \"model.gguf\"\n\
                [fabric]\nprovider = \"tcp\"\nrequire_rdma = true\n";
    std::fs::write(folder.path().join("w.toml"), text).unwrap();
    let output = tandem(folder.path(), &["check", "--config", "w.toml"]);
    let line = "tandem: w.toml: [fabric] require_rdma: the provider \"tcp\" is software";
    assert_refused(&output, 2, &[line]);
}

#[test]
fn up_refuses_an_unknown_profile_with_those_there_are_and_leaves_nothing_behind() {
    let folder = folder_with_model();
    let output = tandem(folder.path(), &["up", "--model", MODEL, "--timed", "nope"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        stderr.starts_with("tandem: no profile \"nope\": want one of ")
            && stderr.contains("deepseek-r1-tp8-h200"),
        "{stderr}"
    );
    assert!(!folder.path().join(".tandem").exists());
}

#[test]
fn check_shows_what_a_right_file_comes_to() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[gateway]\ntokenizer = \"t\"\nworkers = []\n";
    std::fs::write(folder.path().join("g.toml"), text).unwrap();
    let output = tandem(folder.path(), &["check", "--config", "g.toml"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.starts_with("# g.toml is right in itself and comes to what follows."),
        "{stdout}"
    );
    assert!(
        stdout.contains("\nlisten = \"127.0.0.1:8080\"\n"),
        "{stdout}"
    );
    let note = "\nworkers = []\n# no worker: every request gets 503 until the file names some";
    assert!(stdout.contains(note), "{stdout}");
}

#[test]
fn every_preset_is_right() {
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/presets");
    let mut count = 0;
    for preset in std::fs::read_dir(presets).unwrap() {
        let path = preset.unwrap().path();
        let output = tandem(
            Path::new("."),
            &["check", "--config", path.to_str().unwrap()],
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        count += 1;
    }
    assert!(count >= 3);
}

#[test]
fn a_file_of_the_other_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.toml"), "[policy]\nseed = 1\n").unwrap();
    let output = tandem(folder.path(), &["gateway", "--config", "p.toml"]);
    assert_refused(&output, 2, &["tandem: p.toml: has no [gateway]"]);
    let output = tandem(folder.path(), &["worker", "--config", "p.toml"]);
    assert_refused(&output, 2, &["tandem: p.toml: has no [worker]"]);
}

#[test]
fn up_without_a_model_says_how_to_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = tandem(folder.path(), &["up"]);
    let path = folder
        .path()
        .join("cache/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let line = format!(
        "tandem: no model at {}: `make model` fetches it, or name another with --model",
        path.display()
    );
    assert_refused(&output, 2, &[&line]);
    let output = tandem(folder.path(), &["up", "--model", "none.gguf"]);
    assert_refused(&output, 2, &["tandem: no model at none.gguf"]);
}

#[test]
fn up_refuses_a_port_that_is_in_use_before_it_starts_a_worker() {
    let folder = folder_with_model();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = tandem(
        folder.path(),
        &["up", "--model", MODEL, "--listen", &address],
    );
    let line = format!(
        "tandem: {address} is in use: stop what listens there, or choose another with --listen"
    );
    assert_refused(&output, 2, &[&line]);
    let logs = std::fs::read_dir(folder.path().join(".tandem/logs"))
        .unwrap()
        .count();
    assert_eq!(logs, 0);
}

#[test]
fn up_refuses_a_state_folder_that_another_has() {
    let folder = folder_with_model();
    std::fs::create_dir(folder.path().join("state")).unwrap();
    let path = folder.path().join("state/lock");
    std::fs::write(&path, "4711\n").unwrap();
    let lock = std::fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    let args = [
        "up",
        "--model",
        MODEL,
        "--state-dir",
        "state",
        "--listen",
        "127.0.0.1:0",
    ];
    let line = "tandem: state belongs to another `tandem up` (pid 4711): stop that one, or choose \
                another folder with --state-dir";
    assert_refused(&tandem(folder.path(), &args), 2, &[line]);
}

#[test]
fn up_refuses_numbers_that_no_worker_takes() {
    let folder = folder_with_model();
    let cases = [
        ("--page-tokens", "0", "0 is not in 1..=1024"),
        ("--chunk-tokens", "0", "0 is not in 1..=65536"),
        ("--threads", "1025", "1025 is not in 1..=1024"),
        ("--kv-memory", "1", "want a size from 64KiB to 16TiB"),
    ];
    for (flag, value, why) in cases {
        let args = [
            "up",
            "--model",
            MODEL,
            "--listen",
            "127.0.0.1:0",
            flag,
            value,
        ];
        let output = tandem(folder.path(), &args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let first = stderr.lines().next().unwrap();
        assert!(first.contains(flag) && first.contains(why), "{stderr}");
    }
}

#[test]
fn status_says_that_nothing_answers() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{free}");
    let output = tandem(Path::new("."), &["status", "--url", &url]);
    let line = format!("tandem: no gateway at {url}: Connection refused (os error 111)");
    assert_refused(&output, 1, &[&line]);
}

#[test]
fn loadtest_asks_how_hard_to_press() {
    let output = tandem(Path::new("."), &["loadtest"]);
    let line = "tandem: how hard to press? Give one of --rate, --concurrency, --trace, --sweep or --search";
    assert_refused(&output, 2, &[line]);
}

#[test]
fn topology_shows_this_machine_and_says_what_is_wrong_with_a_map() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let output = tandem(at, &["topology"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.to_lowercase().contains("device"), "{text}");
    let output = tandem(at, &["topology", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!json["devices"].as_array().unwrap().is_empty());
    let path = at.join("t.toml");
    std::fs::write(&path, "[[topology.device]]\ndevice = \"0000:99:00.0\"\n").unwrap();
    let output = tandem(at, &["topology", "--config", "t.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("0000:99:00.0 is not on this machine"),
        "{text}"
    );
    let output = tandem(at, &["topology", "--sysfs", "/nowhere"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn fabric_bench_measures_every_case_and_fabric_info_says_what_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let output = tandem(
        at,
        &["fabric", "bench", "--quick", "--piece-kib", "16", "--json"],
    );
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        for key in [
            "engine_gbytes_per_s",
            "bare_gbytes_per_s",
            "tcp_gbytes_per_s",
            "memcpy_gbytes_per_s",
            "engine_cpu_s_per_gb",
            "bare_cpu_s_per_gb",
            "writes",
        ] {
            assert!(case[key].as_f64().unwrap() > 0.0, "{key}: {case}");
        }
    }
    let bumps = report["bump_to_post_us"].as_array().unwrap();
    let spinning: Vec<bool> = bumps
        .iter()
        .map(|b| b["spinning"].as_bool().unwrap())
        .collect();
    assert_eq!(spinning, [false, true]);
    for bump in bumps {
        let figure = |key: &str| bump[key].as_f64().unwrap();
        assert_eq!(figure("samples"), 180.0, "nine steps of 20 layers: {bump}");
        assert!(
            0.0 < figure("p50") && figure("p50") <= figure("p99"),
            "{bump}"
        );
    }
    let output = tandem(at, &["fabric", "info"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("shm") && text.contains("tcp"), "{text}");
    let missing = ["--library", "/nonexistent/libfabric.so.1"];
    for command in ["info", "bench"] {
        let output = tandem(at, &[&["fabric", command], missing.as_slice()].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains(missing[1]) && text.contains("No such file"),
            "{text}"
        );
        assert_eq!(output.status.code(), Some(2), "{text}");
    }
    let output = tandem(at, &["fabric", "bench", "--piece-kib", "3"]);
    assert_eq!(output.status.code(), Some(2));
    let output = tandem(
        at,
        &["fabric", "bench", "--quick", "--provider", "nonsense"],
    );
    assert_eq!(output.status.code(), Some(2));
}
