//! Results for people and for spreadsheets. Pure: text out of [`crate::results::Results`] and of comparisons.

mod comparison;
mod csv;
mod html;
mod server;
mod table;
mod text;

pub use comparison::comparison;
pub use csv::csv;
pub use html::{Shown, html};
pub use text::text;
