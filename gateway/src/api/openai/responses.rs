//! `/v1/responses`, without memory: nothing is stored, and nothing that was stored can be named.
//!
//! `store` left out means that nothing is stored, and the response says so; `store: true` asks for
//! what is not there, and is refused.

mod events;
mod items;
mod object;
mod request;

pub(crate) use events::ResponseEvents;
pub(crate) use object::{ResponseForm, whole};
pub(crate) use request::read;
