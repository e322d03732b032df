//! `[policy.slo]`: what is promised where a request's class does not say.

use std::time::Duration;

use tandem_core::pairing::Targets;

use crate::section::Section;

pub(super) fn read(section: &mut Section<'_, '_>) -> Targets {
    let mut millis = |key| {
        let ms = section.number(key, 1..=86_400_000);
        ms.map(Duration::from_millis)
    };
    Targets {
        ttft: millis("ttft_ms"),
        tpot: millis("tpot_ms"),
    }
}
