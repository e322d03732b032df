//! The room in which data are drawn, and the axes around it.

use crate::Size;
use crate::legend::{Entry, MARGIN, heading};
use crate::scale::{Axis, Scale};
use crate::style;
use crate::svg::{Anchor, FONT, Svg, fitted, width};

/// What stands around the data.
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    pub(crate) y: Scale,
}

/// Room for ticks' words and the axis' label below.
const BELOW: f64 = 36.0;

/// Sides that can hold a chart.
pub(crate) fn bounded(size: Size) -> Size {
    let within = |value: f64, least: f64| match value.is_finite() {
        true => value.clamp(least, 10_000.0),
        false => least,
    };
    Size {
        width: within(size.width, 240.0),
        height: within(size.height, 120.0),
    }
}

impl Frame {
    /// Draws the title, the legend and the axis of y.
    pub(crate) fn open(
        svg: &mut Svg,
        size: Size,
        title: &str,
        legend: &[Entry<'_>],
        y_axis: &Axis,
        values: impl Iterator<Item = f64>,
    ) -> Self {
        let mut top = heading(svg, size.width, title, legend);
        if !y_axis.label.is_empty() {
            top += 13.0;
            let label = fitted(&y_axis.label, size.width - 2.0 * MARGIN);
            svg.label((MARGIN, top), Anchor::Start, style::MUTED_TEXT, &label);
            top += 3.0;
        }
        let top = top + FONT / 2.0 + 2.0;
        let bottom = (size.height - BELOW).max(top + 40.0);
        let y = y_axis.fit(values, (bottom - top) / 34.0);
        let widest = y
            .ticks
            .iter()
            .map(|(_, text)| width(text))
            .fold(0.0, f64::max);
        let frame = Self {
            left: MARGIN + widest + 6.0,
            right: size.width - MARGIN - 4.0,
            top,
            bottom,
            y,
        };
        frame.y_axis(svg);
        frame
    }

    fn y_axis(&self, svg: &mut Svg) {
        let mut last = f64::INFINITY;
        for (value, text) in &self.y.ticks {
            let y = self.at_y(*value);
            svg.line((self.left, y), (self.right, y), " stroke-opacity=\"0.15\"");
            if last - y >= FONT {
                svg.label(
                    (self.left - 6.0, y + 4.0),
                    Anchor::End,
                    style::MUTED_TEXT,
                    text,
                );
                last = y;
            }
        }
    }

    /// Draws the axis of x.
    pub(crate) fn x_axis(&self, svg: &mut Svg, axis: &Axis, scale: &Scale) {
        let base = (self.left, self.bottom);
        svg.line(base, (self.right, self.bottom), " stroke-opacity=\"0.6\"");
        let mut free = f64::NEG_INFINITY;
        for (value, text) in &scale.ticks {
            let x = self.at_x(scale, *value);
            svg.line(
                (x, self.bottom),
                (x, self.bottom + 4.0),
                " stroke-opacity=\"0.6\"",
            );
            // Words that would run into those before are left out, and none leaves the chart.
            let half = width(text) / 2.0;
            let middle = x.min(self.right + 10.0 - half);
            if middle - half > free {
                svg.label(
                    (middle, self.bottom + 16.0),
                    Anchor::Middle,
                    style::MUTED_TEXT,
                    text,
                );
                free = middle + half + 6.0;
            }
        }
        self.x_label(svg, &axis.label);
    }

    /// Names the axis of x.
    pub(crate) fn x_label(&self, svg: &mut Svg, label: &str) {
        let label = fitted(label, self.right - self.left);
        let middle = f64::midpoint(self.left, self.right);
        svg.label(
            (middle, self.bottom + 31.0),
            Anchor::Middle,
            style::MUTED_TEXT,
            &label,
        );
    }

    /// Draws a line at a value of y, and its name.
    pub(crate) fn limit(&self, svg: &mut Svg, name: &str, y: f64) {
        let at = self.at_y(y);
        let limit = style::LIMIT;
        let line = format!("{limit} stroke-dasharray=\"5 3\"");
        svg.line((self.left, at), (self.right, at), &line);
        let name = fitted(name, self.right - self.left);
        // Above the line, unless that is where the room ends.
        let base = if at - self.top < 14.0 {
            at + 13.0
        } else {
            at - 4.0
        };
        let class = format!("{limit} fill=\"currentColor\"");
        svg.label((self.left + 4.0, base), Anchor::Start, &class, &name);
    }

    /// Draws a line at a value of x, and its name at this height.
    pub(crate) fn x_limit(&self, svg: &mut Svg, scale: &Scale, name: &str, x: f64, base: f64) {
        let at = self.at_x(scale, x);
        let limit = style::LIMIT;
        let line = format!("{limit} stroke-dasharray=\"5 3\"");
        svg.line((at, self.top), (at, self.bottom), &line);
        let name = fitted(name, self.right - self.left);
        let (x, anchor) = match at + 4.0 + width(&name) > self.right {
            true => (at - 4.0, Anchor::End),
            false => (at + 4.0, Anchor::Start),
        };
        let class = format!("{limit} fill=\"currentColor\"");
        svg.label((x, base), anchor, &class, &name);
    }

    /// About how many ticks the axis of x has room for.
    pub(crate) fn x_ticks(&self) -> f64 {
        (self.right - self.left) / 60.0
    }

    /// The unit of a value on a scale from left to right; what is outside is at the edge.
    pub(crate) fn at_x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + scale.share(value).clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// The unit of a value of y; what is outside is at the edge.
    pub(crate) fn at_y(&self, value: f64) -> f64 {
        self.bottom - self.y.share(value).clamp(0.0, 1.0) * (self.bottom - self.top)
    }
}
