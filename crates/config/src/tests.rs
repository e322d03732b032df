//! Whole files: what they resolve to, and what they are told when they are wrong.

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

#[test]
fn a_short_gateway_file_gets_the_documented_defaults() {
    let config = parse(GATEWAY).unwrap();
    assert_eq!(config.worker, None);
    let gateway = config.gateway.unwrap();
    assert_eq!(gateway.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(gateway.tokenizer, PathBuf::from("etc/model.gguf"));
    assert_eq!(gateway.workers, ["127.0.0.1:7101".parse().unwrap()]);
    assert_eq!(gateway.max_body_bytes, 64 << 20);
    assert_eq!(gateway.queue_limit, 1024);
    assert_eq!(gateway.request_timeout, Duration::from_secs(120));
    assert_eq!(gateway.header_timeout, Duration::from_secs(10));
    assert_eq!(gateway.default_max_tokens, Some(2048));
    assert_eq!(gateway.policy, PolicySettings::default());
    assert_eq!(gateway.identity.name, "gateway");
    assert_eq!(gateway.identity.directory, PathBuf::from("etc/pki"));
    assert_eq!(gateway.control, ControlConfig::default());
    assert_eq!(gateway.telemetry, TelemetryConfig::default());
}

#[test]
fn telemetry_is_of_every_process_of_the_file() {
    let text = format!(
        "{GATEWAY}{WORKER}[telemetry]\notlp_endpoint = \"http://c:4318\"\nsample = 0.5\n\
         headers = {{ authorization = \"Bearer x\" }}\nresource = {{ \"a.b\" = \"c\" }}\n\
         vllm_names = false\nlog_prefix_hashes = true\nservice_name = \"s\"\n\
         otlp_interval_ms = 100\notlp_timeout_ms = 200\notlp_queue_limit = 7\n"
    );
    let config = parse(&text).unwrap();
    let telemetry = config.gateway.unwrap().telemetry;
    assert_eq!(config.worker.unwrap().telemetry, telemetry);
    assert_eq!(
        telemetry.otlp_endpoint.as_ref().unwrap().as_str(),
        "http://c:4318"
    );
    assert_eq!(telemetry.sample, 0.5);
    assert_eq!(telemetry.headers["authorization"].expose(), "Bearer x");
    assert_eq!(telemetry.resource["a.b"], "c");
    assert!(!telemetry.vllm_names && telemetry.log_prefix_hashes);
    assert_eq!(telemetry.service_name, "s");
    assert_eq!(telemetry.otlp_interval, Duration::from_millis(100));
    assert_eq!(telemetry.otlp_timeout, Duration::from_millis(200));
    assert_eq!(telemetry.otlp_queue_limit, 7);
}

#[test]
fn what_is_wrong_with_a_secret_is_said_without_it() {
    for wrong in [
        "\"hunter2\"",
        "{ \"a b\" = \"hunter2\" }",
        "{ a = [\"hunter2\"] }",
        "{ a = \"hunter2\\n\" }",
    ] {
        let text = format!("{GATEWAY}[telemetry]\nheaders = {wrong}\n");
        let [complaint] = &complaints(&text)[..] else {
            panic!("one complaint");
        };
        assert!(complaint.starts_with("etc/t.toml:5: [telemetry] headers: want"));
        assert!(!complaint.contains("hunter2"), "{complaint}");
    }
}

#[test]
fn a_sample_is_a_part() {
    let text = format!("{GATEWAY}[telemetry]\nsample = 1.5\n");
    assert_complaint(
        &text,
        "5: [telemetry] sample: want a number from 0 to 1, found 1.5",
    );
}

#[test]
fn a_short_worker_file_gets_the_documented_defaults() {
    let config = parse(WORKER).unwrap();
    assert_eq!(config.gateway, None);
    let worker = config.worker.unwrap();
    assert_eq!(worker.id.as_str(), "decode-0");
    assert_eq!(worker.role, WorkerRole::Decode);
    assert_eq!(worker.kv, KvBudget::Bytes(512 << 20));
    assert_eq!(worker.page_tokens, 16);
    assert_eq!(worker.kv_dtype, KvDtype::F16);
    assert_eq!(worker.chunk_tokens, 512);
    assert_eq!(worker.max_batch, 16);
    assert!(worker.threads >= 1);
    assert_eq!(worker.queue_limit, 256);
    assert_eq!(worker.drain_timeout, Duration::from_secs(5));
    assert_eq!(worker.fabric, FabricConfig::default());
    assert_eq!(worker.identity.name, "decode-0");
}

#[test]
fn all_that_a_file_says_is_taken() {
    let sha = "ab".repeat(32);
    let text = format!(
        "{WORKER}model_sha256 = \"{sha}\"\nmodel_name = \"m\"\nkv_pages = 64\npage_tokens = 32\n\
         kv_dtype = \"bf16\"\nchunk_tokens = 16\nmax_batch = 4\nthreads = 3\nqueue_limit = 1\n\
         drain_timeout_ms = 7\n\
         [fabric]\nlibrary = \"lib/libfabric.so.1\"\nprovider = \"tcp;ofi_rxm\"\nrequire_rdma = true\nbind = \"::1\"\ncpu = 0\n\
         in_flight_writes = 2\ncompletion_entries = 99\nmax_write_bytes = 65536\n\
         [identity]\ndirectory = \"/pki\"\nname = \"other\"\n\
         [control]\nkeep_alive_ms = 100\nidle_timeout_ms = 300\n\
         [log]\nlevel = \"debug\"\nformat = \"json\"\n"
    );
    let config = parse(&text).unwrap();
    assert_eq!(
        config.log,
        LogConfig {
            level: LogLevel::Debug,
            format: LogFormat::Json
        }
    );
    let worker = config.worker.unwrap();
    assert_eq!(worker.model_sha256, Some(Sha256([0xab; 32])));
    assert_eq!(worker.model_sha256.unwrap().to_string(), sha);
    assert_eq!(worker.model_name.as_deref(), Some("m"));
    assert_eq!(worker.kv, KvBudget::Pages(64));
    assert_eq!((worker.page_tokens, worker.kv_dtype), (32, KvDtype::Bf16));
    assert_eq!(
        (worker.chunk_tokens, worker.max_batch, worker.threads),
        (16, 4, 3)
    );
    let fabric = worker.fabric;
    assert_eq!(
        (fabric.provider.as_str(), fabric.require_rdma),
        ("tcp;ofi_rxm", true)
    );
    assert_eq!(fabric.completion_entries, Some(99));
    let beside = Path::new("lib/libfabric.so.1");
    let library = fabric.library.unwrap();
    assert!(
        library.ends_with(beside) && library != beside,
        "{library:?}"
    );
    assert_eq!(
        (fabric.cpu, fabric.in_flight_writes, fabric.max_write_bytes),
        (Some(0), 2, 65_536)
    );
    assert_eq!(worker.identity.directory, PathBuf::from("/pki"));
    assert_eq!(worker.identity.name, "other");
    assert_eq!(worker.control.keep_alive, Duration::from_millis(100));
}

#[test]
fn an_unknown_key_is_told_the_nearest_known_one_or_all_of_them() {
    assert_complaint(
        &format!("{GATEWAY}lisen = \"127.0.0.1:1\"\n"),
        "4: unknown key `lisen` in [gateway]; did you mean `listen`?",
    );
    assert_complaint(
        &format!("{GATEWAY}[control]\nzzz = 1\n"),
        "5: unknown key `zzz` in [control]; known: keep_alive_ms, idle_timeout_ms",
    );
    assert_complaint(
        &format!("{GATEWAY}[gatway]\nzzz = 1\n"),
        "4: unknown table `gatway`; did you mean `gateway`?",
    );
    assert_complaint(
        &format!("listen = 1\n{GATEWAY}"),
        "1: unknown key outside a table: `listen`; known: gateway, policy, worker, fabric, \
         topology, identity, control, log",
    );
}

#[test]
fn a_wrong_type_is_told_what_is_wanted_and_what_is_there() {
    assert_complaint(
        &format!("{GATEWAY}queue_limit = \"many\"\n"),
        "4: [gateway] queue_limit: want a whole number from 1 to 1000000, found the text \"many\"",
    );
    assert_complaint(
        &format!("{GATEWAY}listen = 8080\n"),
        "4: [gateway] listen: want an address and port such as \"127.0.0.1:8080\", found 8080",
    );
    assert_complaint(
        &format!("{WORKER}kv_memory = \"256MB\"\n"),
        "6: [worker] kv_memory: want a size from 64KiB to 16TiB, such as \"64MiB\", found the \
         text \"256MB\"",
    );
    assert_complaint(
        &format!("{GATEWAY}[log]\nformat = \"xml\"\n"),
        "5: [log] format: want one of \"text\", \"json\", found the text \"xml\"",
    );
    assert_complaint(
        &format!("{GATEWAY}control = 1\n"),
        "4: unknown key `control` in [gateway]; known: listen, tokenizer, workers, \
         max_body_bytes, queue_limit, request_timeout_ms, header_timeout_ms, max_connections, \
         tokenizer_threads, default_max_tokens, drain_timeout_ms",
    );
    assert_complaint(
        &format!("control = true\n{GATEWAY}"),
        "1: want a table [control], found true",
    );
}

#[test]
fn a_value_out_of_range_is_told_the_range() {
    assert_complaint(
        &format!("{WORKER}page_tokens = 0\n"),
        "6: [worker] page_tokens: want a whole number from 1 to 1024, found 0",
    );
    assert_complaint(
        &format!("{WORKER}threads = -1\n"),
        "6: [worker] threads: want a whole number from 1 to 1024, found -1",
    );
    assert_complaint(
        &format!("{WORKER}[control]\nkeep_alive_ms = 1000\nidle_timeout_ms = 2000\n"),
        "8: [control] idle_timeout_ms: want more than twice keep_alive_ms (1000), found 2000",
    );
}

#[test]
fn what_is_missing_or_there_twice_is_named() {
    assert_complaint(
        &WORKER.replace("role = \"decode\"\n", ""),
        "1: [worker] needs `role`: one of \"prefill\", \"decode\", \"both\"",
    );
    assert_complaint(
        &format!("{WORKER}kv_pages = 4\nkv_memory = \"1GiB\"\n"),
        "6: [worker] kv_pages and kv_memory are both given: want one of them",
    );
    assert_complaint(
        "[gateway]\ntokenizer = \"t\"\nworkers = [\"127.0.0.1:1\", \"127.0.0.1:1\"]\n",
        "3: [gateway] workers: 127.0.0.1:1 is there twice",
    );
    assert_eq!(
        complaints("[log]\n"),
        ["etc/t.toml: neither [gateway] nor [worker]: nothing to run"]
    );
}

#[test]
fn several_problems_are_reported_at_once_in_the_order_of_lines() {
    let text = format!("{GATEWAY}queue_limit = 0\nlisten = \"x\"\n[log]\nlevle = \"info\"\n");
    let lines: Vec<_> = parse(&text)
        .unwrap_err()
        .list()
        .iter()
        .map(|p| p.line)
        .collect();
    assert_eq!(lines, [Some(4), Some(5), Some(7)]);
}

#[test]
fn text_that_is_no_toml_is_located() {
    let complaint = complaints("[gateway]\nlisten = = 1\n");
    assert!(complaint[0].starts_with("etc/t.toml:2: "), "{complaint:?}");
    let complaint = complaints("[gateway]\nlisten = \"a\"\nlisten = \"b\"\n");
    assert!(
        complaint[0].starts_with("etc/t.toml:3: duplicate key"),
        "{complaint:?}"
    );
}

#[test]
fn a_policy_alone_is_a_preset_and_its_mistakes_are_located() {
    let config = parse("[policy]\nseed = 7\n[policy.prefill]\nchoose = \"random\"\n").unwrap();
    assert_eq!(config.policy.unwrap().seed, Some(7));
    assert_complaint(
        "[policy]\nsed = 7\n",
        "2: unknown key `sed` in [policy]; did you mean `seed`?",
    );
    assert_complaint(
        "[policy.prefill]\nchoose = \"least_laoded\"\n",
        "2: unknown choice `least_laoded` in [policy]; did you mean `least_loaded`?",
    );
    let complaint = complaints("[policy]\nseed = \"x\"\n");
    assert!(
        complaint[0].starts_with("etc/t.toml:2: [policy]: invalid type"),
        "{complaint:?}"
    );
}

#[test]
fn a_gateway_uses_the_policy_of_its_file() {
    let config = parse(&format!("{GATEWAY}[policy]\nseed = 7\n")).unwrap();
    assert_eq!(config.gateway.unwrap().policy.seed, Some(7));
}

#[test]
fn a_file_is_loaded_and_a_missing_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, GATEWAY).unwrap();
    let gateway = Config::load(&path).unwrap().gateway.unwrap();
    assert_eq!(gateway.tokenizer, folder.path().join("model.gguf"));
    let error = Config::load(&folder.path().join("none.toml"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("none.toml: No such file"), "{error}");
}

#[test]
fn a_topology_is_read_and_what_is_wrong_with_it_named_with_its_line() {
    let text =
        "[[topology.device]]\ndevice = \"0000:17:00.0\"\nnics = [\"mlx5_0\"]\ncores = [1, 2]\n";
    let config = Config::parse(text, Path::new("t.toml")).unwrap();
    assert_eq!(config.topology.device.len(), 1);
    assert_eq!(config.topology.device[0].cores, Some(vec![1, 2]));
    let error = |text: &str| {
        Config::parse(text, Path::new("t.toml"))
            .unwrap_err()
            .to_string()
    };
    let wrong = error("[[topology.device]]\ndevice = \"node0\"\nnic = [\"mlx5_0\"]\n");
    assert!(
        wrong.starts_with("t.toml:3: [topology] unknown field `nic`"),
        "{wrong}"
    );
    let wrong = error("[[topology.device]]\ndevice = \"GPU 1\"\n");
    assert!(wrong.starts_with("t.toml:2: [topology] "), "{wrong}");
}

#[test]
fn without_an_admission_table_there_is_one_class_as_long_as_the_queue() {
    let gateway = parse(&format!("{GATEWAY}queue_limit = 7\n"))
        .unwrap()
        .gateway
        .unwrap();
    let mut want = AdmissionSettings::one_class(7);
    assert_eq!(gateway.admission, want);
    // The defaults that the documentation tells.
    assert_eq!(
        (want.retries, want.migrations, want.early_rejection),
        (2, 2, true)
    );
    assert_eq!(want.aging, Duration::from_secs(10));
    want.breaker.seed = 0;
    assert_eq!(want.breaker.failures, 5);
}

#[test]
fn admission_has_classes_and_tenants_of_its_own() {
    let admission = "[admission]\ndefault_class = \"chat\"\nretries = 0\n\
        [admission.class.chat]\nttft_ms = 500\nqueue_deadline_ms = 400\nqueue = 9\n\
        [admission.class.batch]\npriority = 10\nweight = 3\n\
        [admission.tenant.acme]\nweight = 4\ntokens_per_minute = 1000\n\
        [admission.any_tenant]\nconcurrency = 2\n";
    let gateway = parse(&format!("{GATEWAY}{admission}"))
        .unwrap()
        .gateway
        .unwrap();
    let settings = gateway.admission;
    let chat = settings.class(settings.default_class);
    assert_eq!(
        (chat.name.as_str(), chat.queue, chat.tenant_queue),
        ("chat", 9, 9)
    );
    assert_eq!(chat.targets.ttft, Some(Duration::from_millis(500)));
    let batch = settings.class(settings.class_named("batch").unwrap());
    assert_eq!((batch.priority, batch.weight, batch.queue), (10, 3, 1024));
    assert_eq!(
        settings.tenants["acme"].limits.tokens_per_minute,
        Some(1000)
    );
    assert_eq!(settings.other_tenants.limits.concurrency, Some(2));
    assert_eq!(settings.retries, 0);
}

#[test]
fn what_is_wrong_with_admission_is_told_with_its_place() {
    let complaint = |text: &str, want: &str| assert_complaint(&format!("{GATEWAY}{text}"), want);
    complaint(
        "[admission.class.a]\n[admission.class.b]\n",
        "4: [admission] needs `default_class`, the class of requests that name none: one of a, b",
    );
    complaint(
        "[admission]\ndefault_class = \"c\"\n",
        "5: [admission] default_class: no class \"c\"; there are default",
    );
    complaint(
        "[admission.class.a]\nttft = 5\n",
        "5: unknown key `ttft` in [admission.class.a]; did you mean `ttft_ms`?",
    );
    complaint(
        "[admission]\nclass = 5\n",
        "5: want a table [admission.class], found 5",
    );
    complaint(
        "[admission.tenant.a]\nconcurrency = 0\n",
        "5: [admission.tenant.a] concurrency: want a whole number from 1 to 1000000, found 0",
    );
    complaint(
        "[admission.class.\"a b\"]\n",
        "4: [admission] class \"a b\": want 1 to 63 letters, digits, '-', '_' or '.'",
    );
    complaint(
        "[admission]\nbreaker_open_most_ms = 10\n",
        "5: [admission] breaker_open_most_ms: 10 is below breaker_open_ms, 1000",
    );
}
