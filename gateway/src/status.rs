//! `/tandem/status`: the gateway and its workers, for people and for `tandem status`.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tandem_wire::proto;

use crate::app::App;
use crate::door::Allowed;
use crate::metrics::page_states;
use crate::roster::{Introduction, Seat, State};

/// The status page.
pub(crate) fn page(app: &App) -> Value {
    let view = app.door.view();
    json!({
        "model": app.model_name(&view),
        "gateway": {"in_flight": app.door.in_flight(), "queued": view.queued},
        "workers": workers(app),
    })
}

/// All workers, in the order of their addresses.
pub(crate) fn workers(app: &App) -> Vec<Value> {
    let view = app.door.view();
    let counts = app.requests.by_worker();
    let row = |(address, seat): (SocketAddr, Seat)| {
        let mut row = worker(address, &seat);
        let known = seat.worker.as_ref().filter(|_| seat.load.is_some());
        if let Some(introduction) = known {
            let worker = &introduction.facts.worker;
            let Allowed { drained, weight } = view.allowed(worker);
            let requests = counts.get(worker).copied().unwrap_or(0);
            row["drained"] = json!(drained);
            row["weight"] = json!(weight);
            row["requests"] = json!(requests);
            if drained && seat.state == State::Ready {
                row["state"] = json!(if requests == 0 { "drained" } else { "draining" });
            }
        }
        row
    };
    app.roster.seats().into_iter().map(row).collect()
}

fn worker(address: SocketAddr, seat: &Seat) -> Value {
    let mut row = json!({
        "id": null,
        "role": null,
        "address": address.to_string(),
        "state": seat.state.text(),
        "incarnation": null,
        "provider": null,
        "software": null,
        "library": null,
        "model": null,
        "layers": null,
        "labels": null,
        "capabilities": null,
        "measured": null,
        "pages": null,
        "queued": null,
        "running": null,
        "queued_prompt_tokens": null,
        "drained": null,
        "weight": null,
        "requests": null,
        "figures": null,
    });
    if let Some(introduction) = &seat.worker {
        let facts = &introduction.facts;
        row["id"] = json!(facts.worker.as_str());
        row["role"] = json!(facts.role.as_str());
        // JSON's numbers are exact up to 53 bits only.
        row["incarnation"] = json!(format!("{:016x}", facts.incarnation.0));
        row["model"] = json!(facts.model);
        row["layers"] = json!(facts.layout.geometry().layers);
        row["provider"] = json!(introduction.provider.name);
        row["software"] = json!(introduction.provider.software);
        row["library"] = json!(introduction.provider.library);
        row["labels"] = json!(facts.labels);
        row["capabilities"] = capabilities(introduction);
    }
    if let Some(load) = &seat.load {
        let pages = load.pages.unwrap_or_default();
        let mut states = json!({"total": pages.total});
        for (state, count) in page_states(&pages) {
            states[state] = json!(count);
        }
        states["free"] = json!(pages.free);
        row["pages"] = states;
        row["queued"] = json!(load.queued_requests);
        row["running"] = json!(load.running);
        row["queued_prompt_tokens"] = json!(load.queued_prompt_tokens);
        row["measured"] = json!({
            "prefill_ns_per_token": measured(load.prefill_ns_per_token),
            "decode_step_us": measured(load.decode_step_us),
        });
        row["figures"] = figures(load);
    }
    row
}

/// What it said of itself when it registered: what requests it could take, and from whom.
fn capabilities(introduction: &Introduction) -> Value {
    let facts = &introduction.facts;
    let layout = &facts.layout;
    let geometry = layout.geometry();
    json!({
        "prefills": facts.role.prefills(),
        "decodes": facts.role.decodes(),
        "fingerprint": facts.fingerprint,
        "context_length": facts.context_length,
        "pages": layout.pages(),
        "page_tokens": geometry.page_tokens,
        "kv_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        "kv_dtype": geometry.dtype.as_str(),
        "kv_kind": geometry.kind.as_str(),
        "kv_order": geometry.order.as_str(),
        "context_bytes": geometry.context_bytes,
        "shards": layout.shards().len(),
        "reports_blocks": facts.seed.is_some(),
        "wire": introduction.provider.wire,
    })
}

/// 0 stands for "not yet".
fn measured(value: u32) -> Option<u32> {
    (value > 0).then_some(value)
}

/// What the worker has counted since its start.
fn figures(load: &proto::Load) -> Value {
    let figures = load.figures.unwrap_or_default();
    json!({
        "transfers_completed": figures.transfers_completed,
        "transfers_failed": figures.transfers_failed,
        "writes_posted": figures.writes_posted,
        "bytes_pushed": figures.bytes_pushed,
        "fences": figures.fences,
        "prompt_tokens": figures.prompt_tokens,
        "cached_tokens": figures.cached_tokens,
        "generated_tokens": figures.generated_tokens,
    })
}
