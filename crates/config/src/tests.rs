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
    assert_eq!(gateway.max_choices, 32);
    assert_eq!((gateway.http, gateway.tls), (HttpConfig::default(), None));
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
        "1: unknown key outside a table: `listen`; known: gateway, http, tls, auth, admin, admission, policy, \
         worker, fabric, topology, identity, control, telemetry, log",
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
         tokenizer_threads, default_max_tokens, max_choices, drain_timeout_ms, drain_pause_ms",
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
        "2: [policy.prefill] choose: want one of \"random\", \"round_robin\", \"power_of_two\", \
         \"least_loaded\", \"consistent_hash\", \"prefix_aware\", \"kvcache_centric\", \"kv_cost\", \
         \"splitwise\", \"slo_aware\", \"scored\", found the text \"least_laoded\"",
    );
    assert_complaint(
        "[policy]\nseed = \"x\"\n",
        "2: [policy] seed: want a whole number from 0 to 9223372036854775807, found the text \"x\"",
    );
}

#[test]
fn all_that_is_wrong_with_a_policy_is_reported_at_once_each_with_its_line() {
    let text = "[policy]\nsed = 7\n[policy.prefill]\nchoose = \"scored\"\n\
                weights = { prefix = 1, qeue = 2 }\n[policy.decode]\ntemperature = 2.5\n\
                weights = { ttft = 1 }\n[policy.kv_cost]\noverlap_score_credit = 1.5\n\
                [policy.local_prefill]\nmax_prompt_tokens = -1\n";
    let expected = [
        "2: unknown key `sed` in [policy]; did you mean `seed`?",
        "5: unknown key `qeue` in [policy.prefill.weights]; did you mean `queue`?",
        "7: [policy.decode] temperature: only `picker = \"softmax\"` has it",
        "8: unknown key `ttft` in [policy.decode.weights]; did you mean `tpot`?",
        "8: [policy.decode] weights: only `choose = \"scored\"` has it, and this is `least_loaded`",
        "9: [policy] kv_cost: neither stage has `choose = \"kv_cost\"`, so nothing here counts",
        "10: [policy.kv_cost] overlap_score_credit: want a number from 0 to 1, found 1.5",
        "12: [policy.local_prefill] max_prompt_tokens: want a whole number from 0 to 16777216, found -1",
    ];
    let expected = expected.map(|line| format!("etc/t.toml:{line}"));
    assert_eq!(complaints(text), expected);
}

#[test]
fn a_policy_that_contradicts_itself_is_refused() {
    assert_complaint(
        "[policy]\nchoose = \"slo_aware\"\n",
        "1: [policy] `choose = \"slo_aware\"` needs something promised: [policy.slo] with ttft_ms or tpot_ms",
    );
    assert_complaint(
        "[policy]\nchoose = \"kvcache_centric\"\n[policy.kvcache_centric]\nreject = \"arrival\"\n",
        "3: [policy] kvcache_centric: `reject` needs something promised: [policy.slo] with ttft_ms or tpot_ms",
    );
    assert_complaint(
        "[policy.prefill]\nchoose = \"scored\"\n",
        "1: [policy.prefill] `choose = \"scored\"` needs `weights`: scorers and how much each counts",
    );
    let one = "[policy.pair]\ncandidates = 1\n";
    assert!(complaints(one)[0].contains("each stage chooses alone"));
    let decode_ms = "[policy]\nchoose = \"kvcache_centric\"\n[policy.kvcache_centric]\n\
                     predicted_decode_ms = 5\n";
    assert!(complaints(decode_ms)[0].contains("only `reject = \"predicted\"` has it"));
}

#[test]
fn every_key_of_a_policy_is_read() {
    let text = "[policy]\nchoose = \"kv_cost\"\nwhen_no_prefill = \"local\"\n[policy.decode]\n\
                choose = \"scored\"\npicker = \"softmax\"\ntemperature = 0.25\n\
                weights = { pages = 1, session = 0.5 }\nlabels = { pool = \"a\" }\n\
                [policy.kv_cost]\nrouter_temperature = 0.5\n[policy.pair]\ntopology = 2\n\
                [policy.topology]\nlevels = [\"host\", \"rack\"]\n[policy.index]\nmax_blocks = 4096\n\
                [policy.slo]\nttft_ms = 500\n";
    let policy = parse(text).unwrap().policy.unwrap();
    use tandem_policies::{Picker, Rule, Scorer, WhenNoPrefill};
    assert_eq!(policy.prefill.choose, Rule::KvCost);
    assert_eq!(policy.decode.choose, Rule::Scored);
    assert_eq!(policy.decode.picker, Picker::Softmax { temperature: 0.25 });
    let mut weights = policy.decode.weights.clone();
    weights.sort_by_key(|(scorer, _)| scorer.as_str());
    assert_eq!(weights, [(Scorer::Pages, 1.0), (Scorer::Session, 0.5)]);
    assert_eq!(policy.decode.labels, [("pool".into(), "a".into())]);
    assert_eq!(policy.when_no_prefill, WhenNoPrefill::Local);
    assert_eq!((policy.pair.candidates, policy.pair.topology), (4, 2.0));
    assert_eq!(policy.topology.levels, ["host", "rack"]);
    assert_eq!(
        (policy.index.max_blocks, policy.kv_cost.router_temperature),
        (4096, 0.5)
    );
    assert_eq!(policy.slo.ttft, Some(std::time::Duration::from_millis(500)));
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
        "[admission.class.a]\nttft_m = 5\n",
        "5: unknown key `ttft_m` in [admission.class.a]; did you mean `ttft_ms`?",
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

#[test]
fn a_gateway_that_others_reach_says_who_may_use_it() {
    let open = GATEWAY.replace("[gateway]\n", "[gateway]\nlisten = \"0.0.0.0:80\"\n");
    assert_complaint(
        &open,
        "2: [gateway] listen: other machines reach 0.0.0.0:80, and without [auth] all of them may use it: want \
         [auth] with keys = \"keys.toml\" (see `tandem keys new`), or with mode = \"open\"",
    );
    let auth =
        |text: &str| parse(&format!("{open}[auth]\n{text}")).map(|c| c.gateway.unwrap().auth);
    assert_eq!(auth("mode = \"open\"\n"), Ok(AuthConfig::Open));
    let keys = auth("keys = \"k.toml\"\nopen_metrics = true\n").unwrap();
    let want = Required {
        keys: Some("etc/k.toml".into()),
        jwt: None,
        open_metrics: true,
    };
    assert_eq!(keys, AuthConfig::Keys(want));
    assert_eq!(
        parse(GATEWAY).unwrap().gateway.unwrap().auth,
        AuthConfig::Unsaid
    );
}

#[test]
fn who_may_use_a_gateway_is_said_once_and_whole() {
    let auth = |text: &str| complaints(&format!("{GATEWAY}[auth]\n{text}"));
    assert_eq!(
        auth(""),
        [
            "etc/t.toml:4: [auth] needs `keys` (a file that `tandem keys new` fills), `jwks`, or mode = \"open\""
        ]
    );
    assert_eq!(
        auth("mode = \"open\"\nkeys = \"k\"\n"),
        ["etc/t.toml:5: [auth] mode: \"open\" beside keys or jwks: want one of them"]
    );
    assert_eq!(
        auth("jwks = \"j\"\njwt_issuer = \"i\"\njwt_algorithms = [\"HS256\"]\n"),
        [
            "etc/t.toml:5: [auth] jwks: needs jwt_audience beside it",
            "etc/t.toml:7: [auth] jwt_algorithms: want a list of \"RS256\", \"ES256\" and \"EdDSA\", found a list",
        ]
    );
    assert_eq!(
        auth("keys = \"k\"\njwt_issuer = \"i\"\n"),
        ["etc/t.toml:6: [auth] jwt_issuer: means nothing without jwks"]
    );
}

#[test]
fn operators_get_a_listener_and_outside_of_the_machine_a_key() {
    let admin = |text: &str| parse(&format!("{GATEWAY}[admin]\n{text}"));
    let config = admin("").unwrap().gateway.unwrap().admin.unwrap();
    assert_eq!(config.listen, "127.0.0.1:8081".parse().unwrap());
    assert!(config.key_hashes.is_empty());
    assert_eq!(parse(GATEWAY).unwrap().gateway.unwrap().admin, None);
    assert_complaint(
        &format!("{GATEWAY}[admin]\nlisten = \"[::]:8081\"\n"),
        "5: [admin] listen: other machines reach [::]:8081: want key_hash, which `tandem keys new --admin` makes",
    );
    let hash = format!("\"sha256:{}\"", "ab".repeat(32));
    let text = format!("listen = \"[::]:1\"\nkey_hash = [{hash}, {hash}]\n");
    let config = admin(&text).unwrap().gateway.unwrap().admin.unwrap();
    assert_eq!(config.key_hashes.len(), 2);
    assert!(admin("key_hash = \"geheim\"\n").is_err());
    assert!(admin("key_hash = []\n").is_err());
}

#[test]
fn http_and_tls_are_read_and_their_mistakes_located() {
    let text = format!(
        "{GATEWAY}[http]\nhttp3 = true\ncors_origins = [\"https://a.example:8443\"]\n\
         max_header_bytes = \"64KiB\"\nmax_connections_per_address = 9\n\
         [tls]\ncertificate = \"c.pem\"\nkey = \"/k.pem\"\nclient_ca = \"ca.pem\"\n"
    );
    let gateway = parse(&text).unwrap().gateway.unwrap();
    let origins = vec!["https://a.example:8443".to_owned()];
    assert_eq!(gateway.http.cors_origins, CorsOrigins::These(origins));
    assert_eq!(gateway.http.max_header_bytes, 65_536);
    assert_eq!(gateway.http.max_connections_per_address, Some(9));
    let tls = gateway.tls.unwrap();
    assert_eq!(
        (tls.certificate, tls.key),
        (PathBuf::from("etc/c.pem"), PathBuf::from("/k.pem"))
    );
    assert_eq!(tls.client_ca, Some(PathBuf::from("etc/ca.pem")));
    let any = parse(&format!("{GATEWAY}[http]\ncors_origins = \"*\"\n")).unwrap();
    assert_eq!(any.gateway.unwrap().http.cors_origins, CorsOrigins::Any);

    assert_complaint(
        &format!("{GATEWAY}[http]\nhttp3 = true\n"),
        "5: [http] http3: HTTP/3 needs TLS, and there is no [tls]",
    );
    assert_complaint(
        &format!("{GATEWAY}[tls]\ncertificate = \"c.pem\"\n"),
        "4: [tls] needs `key`: a path, relative to this file's folder or absolute",
    );
    for bad in ["a.example", "https://a.example/", "https://A.example", "*"] {
        assert_complaint(
            &format!("{GATEWAY}[http]\ncors_origins = [\"{bad}\"]\n"),
            "5: [http] cors_origins: want \"*\" or a list of origins such as \
             [\"https://chat.example.com\"], found a list",
        );
    }
}
