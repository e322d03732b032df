//! A session: its requests one after the other, each scheduled by the end of the one before.

use std::time::Instant;

use super::exchange::{Call, exchange};
use super::open::Entered;
use super::prepared::Prepared;

/// Carries it out. A session that gets no answer to one request has no next one.
pub(super) async fn session(entered: Entered, mut one: Prepared, mut scheduled: Instant) {
    let context = &entered.0;
    let turns = std::iter::once(one.first).chain(one.later);
    let mut turns = turns.enumerate().peekable();
    let mut body = one.body;
    while let Some((number, turn)) = turns.next() {
        let next = turns.peek();
        let call = Call {
            index: one.index,
            number: number as u32,
            class: one.class,
            session: one.session,
            turn: &turn,
            body: body.clone(),
            keep_text: next.is_some(),
        };
        let answer = exchange(context, call, scheduled).await;
        let (Some((_, next)), Some(answer), Some(said)) = (next, answer, &mut one.conversation)
        else {
            return;
        };
        scheduled = Instant::now() + next.think;
        said.answer(answer);
        said.ask(next.prompt.clone());
        // Written out before its time, so that this delays nobody.
        body = said.body(&context.plan.asking, next.output_tokens);
        context.clock.sleep_until(scheduled).await;
    }
}
