//! The harness against a server of known behaviour: real sockets, stated delays, stated faults.

mod faults;
mod loads;
mod search;
mod secure;
mod start;
mod support;
mod times;
