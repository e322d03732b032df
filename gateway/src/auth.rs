//! Who may come in: API keys from a file, and signed tokens.
//!
//! Owns what is known of keys, and the layer that asks every request for one. Refuses to know what a
//! request is for, but whether its path is open to all. Keys and tokens end here: the layer takes them
//! out of the request, and nothing writes them down.

mod gate;
mod jwt;
mod layer;
mod refusal;
mod ring_provider;

pub use gate::AuthError;
pub(crate) use gate::{Gate, Rules, is_same};
pub(crate) use layer::{AuthLayer, shown_credential};
