//! What an experiment found.

use std::fmt::Write;

use serde_json::Value;
use tandem_chart::Chart;

use crate::planning::rounded;

/// For people, for machines, and as plots.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) text: String,
    pub(super) json: Value,
    /// Names of files, without their ending, and what is in them.
    pub(super) plots: Vec<(&'static str, String)>,
}

impl Report {
    pub(super) const fn new(json: Value) -> Self {
        Self {
            text: String::new(),
            json,
            plots: Vec::new(),
        }
    }

    /// With a paragraph more.
    pub(super) fn says(mut self, paragraph: impl AsRef<str>) -> Self {
        let _ = writeln!(self.text, "{}\n", paragraph.as_ref());
        self
    }

    /// With a table more, as Markdown has them.
    pub(super) fn table<const N: usize>(self, head: [&str; N], rows: &[[String; N]]) -> Self {
        let line = |cells: [&str; N]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(head);
        let rule = std::array::from_fn(|column| if column == 0 { "---" } else { "---:" });
        text.push_str(&line(rule));
        for row in rows {
            text.push_str(&line(row.each_ref().map(String::as_str)));
        }
        self.says(text.trim_end())
    }

    /// With what the harness says against its own figures.
    pub(super) fn doubts(self, invalid: &[String]) -> Self {
        if invalid.is_empty() {
            return self;
        }
        self.says(format!("In doubt:\n- {}", invalid.join("\n- ")))
    }

    /// With a plot more.
    pub(super) fn plot(mut self, stem: &'static str, chart: &impl Chart) -> Self {
        self.plots.push((stem, chart.file()));
        self
    }
}

/// A number as tables show it.
pub(super) fn cell(value: f64) -> String {
    rounded(value).to_string()
}
