//! Parsers and grammars of every family, on texts made for the purpose.

mod fuzz;
mod grammar;
mod parsing;
mod properties;
mod samples;
