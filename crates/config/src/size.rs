//! Sizes in bytes, as people write them.

/// Binary units, the largest first.
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Bytes of `256MiB`, `1 GiB` or `4096`; `None` where it is no such size or too large for 64 bits.
/// Units are binary: B, KiB, MiB, GiB, TiB.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, shift) = UNITS
        .iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|number| (number, *shift)))
        .unwrap_or((text, 0));
    let number = number.trim_end();
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The shortest exact form: `256MiB`, `1536KiB`, `1000B`.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let (unit, shift) = UNITS
        .iter()
        .find(|(_, shift)| bytes >> shift != 0 && bytes.trailing_zeros() >= *shift)
        .unwrap_or(&("B", 0));
    format!("{}{unit}", bytes >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_units() {
        assert_eq!(parse_bytes("256MiB"), Some(256 << 20));
        assert_eq!(parse_bytes("1 GiB"), Some(1 << 30));
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("7B"), Some(7));
        for bad in [
            "",
            "MiB",
            "256MB",
            "-1KiB",
            "+1",
            "1.5GiB",
            "99999999TiB",
            "1 2",
        ] {
            assert_eq!(parse_bytes(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_written_exactly_and_read_back() {
        for (bytes, text) in [
            (0, "0B"),
            (1000, "1000B"),
            (1 << 20, "1MiB"),
            (1536 << 10, "1536KiB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
            assert_eq!(parse_bytes(text), Some(bytes));
        }
    }
}
