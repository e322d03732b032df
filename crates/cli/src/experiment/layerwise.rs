//! `layerwise`: pages that travel layer by layer while the prompt is computed, and all together afterwards.

use serde_json::json;
use tandem_chart::{Axis, Plot, Series};
use tandem_plan::{FleetPlan, Transfer};

use super::report::{Report, cell};
use super::ttft::{PROFILE, alone, node};
use super::{ExperimentArgs, poisson, simulated};
use crate::failure::Failure;
use crate::planning::{millis, rounded};

const WAYS: [(&str, Transfer); 2] = [
    ("layer by layer", Transfer::LayerByLayer),
    ("afterwards", Transfer::Afterwards),
];

pub(super) fn run(args: &ExperimentArgs) -> Result<Report, Failure> {
    let count = args.requests(1000);
    let one = node()?;
    let plan = |transfer| FleetPlan {
        transfer,
        ..FleetPlan::apart(one.clone(), one.clone())
    };
    let mut plot = Plot::new(
        "Qwen3-235B: transfer in the first token",
        Axis::log("tokens of the prompt"),
        Axis::log("ms"),
    );
    let (mut alone_rows, mut load_rows) = (Vec::new(), Vec::new());
    let (mut alone_found, mut load_found) = (Vec::new(), Vec::new());
    for (name, transfer) in WAYS {
        let mut points = Vec::new();
        for kilo in [4, 8, 16, 32, 64, 128] {
            let tokens = kilo * 1024;
            let answer = alone(&plan(transfer), tokens)?;
            let added = millis(answer.exposed);
            points.push((f64::from(tokens), added));
            alone_rows.push([
                name.to_owned(),
                format!("{kilo}K"),
                format!("{:.0}", millis(answer.ttft)),
                cell(added),
            ]);
            alone_found.push(json!({
                "way": name,
                "tokens": tokens,
                "ttft_ms": rounded(millis(answer.ttft)),
                "transfer_ms": rounded(added),
            }));
        }
        plot = plot.series(Series::line(name, points));
        // Under load: layer by layer a step lasts until its last layer has passed the link.
        let trace = poisson(0.75, count, &[(16_384, 100)])?;
        let summary = simulated(&plan(transfer), &trace)?.0;
        let figures = [summary.ttft.p50, summary.ttft.p99, summary.exposed.p50].map(millis);
        load_rows.push([
            name.to_owned(),
            cell(figures[0]),
            cell(figures[1]),
            cell(figures[2]),
        ]);
        load_found.push(json!({
            "way": name,
            "ttft_ms_p50": rounded(figures[0]),
            "ttft_ms_p99": rounded(figures[1]),
            "transfer_ms_p50": rounded(figures[2]),
        }));
    }
    Ok(Report::new(json!({ "alone": alone_found, "under_load": load_found }))
        .says(format!(
            "{PROFILE}, chunks of 16,384 tokens. Afterwards: the link's fixed part is paid once, not for each layer."
        ))
        .table(["transfer", "prompt", "TTFT ms", "of it transfer, ms"], &alone_rows)
        .says(format!("Under load ({count} prompts of 16K tokens, 0.75 a second, one prefill node):"))
        .table(["transfer", "TTFT ms, p50", "p99", "of it transfer, ms, p50"], &load_rows)
        .plot("layerwise", &plot))
}
