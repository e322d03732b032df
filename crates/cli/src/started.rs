//! The line by which a gateway or worker says on standard output that it has started, for whoever
//! started it: `started {json}`.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{console, supervisor};

const WORD: &str = "started ";

/// What is known once a process listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// `gateway`, or a worker's id.
    pub(crate) id: String,
    /// `gateway`, or a worker's role.
    pub(crate) role: String,
    /// Where it listens: HTTP for a gateway, QUIC for a worker.
    pub(crate) address: SocketAddr,
    /// Where a gateway's operators connect.
    #[serde(default)]
    pub(crate) admin: Option<SocketAddr>,
    /// A worker's fabric provider.
    pub(crate) provider: Option<String>,
    /// KV pages that a worker has.
    pub(crate) pages: Option<u32>,
    /// The name of the model that a worker has.
    pub(crate) model: Option<String>,
}

impl Started {
    /// Says it, and tells a service manager.
    pub(crate) fn announce(&self) {
        if let Ok(json) = serde_json::to_string(self) {
            console::say(&format!("{WORD}{json}"));
        }
        supervisor::ready();
    }

    /// Reads such a line; `None` for any other.
    pub(crate) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(WORD)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_read_back() {
        let started = Started {
            id: "decode-0".to_owned(),
            role: "decode".to_owned(),
            address: "127.0.0.1:7101".parse().unwrap(),
            admin: None,
            provider: Some("tcp".to_owned()),
            pages: Some(728),
            model: None,
        };
        let line = format!("{WORD}{}", serde_json::to_string(&started).unwrap());
        assert_eq!(Started::read(&line), Some(started));
        assert_eq!(Started::read("anything else"), None);
    }
}
