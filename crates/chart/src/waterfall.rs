//! What happened one after the other, a row for each thing that it happened to.

use crate::frame::{Frame, bounded};
use crate::legend::{Entry, Swatch};
use crate::number::short;
use crate::scale::Axis;
use crate::svg::{Anchor, Svg, fitted, width};
use crate::{Chart, Size, style};

/// A stretch of a row.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Which of the waterfall's kinds it is, from 0.
    pub kind: usize,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Stands to its left.
    pub name: String,
    /// Stands behind its end.
    pub note: String,
    /// Its stretches.
    pub segments: Vec<Segment>,
}

/// Rows of segments over one axis.
#[derive(Clone, Debug)]
pub struct Waterfall {
    title: String,
    x: Axis,
    kinds: Vec<String>,
    rows: Vec<Row>,
    limits: Vec<(String, f64)>,
    across: f64,
}

/// Units from row to row.
const ROW: f64 = 18.0;
/// Units for a limit's name.
const LIMIT: f64 = 14.0;
/// The most that the names take of the width, and the notes.
const NAMES: f64 = 0.3;

impl Waterfall {
    /// With the kinds of segments; the axis is a linear one.
    #[must_use]
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        x: Axis,
        kinds: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            title: title.into(),
            x,
            kinds: kinds.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            limits: Vec::new(),
            across: Size::default().width,
        }
    }

    /// With one row more, below those before.
    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        self.rows.push(row);
        self
    }

    /// With a vertical line at a value.
    #[must_use]
    pub fn limit(mut self, name: impl Into<String>, x: f64) -> Self {
        self.limits.push((name.into(), x));
        self
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let segments = self.rows.iter().flat_map(|row| &row.segments);
        let ends = segments.flat_map(|segment| [segment.from, segment.to]);
        ends.chain(self.limits.iter().map(|(_, x)| *x))
    }

    fn row_at(&self, svg: &mut Svg, frame: &Frame, scale: &crate::scale::Scale, y: f64, row: &Row) {
        let name = fitted(&row.name, frame.left - crate::legend::MARGIN - 6.0);
        svg.label((frame.left - 6.0, y + 13.0), Anchor::End, "", &name);
        let mut end = frame.left;
        for segment in &row.segments {
            if !(segment.from.is_finite() && segment.to.is_finite()) {
                continue;
            }
            let (left, right) = (
                frame.at_x(scale, segment.from),
                frame.at_x(scale, segment.to),
            );
            let kind = self.kinds.get(segment.kind).map_or("", String::as_str);
            let tip = format!(
                "{}, {kind}: {}",
                row.name,
                short(segment.to - segment.from, 4)
            );
            let (colour, opacity) = (style::series(segment.kind), style::opacity(segment.kind));
            let attributes = format!("{colour} fill=\"currentColor\" fill-opacity=\"{opacity}\"");
            svg.rect((left, y + 3.0), (right, y + ROW - 3.0), &attributes, &tip);
            end = end.max(right);
        }
        let note = fitted(&row.note, self.across * NAMES);
        svg.label(
            (end + 5.0, y + 13.0),
            Anchor::Start,
            style::MUTED_TEXT,
            &note,
        );
    }
}

impl Chart for Waterfall {
    fn sized(mut self, size: Size) -> Self {
        self.across = bounded(size).width;
        self
    }

    fn svg(&self) -> String {
        // Its height is known when the heading is drawn.
        let mut body = Svg::new(0.0, 0.0, "");
        body.text.clear();
        let entries = self.kinds.iter().enumerate();
        let entries = entries.map(|(index, name)| Entry {
            name,
            index,
            swatch: Swatch::Fill,
        });
        let legend: Vec<_> = entries.collect();
        let top = crate::legend::heading(&mut body, self.across, &self.title, &legend) + 4.0;
        // Limits are named above the rows.
        let limits = self.limits.len().min(4) as f64 * LIMIT;
        let top = top + limits;
        let widest = |of: fn(&Row) -> &str| {
            let words = self.rows.iter().map(|row| width(of(row)));
            words.fold(0.0, f64::max).min(self.across * NAMES)
        };
        let (names, notes) = (widest(|row| &row.name), widest(|row| &row.note));
        let bottom = top + self.rows.len() as f64 * ROW + 4.0;
        let frame = Frame {
            left: crate::legend::MARGIN + names + 6.0,
            right: self.across - crate::legend::MARGIN - 4.0 - notes,
            top,
            bottom,
            y: Axis::linear("").fit(std::iter::empty(), 1.0),
        };
        let scale = self.x.fit(self.values(), frame.x_ticks());
        for (value, _) in &scale.ticks {
            let x = frame.at_x(&scale, *value);
            body.line((x, top), (x, bottom), " stroke-opacity=\"0.15\"");
        }
        for (i, row) in self.rows.iter().enumerate() {
            self.row_at(&mut body, &frame, &scale, top + i as f64 * ROW, row);
        }
        let shown = self.limits.iter().filter(|(_, x)| scale.holds(*x));
        for (i, (name, x)) in shown.enumerate() {
            // Each name a line lower, so that limits close to each other can be read.
            let base = top - limits + 10.0 + (i % 4) as f64 * LIMIT;
            frame.x_limit(&mut body, &scale, name, *x, base);
        }
        frame.x_axis(&mut body, &self.x, &scale);
        let mut svg = Svg::new(self.across, bottom + 36.0, &self.title);
        svg.text += &body.text;
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{named, rects};

    #[test]
    fn a_note_stands_behind_its_rows_end_and_limits_close_to_each_other_can_be_read() {
        let segment = |kind, from, to| Segment { kind, from, to };
        let row = Row {
            name: "a".to_owned(),
            note: "a note of this row".to_owned(),
            // Not in the order of their ends.
            segments: vec![segment(0, 0.0, 100.0), segment(1, 20.0, 50.0)],
        };
        let svg = Waterfall::new("t", Axis::linear("ms"), ["x", "y"])
            .row(row)
            .limit("first limit", 80.0)
            .limit("second limit", 81.0)
            .svg();
        let bars: Vec<_> = rects(&svg)
            .into_iter()
            .filter(|bar| bar.tip.starts_with("a, "))
            .collect();
        let tips: Vec<&str> = bars.iter().map(|bar| &*bar.tip).collect();
        assert_eq!(tips, ["a, x: 100", "a, y: 30"]);
        let note = named(&svg, "a note of this row");
        assert!(note.left > bars[0].right, "{note:?} {bars:?}");
        assert!(note.right <= 420.0, "{note:?}");
        let (first, second) = (named(&svg, "first limit"), named(&svg, "second limit"));
        assert!(second.y >= first.y + 12.0, "{first:?} {second:?}");
    }

    #[test]
    fn rows_have_their_segments_names_and_notes_and_nothing_hostile() {
        let row = |name: &str| Row {
            name: name.to_owned(),
            note: "1.2 s </svg>".to_owned(),
            segments: vec![
                Segment {
                    kind: 0,
                    from: 0.0,
                    to: 50.0,
                },
                Segment {
                    kind: 1,
                    from: 50.0,
                    to: 100.0,
                },
                Segment {
                    kind: 1,
                    from: f64::NAN,
                    to: 100.0,
                },
                Segment {
                    kind: 7,
                    from: 100.0,
                    to: 150.0,
                },
            ],
        };
        let chart = Waterfall::new("slow", Axis::linear("ms"), ["first", "<b>"])
            .row(row("a"))
            .row(row("a very long name & <i>more</i>"))
            .limit("SLO", 80.0);
        let svg = chart.svg();
        assert_eq!(svg.matches("<rect").count(), 2 + 2 * 3, "{svg}");
        assert!(!svg.contains("<b>") && !svg.contains("<i>"), "{svg}");
        assert_eq!(svg.matches("</svg>").count(), 1);
        assert!(
            Waterfall::new("none", Axis::linear(""), [""; 0])
                .svg()
                .ends_with("</svg>\n")
        );
    }
}
