//! Operation contexts: pinned cells whose addresses go to the provider and come back with
//! completions.
//!
//! What comes back is an address that nobody vouches for (error entries carry null, or foreign
//! ones): it is compared with the cells' own range and looked up, never followed.

use std::ffi::c_void;
use std::ptr::NonNull;

use libfabric_sys::fi_context2;

/// As many cells as an endpoint may have operations in flight.
pub(crate) struct Contexts<T> {
    /// Owned; only the provider touches what is inside.
    cells: NonNull<[fi_context2]>,
    flights: Box<[Option<T>]>,
    free: Vec<usize>,
}

impl<T> Contexts<T> {
    pub(crate) fn new(count: usize) -> Self {
        let cells: Box<[fi_context2]> =
            // SAFETY: all-zero pointers are valid.
            (0..count).map(|_| unsafe { std::mem::zeroed() }).collect();
        Self {
            cells: NonNull::from(Box::leak(cells)),
            flights: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// Whether all cells are in flight.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Cells in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Takes a cell for an operation; `None` where all are in flight.
    pub(crate) fn take(&mut self, flight: T) -> Option<*mut c_void> {
        let index = self.free.pop()?;
        self.flights[index] = Some(flight);
        Some(self.base().wrapping_add(index).cast())
    }

    /// The operation of a context that came back, whose cell is free again; `None` for what is no
    /// cell in flight.
    pub(crate) fn give_back(&mut self, context: *mut c_void) -> Option<T> {
        let offset = (context as usize).checked_sub(self.base() as usize)?;
        let (index, rest) = (offset / CELL, offset % CELL);
        if rest != 0 {
            return None;
        }
        let flight = self.flights.get_mut(index)?.take()?;
        self.free.push(index);
        Some(flight)
    }

    fn base(&self) -> *mut fi_context2 {
        self.cells.as_ptr().cast()
    }
}

const CELL: usize = size_of::<fi_context2>();

impl<T> Drop for Contexts<T> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak`, freed once; the endpoint that had the cells' addresses is
        // closed before (its owner declares it first, or forgets these cells).
        drop(unsafe { Box::from_raw(self.cells.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cell_in_flight_is_known_and_only_once() {
        let mut contexts = Contexts::new(2);
        let a = contexts.take('a').unwrap();
        let b = contexts.take('b').unwrap();
        assert_eq!(contexts.take('c'), None);
        assert!(contexts.is_full());
        assert_eq!(contexts.give_back(std::ptr::null_mut()), None);
        assert_eq!(contexts.give_back(a.wrapping_byte_add(8)), None);
        assert_eq!(contexts.give_back(a.wrapping_byte_sub(CELL)), None);
        assert_eq!(contexts.give_back(b.wrapping_byte_add(CELL)), None);
        assert_eq!(contexts.give_back(b), Some('b'));
        assert_eq!(contexts.give_back(b), None);
        assert_eq!(contexts.give_back(a), Some('a'));
        assert_eq!(contexts.in_flight(), 0);
    }
}
