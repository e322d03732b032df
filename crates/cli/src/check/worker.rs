//! `[worker]` and `[engine]`.

use tandem_config::{
    EngineConfig, KvBudget, ProfileSource, TimedConfig, WorkerConfig, format_bytes, load_profile,
};

use crate::failure::Failure;

use super::{Table, devices, labels, quoted};

pub(super) fn tables(worker: &WorkerConfig) -> String {
    worker_table(worker) + &engine_table(&worker.engine)
}

/// Looks whether a profile's file is right: it is configuration too.
pub(super) fn profile(engine: &EngineConfig) -> Result<(), Failure> {
    if let EngineConfig::Timed(TimedConfig {
        profile: ProfileSource::File(path),
        ..
    }) = engine
    {
        load_profile(path)?;
    }
    Ok(())
}

fn worker_table(worker: &WorkerConfig) -> String {
    let timed = matches!(worker.engine, EngineConfig::Timed(_));
    let table = Table::new("worker")
        .text("id", &worker.id)
        .text("role", worker.role)
        .text("listen", worker.listen)
        .text("model", worker.model.display())
        .unless_absent(
            "model_sha256",
            worker.model_sha256.map(quoted),
            "not checked",
        )
        .unless_absent(
            "model_name",
            worker.model_name.as_ref().map(quoted),
            "the model's own",
        );
    let salt = Some(&worker.cache_salt).filter(|s| !s.is_empty());
    let table = match worker.kv {
        KvBudget::Bytes(bytes) => table.text("kv_memory", format_bytes(bytes)),
        KvBudget::Pages(pages) => table.raw("kv_pages", pages),
        KvBudget::Unsaid => {
            let usual = format_bytes(KvBudget::USUAL);
            let room = match timed {
                true => format!("what the profile's GPUs hold, within {usual}"),
                false => usual,
            };
            table.unless_absent("kv_memory", None::<u32>, &room)
        }
    };
    let table = table.raw("page_tokens", worker.page_tokens);
    // Of an engine that runs a model.
    let table = match timed {
        true => table,
        false => table
            .text("kv_dtype", worker.kv_dtype)
            .raw("speculative_tokens", worker.speculative_tokens)
            .raw("threads", worker.threads),
    };
    table
        .text("kv_order", worker.kv_order)
        .raw("tensor_parallel", worker.tensor_parallel)
        .raw("prefix_cache", worker.prefix_cache)
        .unless_absent("cache_salt", salt.map(quoted), "none")
        .raw("labels", labels(&worker.labels))
        .raw("devices", devices(&worker.devices))
        .unless_absent(
            "engine_socket",
            worker.engine_socket.as_ref().map(|p| quoted(p.display())),
            "the engine runs in the worker",
        )
        .millis("engine_wait_ms", worker.engine_wait)
        .raw("chunk_tokens", worker.chunk_tokens)
        .raw("max_batch", worker.max_batch)
        .raw("queue_limit", worker.queue_limit)
        .millis("drain_timeout_ms", worker.drain_timeout)
        .done()
}

fn engine_table(engine: &EngineConfig) -> String {
    let table = Table::new("engine");
    let EngineConfig::Timed(timed) = engine else {
        return table.text("kind", "embedded").done();
    };
    let table = table.text("kind", "timed");
    let table = match &timed.profile {
        ProfileSource::Shipped(name) => table.text("profile", name),
        ProfileSource::File(path) => table.text("profile", path.display()),
    };
    table
        .raw("time_scale", toml::Value::Float(timed.time_scale))
        .raw("entry_bytes", timed.entry_bytes)
        .done()
}
