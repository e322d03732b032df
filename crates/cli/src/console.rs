//! What the one at the terminal sees. A closed pipe (`tandem status | head`) is no failure.

use std::io::{self, IsTerminal, Write};

/// A line, or several, on standard output.
pub(crate) fn say(text: &str) {
    let _ = try_say(text);
}

/// The same; `false` where nobody reads any more.
pub(crate) fn try_say(text: &str) -> bool {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// One line on standard error that names this program.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "tandem: {line}");
}

/// Rows in columns as wide as their widest cell, two spaces apart.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(head)];
    lines.extend(
        rows.iter()
            .map(|row| line(row.each_ref().map(String::as_str))),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_its_columns() {
        let rows = [
            ["decode-0".to_owned(), "1".to_owned()],
            ["p".to_owned(), "22".to_owned()],
        ];
        assert_eq!(
            table(["ID", "PID"], &rows),
            "ID        PID\ndecode-0  1\np         22"
        );
    }
}
