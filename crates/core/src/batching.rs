//! How one step of an engine is shared among the prompts that wait for it.

/// Shares a step's `chunk` tokens among sequences that have `left` tokens to go, at most as many as
/// the chunk has tokens: equal shares, and what the short ones leave goes to the long ones. So a short
/// prompt passes the long ones that were there before it, and each sequence gets at least one token.
#[must_use]
pub fn shares(left: &[usize], chunk: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by_key(|index| left[*index]);
    let mut shares = vec![0; left.len()];
    let mut rest = chunk;
    for (served, index) in order.into_iter().enumerate() {
        let share = left[index].min(rest / (left.len() - served));
        shares[index] = share;
        rest -= share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn a_step_is_shared_equally_and_none_of_it_is_wasted() {
        assert_eq!(shares(&[], 16), [0; 0]);
        assert_eq!(shares(&[2000], 512), [512]);
        assert_eq!(shares(&[2000, 2000, 5], 512), [253, 254, 5]);
        assert_eq!(shares(&[3, 4], 512), [3, 4]);
        assert_eq!(shares(&[9, 9, 9], 4), [1, 1, 2]);
    }
}
