//! `[gateway]` and `[worker]`.

use super::*;

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
fn a_short_worker_file_gets_the_documented_defaults() {
    let config = parse(WORKER).unwrap();
    assert_eq!(config.gateway, None);
    let worker = config.worker.unwrap();
    assert_eq!(worker.id.as_str(), "decode-0");
    assert_eq!(worker.role, WorkerRole::Decode);
    assert_eq!(worker.kv, KvBudget::Unsaid);
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
fn a_dialect_is_one_of_those_that_there_are() {
    let said = "tool_dialect = \"hermes\"\nreasoning_dialect = \"none\"\n";
    let gateway = parse(&format!("{GATEWAY}{said}")).unwrap().gateway.unwrap();
    let dialects = (gateway.tool_dialect, gateway.reasoning_dialect);
    assert_eq!(dialects, (Some("hermes"), Some("none")));
    let gateway = parse(GATEWAY).unwrap().gateway.unwrap();
    let dialects = (gateway.tool_dialect, gateway.reasoning_dialect);
    assert_eq!(dialects, (None, None), "what the template shows");
    assert_complaint(
        &format!("{GATEWAY}reasoning_dialect = \"hermes\"\n"),
        "4: [gateway] reasoning_dialect: want one of \"mistral\", \"granite_prose\", \"granite\", \
         \"think\", \"none\", found the text \"hermes\"",
    );
    assert_complaint(
        &format!("{GATEWAY}tool_dialect = \"llama4\"\n"),
        "4: [gateway] tool_dialect: want one of \"kimi_k2\", \"deepseek_v3\", \"deepseek_v31\", \
         \"mistral\", \"mistral_list\", \"phi4_mini\", \"glm45\", \"qwen3_coder\", \"granite\", \
         \"hermes\", \"pythonic\", \"llama3_json\", \"none\", found the text \"llama4\"",
    );
}
