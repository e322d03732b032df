//! Lists of logical cpus as the kernel writes them: `0-3,8,10-11`.
//!
//! Source: "List format" in the kernel's `Documentation/admin-guide/kernel-parameters.rst`.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::address::decimal;

/// Logical cpus that a list may name. Linux has at most 8192 (`NR_CPUS` on x86).
pub(crate) const MAX_CPUS: u32 = 16_384;

/// The cpus of a list; `None` where it is none, or names a cpu from [`MAX_CPUS`] on. An empty list
/// is what a node without cpus has.
pub(crate) fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let text = text.trim_ascii();
    let mut cpus = BTreeSet::new();
    if text.is_empty() {
        return Some(cpus);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (decimal(first)?, decimal(last)?);
        if first > last || last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The shortest list of these cpus in this order: neighbours become a range.
pub(crate) fn format(cpus: &[u32]) -> String {
    let mut text = String::new();
    for run in cpus.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        let comma = if text.is_empty() { "" } else { "," };
        let written = match run {
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            [only] => write!(text, "{comma}{only}"),
            [] => Ok(()),
        };
        written.expect("writing to a String does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_as_it_is_read() {
        for text in ["", "0", "0-3", "0-3,8,10-11"] {
            let cpus: Vec<u32> = parse(text).unwrap().into_iter().collect();
            assert_eq!(format(&cpus), text);
        }
        assert_eq!(parse(" 5,1-2\n"), Some(BTreeSet::from([1, 2, 5])));
    }

    #[test]
    fn a_wrong_or_huge_list_is_refused() {
        for text in [
            ",",
            "0-",
            "-1",
            "3-1",
            "0,",
            "a",
            "1-2-3",
            "0-16384",
            "0-4294967295",
            "+1",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
