//! Listeners of one file, which must not want one address.

use std::net::{IpAddr, SocketAddr};

use crate::section::Document;

/// The tables whose `listen` is an address.
const TABLES: [&str; 3] = ["gateway", "admin", "worker"];

/// Where each table's `listen` stands; `None` where it does not, and the address is the default.
pub(crate) fn lines(document: &Document<'_>) -> [Option<usize>; 3] {
    TABLES.map(|table| document.line_of_key(table, "listen"))
}

/// Notes each listener that one before it leaves no room for. In the order of the tables; `None` where a
/// file has no such listener.
pub(crate) fn refuse_clashes(
    document: &mut Document<'_>,
    addresses: [Option<SocketAddr>; 3],
    lines: [Option<usize>; 3],
) {
    let listeners = TABLES.into_iter().zip(addresses).zip(lines);
    let listeners: Vec<_> = listeners
        .filter_map(|((table, address), line)| Some((table, address?, line)))
        .collect();
    for (index, (table, address, line)) in listeners.iter().enumerate() {
        let mut before = listeners[..index].iter();
        let Some((other, taken, its_line)) = before.find(|(_, a, _)| overlap(*a, *address)) else {
            continue;
        };
        let message = format!(
            "[{table}] listen: {address} is taken by [{other}] listen, {taken}: want another port"
        );
        document.problem(line.or(*its_line), message);
    }
}

/// Whether a socket of one leaves none for the other. A port of 0 is any free one.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    // An unspecified address of IPv6 takes IPv4 too, as Linux has it.
    let takes = |one: IpAddr, other: IpAddr| {
        one == other || one.is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    let (one, other) = (a.ip(), b.ip());
    a.port() == b.port() && a.port() != 0 && (takes(one, other) || takes(other, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_all_interfaces_leaves_no_room_for_one_of_them() {
        let overlap = |a: &str, b: &str| {
            let found = overlap(a.parse().unwrap(), b.parse().unwrap());
            assert_eq!(found, overlap(b.parse().unwrap(), a.parse().unwrap()));
            found
        };
        assert!(overlap("127.0.0.1:1", "127.0.0.1:1"));
        assert!(overlap("0.0.0.0:1", "127.0.0.1:1"));
        assert!(overlap("[::]:1", "127.0.0.1:1"));
        assert!(overlap("[::]:1", "[::1]:1"));
        assert!(overlap("[::]:1", "0.0.0.0:1"));
        assert!(!overlap("0.0.0.0:1", "[::1]:1"));
        assert!(!overlap("127.0.0.1:1", "127.0.0.2:1"));
        assert!(!overlap("127.0.0.1:1", "127.0.0.1:2"));
        assert!(!overlap("127.0.0.1:0", "127.0.0.1:0"));
    }
}
