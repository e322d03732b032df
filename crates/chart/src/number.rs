//! Numbers as people read them on an axis.

/// With as many significant digits, no zeros behind them, and k, M, G for thousands: `12.5k`, `0.002`, `40`.
#[must_use]
pub fn short(value: f64, digits: u32) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let rounded = significant(value, digits);
    let (divisor, suffix) = match rounded.abs() {
        a if a >= 1e9 => (1e9, "G"),
        a if a >= 1e6 => (1e6, "M"),
        a if a >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let shown = rounded / divisor;
    let before = digits_before(shown);
    let after = i64::from(digits) - before;
    let text = format!("{shown:.*}", after.clamp(0, 12) as usize);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match text {
        "-0" => "0".to_owned(),
        _ => format!("{text}{suffix}"),
    }
}

/// Digits of the whole part; for numbers below 0.1 the zeros after the point, negative.
fn digits_before(value: f64) -> i64 {
    match value.abs() {
        0.0 => 1,
        a => a.log10().floor() as i64 + 1,
    }
}

fn significant(value: f64, digits: u32) -> f64 {
    let power = i64::from(digits) - digits_before(value);
    let scale = 10_f64.powi(power.clamp(-300, 300) as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        let shown = [
            0.0,
            0.1 + 0.2,
            1.0,
            40.0,
            999.96,
            1500.0,
            12_500.0,
            3e6,
            2.5e9,
            -0.002,
            -12_500.0,
        ];
        let shown = shown.map(|value| short(value, 3));
        assert_eq!(
            shown,
            [
                "0", "0.3", "1", "40", "1000", "1500", "12.5k", "3M", "2.5G", "-0.002", "-12.5k"
            ]
        );
        assert_eq!(short(f64::NAN, 3), "–");
        assert_eq!(short(9_999.9, 3), "10k");
    }
}
