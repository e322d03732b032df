//! Results for people and for spreadsheets. Pure: text out of [`crate::results::Results`].

mod csv;
mod server;
mod table;
mod text;

pub use csv::csv;
pub use text::text;
