//! How many connections each client address has.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts them where there is a bound.
#[derive(Debug)]
pub(super) struct Addresses {
    most: Option<usize>,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    /// `None` where nobody counts.
    taken: Option<(Arc<Addresses>, IpAddr)>,
}

impl Addresses {
    pub(super) fn new(most: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::default(),
        })
    }

    /// `None` where `address` has as many as it may.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let Some(most) = self.most else {
            return Some(Place { taken: None });
        };
        let client = client(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(client).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place {
            taken: Some((Arc::clone(self), client)),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((addresses, client)) = &self.taken else {
            return;
        };
        let mut open = addresses
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                open.remove(client);
            }
        }
    }
}

/// One client has a whole /64 of IPv6.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_places_and_no_more() {
        let addresses = Addresses::new(Some(2));
        let take = |address: &str| addresses.take(address.parse().unwrap());
        let first = take("10.0.0.1").unwrap();
        let _mapped = take("::ffff:10.0.0.1").unwrap();
        assert!(take("10.0.0.1").is_none());
        let _other = take("10.0.0.2").unwrap();
        drop(first);
        let _again = take("10.0.0.1").unwrap();
        let _one = take("2001:db8::1").unwrap();
        let _two = take("2001:db8::2").unwrap();
        assert!(take("2001:db8::3").is_none());
        assert!(take("2001:db8:0:1::3").is_some());
        drop((_again, _mapped, _other, _one, _two));
        assert!(addresses.open.lock().unwrap().is_empty());
    }

    #[test]
    fn without_a_bound_nobody_counts() {
        let addresses = Addresses::new(None);
        let places: Vec<_> = (0..9)
            .map(|_| addresses.take("::1".parse().unwrap()).unwrap())
            .collect();
        assert_eq!(places.len(), 9);
        assert!(addresses.open.lock().unwrap().is_empty());
    }
}
