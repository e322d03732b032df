//! Each rule, filter and parameter on small fleets.

mod apart;
mod herding;
mod joint;
mod local;
mod made;
mod promises;
mod rules;
