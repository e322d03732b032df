//! What operators type: keys, certificates, and a running gateway that is watched, changed and ended.

#![allow(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and tells its story in one go"
)]

mod pki;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn tandem() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    for variable in ["TANDEM_API_KEY", "TANDEM_ADMIN_KEY", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    tandem().args(args).current_dir(folder).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn assert_refused(output: &Output, code: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(stderr.contains(words), "{words:?} in {stderr}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_key_is_shown_once_and_its_hash_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let new = |rest: &[&str]| {
        let args = [
            &["keys", "new", "--tenant", "acme", "--file", "k.toml"],
            rest,
        ]
        .concat();
        run(at, &args)
    };
    let rest = [
        "--name",
        "ci",
        "--expires",
        "2099-01-31",
        "--class",
        "batch",
        "--tokens-per-minute",
        "9",
    ];
    let said = stdout(&new(&rest));
    let key = said.lines().next().unwrap();
    let kept = std::fs::read_to_string(at.join("k.toml")).unwrap();
    assert!(
        key.starts_with("tandem-") && !kept.contains(key),
        "{said}{kept}"
    );
    assert!(kept.contains("tokens_per_minute = 9"), "{kept}");
    assert!(kept.contains("expires = 2099-01-31T00:00:00Z\n"), "{kept}");
    assert_eq!(mode(&at.join("k.toml")), 0o600);
    stdout(&new(&[]));
    let list = stdout(&run(at, &["keys", "list", "--file", "k.toml"]));
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(
        list.contains("acme") && list.contains("2099-01-31T00:00:00Z"),
        "{list}"
    );
    // What would spoil the file is refused before it is written.
    let before = std::fs::read_to_string(at.join("k.toml")).unwrap();
    let want = "want a day such as 2027-01-31, or a moment such as 2027-01-31T12:00:00Z, found ";
    for bad in ["tomorrow", "2099-01-01\nx = 1", "2099-02-30"] {
        assert_refused(&new(&["--expires", bad]), 2, &format!("{want}{bad:?}"));
    }
    let past = "--expires 2001-01-31T00:00:00Z: is past; the key would open nothing";
    assert_refused(&new(&["--expires", "2001-01-31"]), 2, past);
    assert_refused(&new(&["--name", "a b"]), 2, "name: want 1 to 128 letters");
    assert_eq!(std::fs::read_to_string(at.join("k.toml")).unwrap(), before);
    std::fs::write(at.join("k.toml"), "[[key]]\n").unwrap();
    assert_refused(&new(&[]), 2, "k.toml:1: [[key]] needs `id`");

    let said = stdout(&run(at, &["keys", "new", "--admin"]));
    let hash = said.lines().last().unwrap();
    let text = format!(
        "[gateway]\ntokenizer = \"t\"\nworkers = []\n[admin]\nlisten = \"0.0.0.0:1\"\n{hash}\n"
    );
    std::fs::write(at.join("g.toml"), text).unwrap();
    let checked = stdout(&run(at, &["check", "--config", "g.toml"]));
    assert!(
        checked.contains("[admin]\nlisten = \"0.0.0.0:1\"\nkey_hash = [\"sha256:"),
        "{checked}"
    );
}

/// A gateway of its own process, without workers.
struct Gateway {
    process: Child,
    folder: tempfile::TempDir,
    url: String,
    admin: String,
}

fn model() -> PathBuf {
    std::env::var_os("TANDEM_TEST_MODEL").map_or_else(
        || {
            let home = std::env::var_os("HOME").expect("HOME is set");
            Path::new(&home).join(".cache/tandem/models/SmolLM2-135M-Instruct.Q4_1.gguf")
        },
        PathBuf::from,
    )
}

impl Gateway {
    fn start(rest: &str) -> Self {
        Self::start_after(rest, |_| {})
    }

    /// In a folder that has `pki`, and what `prepare` puts there.
    fn start_after(rest: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        stdout(&run(folder.path(), &["pki", "init"]));
        stdout(&run(
            folder.path(),
            &["pki", "issue", "--role", "gateway", "--name", "gateway"],
        ));
        prepare(folder.path());
        write_config(folder.path(), rest);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut process = tandem()
            .args(["gateway", "--config", "g.toml"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
        let json = line
            .strip_prefix("started ")
            .unwrap_or_else(|| panic!("{line:?} {}", log()));
        let started: Value = serde_json::from_str(json).unwrap();
        let url = |name: &str| format!("http://{}", started[name].as_str().unwrap());
        Self {
            url: url("address"),
            admin: url("admin"),
            process,
            folder,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn admin(&self, key: &str, args: &[&str]) -> Output {
        let mut command = tandem();
        // Where it is goes before what is asked, or after it.
        command.arg("admin").args(args).args(["--url", &self.admin]);
        command.env("TANDEM_ADMIN_KEY", key).output().unwrap()
    }

    /// Waits until the log has this.
    fn logs(&self, words: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.log().contains(words) {
            assert!(Instant::now() < deadline, "no {words:?} in {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_config(folder: &Path, rest: &str) {
    let model = model();
    let text =
        format!("[gateway]\nlisten = \"127.0.0.1:0\"\ntokenizer = {model:?}\nworkers = []\n{rest}");
    std::fs::write(folder.join("g.toml.new"), text).unwrap();
    std::fs::rename(folder.join("g.toml.new"), folder.join("g.toml")).unwrap();
}

#[test]
fn a_running_gateway_is_watched_changed_and_ended() {
    let scratch = tempfile::tempdir().unwrap();
    let keys = scratch.path().join("keys.toml");
    let file = keys.to_str().unwrap();
    let said = stdout(&run(
        scratch.path(),
        &["keys", "new", "--tenant", "acme", "--file", file],
    ));
    let key = said.lines().next().unwrap().to_owned();
    let said = stdout(&run(scratch.path(), &["keys", "new", "--admin"]));
    let admin_key = said.lines().next().unwrap().to_owned();
    let hash = said.lines().last().unwrap();
    let rest = format!("[admin]\nlisten = \"127.0.0.1:0\"\n{hash}\n[auth]\nkeys = {file:?}\n");
    let mut gateway = Gateway::start(&rest);

    let status = |key: &str, args: &[&str]| {
        let mut command = tandem();
        command.args(["status", "--url", &gateway.url]).args(args);
        command.env("TANDEM_API_KEY", key).output().unwrap()
    };
    assert_refused(
        &status("", &[]),
        2,
        "asks for a key: give --key, or TANDEM_API_KEY",
    );
    assert_refused(&status("tdm-wrong", &[]), 2, "does not know this key");
    let shown = stdout(&status(&key, &[]));
    assert!(
        shown.contains("0 requests in flight, 0 queued\nWORKER"),
        "{shown}"
    );
    let json: Value =
        serde_json::from_str(&stdout(&status("", &["--json", "--key", &key]))).unwrap();
    assert_eq!(json["workers"], serde_json::json!([]));

    assert_refused(&gateway.admin("", &["workers"]), 2, "TANDEM_ADMIN_KEY");
    let mut clients = tandem();
    clients.args(["admin", "workers", "--url", &gateway.url, "--key", &key]);
    assert_refused(
        &clients.output().unwrap(),
        2,
        "[admin] listen, and not the clients'?",
    );
    assert_refused(&gateway.admin(&key, &["workers"]), 2, "Incorrect admin key");
    let admin = |args: &[&str]| gateway.admin(&admin_key, args);
    let policy: Value = serde_json::from_str(&stdout(&admin(&["policy"]))).unwrap();
    assert_eq!(policy["policy"]["decode"]["choose"], "least_loaded");
    let config = stdout(&admin(&["config"]));
    assert!(
        config.contains("(not shown)") && !config.contains(&hash[20..50]),
        "{config}"
    );
    assert_refused(
        &admin(&["drain", "nobody"]),
        2,
        "No worker nobody is connected",
    );
    assert_refused(
        &admin(&["weight", "nobody", "50"]),
        2,
        "No worker nobody is connected",
    );
    let choice: Value = serde_json::from_str(&stdout(&admin(&["choose", "100"]))).unwrap();
    assert_eq!(choice["no_pair"], "no decode worker takes it");
    assert_refused(
        &admin(&["choose", "100", "--class", "a&b"]),
        2,
        "there is no class \"a&b\", only default",
    );
    assert_refused(
        &admin(&["explain", "a/b c"]),
        2,
        "No request a/b c is in flight",
    );

    write_config(
        gateway.folder.path(),
        &format!("{rest}[policy.decode]\nchoose = \"random\"\n"),
    );
    let pid = gateway.process.id().to_string();
    let hung_up = Command::new("kill").args(["-HUP", &pid]).status().unwrap();
    assert!(hung_up.success());
    gateway.logs("configuration reloaded");
    let policy: Value = serde_json::from_str(&stdout(&admin(&["policy"]))).unwrap();
    assert_eq!(policy["policy"]["decode"]["choose"], "random");
    write_config(gateway.folder.path(), "listen_ = 1\n");
    assert_refused(&admin(&["reload"]), 2, "Nothing was changed: ");
    gateway.logs("the old one stays in force");

    stdout(&admin(&["stop"]));
    assert!(gateway.process.wait().unwrap().success());
    let log = gateway.log();
    let mut rest = log.as_str();
    for step in [
        "asked to stop by an operator",
        "stopping: not ready any more",
        "no new connections; open requests go on",
        "clients' connections are closed",
        "the operators' listener is closed",
        "workers were told of what was cancelled",
        "the control plane is closed; the gateway has ended",
    ] {
        let (_, after) = rest
            .split_once(step)
            .unwrap_or_else(|| panic!("no {step:?} in {rest}"));
        rest = after;
    }
    for secret in [&key, &admin_key] {
        assert!(!log.contains(&secret[secret.len() - 40..]), "{log}");
    }
}

#[test]
fn a_gateway_with_tls_is_asked_over_https_by_who_trusts_it() {
    let issue = [
        "issue",
        "--role",
        "gateway",
        "--name",
        "web",
        "--san",
        "localhost",
    ];
    let tls = "[admin]\nlisten = \"127.0.0.1:0\"\n[tls]\ncertificate = \"pki/web.pem\"\nkey = \"pki/web.key\"\n";
    let gateway = Gateway::start_after(tls, |folder| {
        stdout(&run(folder, &[&["pki"], &issue[..]].concat()));
    });
    let port = gateway.url.rsplit(':').next().unwrap().to_owned();
    let https = format!("https://localhost:{port}");
    let ca = gateway.folder.path().join("pki/ca.pem");
    let ca = ca.to_str().unwrap();
    let status = |args: &[&str]| run(gateway.folder.path(), &[&["status"], args].concat());
    let shown = stdout(&status(&["--url", &https, "--ca", ca]));
    assert!(shown.contains("0 requests in flight, 0 queued"), "{shown}");
    // The same client, of the same listener: its paths of operators are elsewhere.
    let mut admin = tandem();
    let admin = admin.args(["admin", "--url", &https, "--ca", ca, "workers"]);
    assert_refused(&admin.output().unwrap(), 2, "/admin/workers");

    let unknown =
        "authority that is not known here: give that authority's certificate with --ca FILE";
    assert_refused(&status(&["--url", &https]), 1, unknown);
    let by_address = format!("https://127.0.0.1:{port}");
    let other_name = "its certificate is not for 127.0.0.1: ask by a name that it is for";
    assert_refused(&status(&["--url", &by_address, "--ca", ca]), 1, other_name);
    assert_refused(
        &status(&["--url", &gateway.url]),
        1,
        "it speaks TLS: ask with https://",
    );
    let plain = gateway.admin.replace("http://", "https://");
    assert_refused(
        &status(&["--url", &plain, "--ca", ca]),
        1,
        "it speaks no TLS: ask with http://",
    );
    assert_refused(
        &status(&["--url", &https, "--ca", "g.toml"]),
        2,
        "--ca g.toml: holds no certificate in PEM",
    );
}

#[test]
fn a_certificate_without_an_authority_is_trusted_where_it_is_named() {
    let tls =
        "[admin]\nlisten = \"127.0.0.1:0\"\n[tls]\ncertificate = \"own.pem\"\nkey = \"own.key\"\n";
    let gateway = Gateway::start_after(tls, |folder| {
        // As `openssl req -x509` makes them; the second is that of somebody else.
        for name in ["own", "other"] {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut own = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            own.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let own = own.self_signed(&key).unwrap();
            std::fs::write(folder.join(format!("{name}.pem")), own.pem()).unwrap();
            std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
    });
    let port = gateway.url.rsplit(':').next().unwrap().to_owned();
    let status = |host: &str, rest: &[&str]| {
        let url = format!("https://{host}:{port}");
        let args = [&["status", "--url", &url], rest].concat();
        run(gateway.folder.path(), &args)
    };
    let shown = stdout(&status("localhost", &["--ca", "own.pem"]));
    assert!(shown.contains("0 requests in flight"), "{shown}");
    let how = "its certificate is its own authority: give that very certificate with --ca FILE";
    assert_refused(&status("localhost", &["--ca", "other.pem"]), 1, how);
    assert_refused(&status("localhost", &[]), 1, how);
    let elsewhere = status("127.0.0.1", &["--ca", "own.pem"]);
    assert_refused(&elsewhere, 1, "its certificate is not for 127.0.0.1");
}

#[test]
fn a_watched_status_goes_on_until_nobody_reads_it() {
    let gateway = Gateway::start("[admin]\nlisten = \"127.0.0.1:0\"\n");
    let mut watch = tandem()
        .args(["status", "--watch", "--url", &gateway.admin])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(watch.stdout.take().unwrap());
    let mut looks = String::new();
    while looks.matches("requests in flight").count() < 2 {
        assert!(out.read_line(&mut looks).unwrap() > 0, "{looks}");
    }
    assert!(
        !looks.contains('\u{1b}'),
        "no terminal, no colours: {looks:?}"
    );
    drop(out);
    assert!(watch.wait().unwrap().success());
}

#[test]
fn a_fleet_that_other_machines_reach_asks_for_keys() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.gguf"), "").unwrap();
    let up = |args: &[&str]| {
        run(
            folder.path(),
            &[&["up", "--model", "m.gguf"], args].concat(),
        )
    };
    let outside = "0.0.0.0:0";
    assert_refused(
        &up(&["--listen", outside]),
        2,
        "want --keys FILE (see `tandem keys new`), or --open",
    );
    assert_refused(
        &up(&["--admin-listen", outside]),
        2,
        "want an address of the loopback",
    );
    let missing = up(&["--listen", outside, "--keys", "none.toml"]);
    assert_refused(&missing, 2, "none.toml: No such file");
}
