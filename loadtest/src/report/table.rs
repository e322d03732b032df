//! Numbers in columns.

/// Rows under a head: the first column to the left, all others to the right, two spaces apart.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(i, (cell, width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Three digits or so, as people read them.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        a if a >= 100.0 => format!("{value:.0}"),
        a if a >= 10.0 => format!("{value:.1}"),
        a if a >= 0.1 || a == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The same with three digits of small values too: a server's seconds are often milliseconds.
pub(super) fn precise(value: f64) -> String {
    if !value.is_finite() || value == 0.0 || value.abs() >= 0.1 {
        return number(value);
    }
    let digits = (2.0 - value.abs().log10().floor()) as usize;
    format!("{value:.*}", digits.min(MOST_DIGITS))
}

/// A billionth is the smallest that is shown.
const MOST_DIGITS: usize = 9;

/// Microseconds as milliseconds.
pub(super) fn ms(us: Option<f64>) -> String {
    us.map_or("-".to_owned(), |us| number(us / 1000.0))
}

pub(super) fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_have_three_digits() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = table(&[row(["a", "bb", "c"]), row(["long", "1", "23"])]);
        assert_eq!(text, "a     bb   c\nlong   1  23\n");
        let shown = [123.4, 12.34, 1.234, 0.01234, 0.0].map(number);
        assert_eq!(shown, ["123", "12.3", "1.23", "0.012", "0.00"]);
        let shown = [123.4, 0.0, 0.05, 0.002_123, 0.000_045_6, 1e-30, -0.002_5].map(precise);
        let want = [
            "123",
            "0.00",
            "0.0500",
            "0.00212",
            "0.0000456",
            "0.000000000",
            "-0.00250",
        ];
        assert_eq!(shown, want);
        assert_eq!(
            (ms(Some(1500.0)), ms(None)),
            ("1.50".to_owned(), "-".to_owned())
        );
    }
}
