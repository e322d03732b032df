//! How many requests may be in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many and no more; how many, a reload may change.
#[derive(Debug)]
pub(super) struct Places {
    most: AtomicUsize,
    taken: AtomicUsize,
}

/// One of them, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Places>);

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: AtomicUsize::new(most),
            taken: AtomicUsize::new(0),
        })
    }

    /// One of them, where one is free.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let most = self.most.load(Ordering::Relaxed);
        let more = |taken: usize| (taken < most).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Place(Arc::clone(self)))
    }

    /// Those that are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// So many from now on. Where more are taken none is free until enough have been given back.
    pub(super) fn resize(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_places_take_nobodys_and_are_fewer_once_they_are_given_back() {
        let places = Places::new(2);
        let (a, b) = (places.take().unwrap(), places.take().unwrap());
        assert!(places.take().is_none());
        places.resize(1);
        drop(a);
        assert!(places.take().is_none());
        drop(b);
        assert_eq!(places.taken(), 0);
        let _one = places.take().unwrap();
        assert!(places.take().is_none());
        places.resize(2);
        assert!(places.take().is_some());
    }
}
