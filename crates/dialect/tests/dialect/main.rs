//! Parsers and grammars of every family, on texts made for the purpose.

mod behind;
mod fuzz;
mod grammar;
mod parsing;
mod properties;
mod samples;
mod shapes;
mod vocabulary;
