//! Plans and results for the tests.

pub(crate) mod made;

use std::sync::Arc;
use std::time::Duration;

use crate::body::{Api, Asking, UsageAsked};
use crate::plan::{Bounds, Load, Margin, RunPlan};
use crate::results::{LoadPoint, Part};
use crate::slo::Slos;
use crate::workload::{Class, Source, Speech, Synthetic, Think, Workload};

pub(crate) fn plan(load: Load) -> RunPlan {
    let class = Class {
        name: "default".to_owned(),
        share: 1.0,
        input: "8".parse().unwrap(),
        output: "4".parse().unwrap(),
    };
    RunPlan {
        load,
        point: LoadPoint::Rate(1.0),
        setting: None,
        repeat: 1,
        workload: Arc::new(Workload {
            seed: 1,
            renewed: 0,
            speech: Arc::new(Speech::Words),
            source: Arc::new(Source::Synthetic(Synthetic {
                classes: vec![class],
                prefix: None,
                turns: "1".parse().unwrap(),
                think: Think::Fixed(Duration::ZERO),
            })),
            max_context: None,
            chat: true,
        }),
        asking: Asking {
            api: Api::Chat,
            model: "m".to_owned(),
            usage: UsageAsked::Last,
            ignore_eos: false,
            extra: serde_json::Map::new(),
        },
        class_header: None,
        session_header: None,
        slos: Slos::default(),
        requests: None,
        duration: None,
        warm_up: Margin::None,
        cool_down: Margin::None,
        timeout: Duration::from_secs(10),
        max_in_flight: 1000,
        part: Part { number: 1, of: 1 },
        start_at: None,
        bounds: Bounds::default(),
    }
}
