//! Requests made ready before their time, so that making them delays nobody.

use bytes::Bytes;

use crate::body::{Asking, Conversation};
use crate::plan::RunPlan;
use crate::workload::{Item, Turn};

/// How many are ready ahead of time.
pub(super) const AHEAD: usize = 256;

/// A session (of one request, mostly), its first request written out.
pub(super) struct Prepared {
    pub(super) index: u64,
    pub(super) class: usize,
    pub(super) session: Option<u64>,
    pub(super) first: Turn,
    pub(super) later: Vec<Turn>,
    pub(super) body: Bytes,
    /// What was said; `None` where nobody goes on with it.
    pub(super) conversation: Option<Conversation>,
}

impl Prepared {
    pub(super) fn of(item: Item, asking: &Asking) -> Option<Self> {
        let mut turns = item.turns.into_iter();
        let mut first = turns.next()?;
        let later: Vec<Turn> = turns.collect();
        let said = std::mem::replace(&mut first.prompt, crate::workload::Prompt::Ids(Vec::new()));
        let conversation = Conversation::of(asking.api, said);
        Some(Self {
            index: item.index,
            class: item.class,
            session: item.session,
            body: conversation.body(asking, first.output_tokens),
            conversation: (!later.is_empty()).then_some(conversation),
            first,
            later,
        })
    }
}

/// This part's items, made ready one after the other.
pub(super) fn prepared<'a>(
    plan: &'a RunPlan,
    classes: &'a [String],
    requests: Option<u64>,
) -> impl Iterator<Item = Prepared> + 'a {
    let (number, of) = (u64::from(plan.part.number), u64::from(plan.part.of));
    let indices = (number - 1..requests.unwrap_or(u64::MAX)).step_by(of as usize);
    indices.map_while(move |index| Prepared::of(plan.workload.item(index, classes)?, &plan.asking))
}
