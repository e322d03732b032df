//! Whole files.

use super::*;

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
