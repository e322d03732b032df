//! Even shares of a list.

use crate::topology::Nearness;

/// What a device gets, and why.
pub(crate) struct Share<T> {
    pub(crate) items: Vec<T>,
    pub(crate) near: Nearness,
}

/// The share of part `index` of `parts`: neighbours in the list, and no share is larger than
/// another by more than one. Where there are fewer items than parts, neighbours have the same one.
pub(crate) fn share<T>(items: &[T], parts: usize, index: usize) -> &[T] {
    assert!(index < parts, "one of the parts");
    let start = index * items.len() / parts;
    let end = (index + 1) * items.len() / parts;
    if items.len() >= parts {
        &items[start..end]
    } else {
        &items[start..items.len().min(start + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::share;
    use proptest::prelude::*;

    #[test]
    fn shares_are_neighbours_and_few_items_are_shared_by_neighbours() {
        let shares = |items: &[u32], parts| -> Vec<Vec<u32>> {
            let share = |index| share(items, parts, index).to_vec();
            (0..parts).map(share).collect()
        };
        assert_eq!(shares(&[1, 2, 3, 4, 5], 2), [vec![1, 2], vec![3, 4, 5]]);
        assert_eq!(shares(&[1, 2], 4), [[1], [1], [2], [2]]);
        assert_eq!(shares(&[], 2), [[0; 0], [0; 0]]);
    }

    proptest! {
        #[test]
        fn shares_are_even_and_leave_nothing(items in 0..40usize, parts in 1..40usize) {
            let list: Vec<usize> = (0..items).collect();
            let shares: Vec<&[usize]> = (0..parts).map(|i| share(&list, parts, i)).collect();
            let sizes = shares.iter().map(|s| s.len());
            prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
            let mut all = shares.concat();
            if items < parts {
                all.dedup();
            }
            prop_assert_eq!(all, list);
        }
    }
}
