//! Engines in processes of their own: their memory reaches the agent as descriptors.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tandem_config::Config;
use tandem_engine::testing::TinyLlama;
use tandem_worker_agent::StartError;

use crate::fleet::{Fleet, generate, within};

const CONFIG: &str = "TANDEM_TEST_ENGINE_CONFIG";

/// An engine's process. Gone when it is dropped.
struct Engine {
    child: Child,
    lines: String,
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's part.
#[test]
fn an_engine_process() {
    let Some(path) = std::env::var_os(CONFIG) else {
        return;
    };
    let config = Config::load(Path::new(&path)).unwrap();
    let ended = tandem_worker_agent::run_engine(&config.worker.unwrap(), |engine, pages| {
        eprintln!("ready {} {pages}", engine.model);
    });
    panic!("{ended:?}");
}

impl Engine {
    /// Starts an engine whose worker has these lines in its table; a worker gets the same ones.
    fn start(fleet: &Fleet, name: &str, worker: &str) -> Self {
        let socket = socket(fleet, name);
        let lines = format!(
            "{worker}\nengine_socket = {:?}",
            socket.display().to_string()
        );
        let text = fleet.text(name, "prefill", &lines, "");
        let path = fleet.folder().join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "engines::an_engine_process", "--nocapture"])
            .env(CONFIG, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        let ready = output
            .lines()
            .map_while(Result::ok)
            .find(|l| l.starts_with("ready"));
        assert!(ready.is_some(), "the engine starts");
        Self { child, lines }
    }
}

fn socket(fleet: &Fleet, name: &str) -> PathBuf {
    fleet.folder().join(format!("{name}.sock"))
}

fn prompt(seed: u32) -> Vec<u32> {
    (0..120)
        .map(|i| (i * i * 31 + seed * 17 + i) % 256)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_with_engines_in_other_processes_give_the_same_tokens() {
    let fleet = Fleet::new(TinyLlama::default());
    let alone = fleet.start("both", "", "").await;
    let prefill = Engine::start(
        &fleet,
        "p",
        "tensor_parallel = 2\nchunk_tokens = 7\nkv_pages = 64",
    );
    let decode = Engine::start(
        &fleet,
        "d",
        "tensor_parallel = 4\npage_tokens = 32\nkv_pages = 64",
    );
    // The same engines, agent after agent: memory and counter are found as the one before left them.
    for round in 0..3u32 {
        let p = fleet.start("prefill", &prefill.lines, "nics = 2").await;
        let d = fleet.start("decode", &decode.lines, "").await;
        assert_eq!(p.welcome.geometry.as_ref().unwrap().shards.len(), 2);
        for n in 0..4 {
            let asked = prompt(round * 4 + n);
            let want = alone.tokens(generate(1, &asked, 8, None)).await;
            let ask = generate(u128::from(n) + 2, &asked, 8, Some(p.peer()));
            assert_eq!(d.tokens(ask).await, want, "round {round}");
        }
        if round == 1 {
            // An agent that breaks off in the middle: its sequences end with it.
            let ask = generate(77, &prompt(99), 400, Some(p.peer()));
            let mut channel = d.ask(ask).await;
            let reply = within(channel.recv.expect::<tandem_wire::proto::GenerateReply>()).await;
            assert!(reply.is_ok());
            p.abort();
            d.abort();
            continue;
        }
        p.stop().await;
        d.stop().await;
    }
    alone.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_an_engine_ends_its_worker() {
    let fleet = Fleet::new(TinyLlama::default());
    let mut engine = Engine::start(&fleet, "e", "kv_pages = 64");
    let worker = fleet.start("both", &engine.lines, "").await;
    let mut channel = worker.ask(generate(1, &prompt(1), 800, None)).await;
    let reply = within(channel.recv.expect::<tandem_wire::proto::GenerateReply>()).await;
    assert!(reply.is_ok());
    engine.child.kill().unwrap();
    let ended = within(worker.ended()).await;
    assert!(matches!(ended, Err(StartError::EngineDied)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_an_engines_socket_is_said_in_one_line() {
    let fleet = Fleet::new(TinyLlama::default());
    let engine = Engine::start(&fleet, "taken", "kv_pages = 64");
    let path = fleet.folder().join("taken.toml");
    let config = Config::load(&path).unwrap().worker.unwrap();
    let twin = tandem_worker_agent::run_engine(&config, |_, _| ()).unwrap_err();
    let text = twin.to_string();
    assert!(
        text.ends_with("taken.sock: another engine listens there"),
        "{text}"
    );
    drop(engine);
    let nobody = socket(&fleet, "nobody");
    let lines = format!(
        "engine_socket = {:?}\nengine_wait_ms = 50",
        nobody.display().to_string()
    );
    let error = fleet
        .fails_to_start("prefill", &lines, "")
        .await
        .to_string();
    assert!(
        error.contains("nobody.sock") && error.contains("No such file"),
        "{error}"
    );
    // Somebody who says nonsense.
    let liar = std::os::unix::net::UnixListener::bind(&nobody).unwrap();
    let talking = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = liar.accept().unwrap();
        stream.write_all(&[0, 0, 0, 3, 1, 2, 3]).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    });
    let error = fleet
        .fails_to_start("prefill", &lines, "")
        .await
        .to_string();
    assert!(
        error.starts_with("the engine's socket broke off"),
        "{error}"
    );
    talking.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_are_placed_on_devices_that_are_there() {
    let fleet = Fleet::new(TinyLlama::default());
    let placed = "tensor_parallel = 2\ndevices = [\"node0\", \"node0\"]";
    let worker = fleet.start("prefill", placed, "").await;
    worker.stop().await;
    let error = |worker: &'static str| async {
        let failed = fleet.fails_to_start("prefill", worker, "").await;
        failed.to_string()
    };
    assert_eq!(
        error("tensor_parallel = 2\ndevices = [\"node0\"]").await,
        "[worker] devices names 1 devices for 2 shards"
    );
    let text = error("devices = [\"0000:99:00.0\"]").await;
    assert!(
        text.starts_with("device 0000:99:00.0 is not on this machine; there is "),
        "{text}"
    );
}
