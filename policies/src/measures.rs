//! Measures of all workers of a stage, by seat. Loops without branches, which compilers turn into
//! instructions for several workers.

use tandem_core::fleet::{Columns, LabelId};
use tandem_core::pairing::Stage;

use crate::look::Look;

/// In place of what is there.
#[inline]
pub(crate) fn set(column: &mut Vec<f32>, measures: impl Iterator<Item = f32>) {
    column.clear();
    column.extend(measures);
}

/// Pages that somebody has.
#[inline]
pub(crate) fn used_pages(columns: &Columns) -> impl Iterator<Item = f32> {
    let pages = columns.pages.iter().zip(&columns.free_pages);
    pages.map(|(pages, free)| pages.saturating_sub(*free) as f32)
}

/// Shares of the pages that somebody has.
#[inline]
pub(crate) fn used_shares(columns: &Columns) -> impl Iterator<Item = f32> {
    let pages = columns.pages.iter();
    used_pages(columns)
        .zip(pages)
        .map(|(used, pages)| used / *pages as f32)
}

/// Microseconds of decode steps with one sequence more; 0 where nobody measured.
#[inline]
pub(crate) fn next_steps_us(columns: &Columns) -> impl Iterator<Item = f32> {
    let lines = columns.step_base_us.iter().zip(&columns.step_slope_us);
    let steps = lines.zip(&columns.requests);
    steps.map(|((base, slope), requests)| base + slope * (f32::from(*requests) + 1.0))
}

/// How much each has to do, at this stage.
pub(crate) fn loads(look: &Look<'_>, columns: &Columns, loads: &mut Vec<f32>) {
    match look.stage {
        Stage::Prefill => set(loads, columns.queued_tokens.iter().map(|q| *q as f32)),
        Stage::Decode => set(loads, used_shares(columns)),
    }
}

/// Milliseconds from now to the end of the prompt on each, of which it holds so many tokens.
pub(crate) fn ttft_ms(look: &Look<'_>, columns: &Columns, held: &[f32], ttft: &mut Vec<f32>) {
    let rates = look.times.rates(&columns.prefill_ns);
    let prompt = look.request.prompt_tokens as f32;
    let workers = columns.prefill_ns.iter().zip(&columns.queued_tokens);
    let each = workers.zip(held).map(|((own, queued), held)| {
        rates.queue_ms(*own, *queued) + rates.prefill_ms(*own, prompt, *held)
    });
    set(ttft, each);
}

/// From 0 (nothing in common) to 1 (the nearest level is the same).
pub(crate) fn nearnesses(levels: &[LabelId], columns: &Columns, near: &mut Vec<f32>) {
    near.clear();
    near.resize(columns.len(), 0.0);
    // The nearest one is the last to be written.
    for (at, level) in levels.iter().enumerate().rev() {
        let worth = 1.0 - at as f32 / levels.len() as f32;
        for labels in &columns.labels {
            for (near, label) in near.iter_mut().zip(labels) {
                *near = if label == level { worth } else { *near };
            }
        }
    }
}

/// The highest of the candidates' measures, none of which is below 0; 0 where there is none. Eight at a time.
pub(crate) fn most_of(measures: &[f32], fits: &[bool]) -> f32 {
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let mut best = [0.0_f32; 8];
    let mut eights = measures.chunks_exact(8).zip(fits.chunks_exact(8));
    for (measures, fits) in &mut eights {
        for (best, (measure, fits)) in best.iter_mut().zip(measures.iter().zip(fits)) {
            *best = higher(*best, if *fits { *measure } else { 0.0 });
        }
    }
    let done = measures.len() / 8 * 8;
    let rest = measures[done..].iter().zip(&fits[done..]);
    let rest = rest.map(|(measure, fits)| if *fits { *measure } else { 0.0 });
    best.into_iter().chain(rest).fold(0.0, higher)
}

/// Of the candidates, together.
pub(crate) fn sum_of(measures: &[u16], fits: &[bool]) -> u32 {
    let each = measures.iter().zip(fits);
    each.map(|(measure, fits)| if *fits { u32::from(*measure) } else { 0 })
        .sum()
}
