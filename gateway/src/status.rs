//! `/tandem/status`: the gateway and its workers, for people and for `tandem status`.

use serde_json::{Value, json};

use crate::app::App;
use crate::metrics::page_states;
use crate::roster::Seat;

/// The status page.
pub(crate) fn page(app: &App) -> Value {
    let view = app.door.view();
    let workers: Vec<Value> = app
        .roster
        .seats()
        .iter()
        .map(|(address, seat)| worker(*address, seat))
        .collect();
    json!({
        "model": app.model_name(&view),
        "gateway": {"in_flight": app.door.in_flight(), "queued": view.queued},
        "workers": workers,
    })
}

fn worker(address: std::net::SocketAddr, seat: &Seat) -> Value {
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
        "pages": null,
        "queued": null,
        "running": null,
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
    }
    row
}
