//! The date and time in a template's own format, in UTC.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// Formats as C's `strftime` in the C locale: `%Y %y %m %d %B %b %A %a %H %I %M %S %p %j %%`.
/// Another directive, or a time before 1970, is an error in one line.
pub(crate) fn format(now: SystemTime, format: &str) -> Result<String, String> {
    let seconds = now
        .duration_since(UNIX_EPOCH)
        .map_err(|_| "a time before 1970".to_owned())?
        .as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let month_name = MONTHS[month as usize - 1];
    let day_name = DAYS[(days % 7) as usize];
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let written = match characters.next() {
            Some('Y') => write!(text, "{year}"),
            Some('y') => write!(text, "{:02}", year % 100),
            Some('m') => write!(text, "{month:02}"),
            Some('d') => write!(text, "{day:02}"),
            Some('B') => write!(text, "{month_name}"),
            Some('b') => write!(text, "{}", &month_name[..3]),
            Some('A') => write!(text, "{day_name}"),
            Some('a') => write!(text, "{}", &day_name[..3]),
            Some('H') => write!(text, "{hour:02}"),
            Some('I') => write!(text, "{:02}", (hour + 11) % 12 + 1),
            Some('M') => write!(text, "{minute:02}"),
            Some('S') => write!(text, "{:02}", second % 60),
            Some('p') => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('j') => write!(text, "{:03}", days - days_before(year) + 1),
            Some('%') => write!(text, "%"),
            other => {
                let directive = other.map(String::from).unwrap_or_default();
                return Err(format!("strftime_now: unknown directive '%{directive}'"));
            }
        };
        written.expect("writing to a string");
    }
    Ok(text)
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar.
/// From <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a year's first.
fn days_before(year: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn check(seconds: u64, pattern: &str, expected: &str) {
        let now = UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(format(now, pattern).as_deref(), Ok(expected));
    }

    /// Expected values are `date -u -d @SECONDS +FORMAT`.
    #[test]
    fn dates_are_those_of_the_c_library() {
        check(0, "%Y-%m-%d %A %j", "1970-01-01 Thursday 001");
        check(
            1_709_210_096,
            "%d %b %Y %H:%M:%S %a %j",
            "29 Feb 2024 12:34:56 Thu 060",
        );
        check(
            1_735_689_599,
            "%B %d, %y %I %p %j%%",
            "December 31, 24 11 PM 366%",
        );
        check(4_107_542_400, "%Y-%m-%d %a", "2100-03-01 Mon");
    }

    #[test]
    fn an_unknown_directive_is_an_error() {
        assert!(format(UNIX_EPOCH, "%Q").is_err());
        assert!(format(UNIX_EPOCH, "%").is_err());
    }
}
