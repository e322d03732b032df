//! Times of day.

use time::OffsetDateTime;

/// Milliseconds since 1970 as `2026-03-01 12:00:05 UTC`; nothing for what is beyond all calendars.
pub(super) fn utc(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    let Ok(at) = OffsetDateTime::from_unix_timestamp(seconds) else {
        return String::new();
    };
    let (date, month) = (at.date(), u8::from(at.month()));
    let (hour, minute, second) = at.to_hms();
    let (year, day) = (date.year(), date.day());
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_utc() {
        assert_eq!(utc(1_772_366_405_999), "2026-03-01 12:00:05 UTC");
        assert_eq!(utc(u64::MAX), "");
    }
}
