//! Tokens, templates and answers, on the real model and on small ones made here.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod answer;
mod chat;
mod loading;
mod made;
mod smollm2;
