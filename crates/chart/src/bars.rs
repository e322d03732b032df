//! Bars side by side in groups, or on top of each other.

use crate::frame::{Frame, bounded};
use crate::legend::{Entry, Swatch};
use crate::number::short;
use crate::plot::whisker;
use crate::scale::Axis;
use crate::svg::{Anchor, Svg, fitted};
use crate::{Chart, Size, style};

/// One bar.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    value: f64,
    ends: Option<(f64, f64)>,
}

impl Bar {
    /// From 0 to here.
    #[must_use]
    pub const fn new(value: f64) -> Self {
        Self { value, ends: None }
    }

    /// With a whisker between these; not drawn in stacked bars.
    #[must_use]
    pub const fn whisker(mut self, low: f64, high: f64) -> Self {
        self.ends = Some((low, high));
        self
    }
}

impl From<f64> for Bar {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

/// Groups of bars, one bar for each series. Bars begin at 0, so the axis is a linear one.
#[derive(Clone, Debug)]
pub struct Bars {
    title: String,
    x_label: String,
    y: Axis,
    series: Vec<String>,
    groups: Vec<(String, Vec<Bar>)>,
    limits: Vec<(String, f64)>,
    stacked: bool,
    size: Size,
}

impl Bars {
    /// With the names of the series; the label of x says what the groups are.
    #[must_use]
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        x_label: impl Into<String>,
        y: Axis,
        series: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            title: title.into(),
            x_label: x_label.into(),
            y,
            series: series.into_iter().map(Into::into).collect(),
            groups: Vec::new(),
            limits: Vec::new(),
            stacked: false,
            size: Size::default(),
        }
    }

    /// With one group more; its bars in the order of the series.
    #[must_use]
    pub fn group<B: Into<Bar>>(
        mut self,
        name: impl Into<String>,
        bars: impl IntoIterator<Item = B>,
    ) -> Self {
        self.groups
            .push((name.into(), bars.into_iter().map(Into::into).collect()));
        self
    }

    /// With a horizontal line at a value.
    #[must_use]
    pub fn limit(mut self, name: impl Into<String>, y: f64) -> Self {
        self.limits.push((name.into(), y));
        self
    }

    /// A group's bars on top of each other; those below 0 are left out.
    #[must_use]
    pub const fn stacked(mut self) -> Self {
        self.stacked = true;
        self
    }

    fn values(&self) -> Vec<f64> {
        let mut values = vec![0.0];
        values.extend(self.limits.iter().map(|(_, y)| *y));
        for (_, bars) in &self.groups {
            if self.stacked {
                values.push(bars.iter().map(|bar| positive(bar.value)).sum());
                continue;
            }
            for bar in bars {
                values.push(bar.value);
                values.extend(bar.ends.iter().flat_map(|(low, high)| [*low, *high]));
            }
        }
        values
    }

    fn group_of(
        &self,
        svg: &mut Svg,
        frame: &Frame,
        at: f64,
        across: f64,
        group: &(String, Vec<Bar>),
    ) {
        let each = match self.stacked {
            true => across,
            false => across / self.series.len().max(1) as f64,
        };
        let mut below = 0.0;
        for (i, (bar, series)) in group.1.iter().zip(&self.series).enumerate() {
            if !self.y.shows(bar.value) {
                continue;
            }
            let (left, from, to) = match self.stacked {
                true => (at, below, below + positive(bar.value)),
                false => (at + i as f64 * each, 0.0, bar.value),
            };
            below = to;
            let colour = style::series(i);
            let opacity = style::opacity(i);
            let tip = format!("{}, {series}: {}", group.0, short(bar.value, 4));
            let attributes = format!("{colour} fill=\"currentColor\" fill-opacity=\"{opacity}\"");
            let corners = (
                (left + 1.0, frame.at_y(from)),
                (left + each - 1.0, frame.at_y(to)),
            );
            svg.rect(corners.0, corners.1, &attributes, &tip);
            if let Some((low, high)) = bar
                .ends
                .filter(|(l, h)| !self.stacked && l.is_finite() && h.is_finite())
            {
                let middle = left + each / 2.0;
                whisker(svg, (middle, frame.at_y(low)), (middle, frame.at_y(high)));
            }
        }
    }
}

fn positive(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}

impl Chart for Bars {
    fn sized(mut self, size: Size) -> Self {
        self.size = bounded(size);
        self
    }

    fn svg(&self) -> String {
        let mut svg = Svg::new(self.size.width, self.size.height, &self.title);
        let entries = self.series.iter().enumerate();
        let entries = entries.map(|(index, name)| Entry {
            name,
            index,
            swatch: Swatch::Fill,
        });
        let legend: Vec<_> = entries.collect();
        let frame = Frame::open(
            &mut svg,
            self.size,
            &self.title,
            &legend,
            &self.y,
            self.values().into_iter(),
        );
        let across = (frame.right - frame.left) / self.groups.len().max(1) as f64;
        for (i, group) in self.groups.iter().enumerate() {
            let at = frame.left + i as f64 * across;
            self.group_of(&mut svg, &frame, at + across * 0.12, across * 0.76, group);
            let name = fitted(&group.0, across - 2.0);
            let middle = at + across / 2.0;
            svg.label(
                (middle, frame.bottom + 16.0),
                Anchor::Middle,
                style::MUTED_TEXT,
                &name,
            );
        }
        let base = frame.at_y(0.0);
        svg.line(
            (frame.left, base),
            (frame.right, base),
            " stroke-opacity=\"0.6\"",
        );
        frame.x_label(&mut svg, &self.x_label);
        for (name, y) in self.limits.iter().filter(|(_, y)| frame.y.holds(*y)) {
            frame.limit(&mut svg, name, *y);
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::Rect;

    fn heights(svg: &str) -> Vec<f64> {
        let bars = svg
            .lines()
            .filter(|line| line.starts_with("<rect") && line.contains(", "));
        let height = |line: &str| {
            line.split("height=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse()
                .ok()
        };
        bars.filter_map(height).collect()
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let bars = Bars::new("t", "g", Axis::linear("ms"), ["a", "b"])
            .group("1", [10.0, 20.0])
            .group("2", [f64::NAN, 5.0]);
        let found = heights(&bars.svg());
        assert_eq!(found.len(), 3);
        assert!(
            (found[1] / found[0] - 2.0).abs() < 0.01 && (found[0] / found[2] - 2.0).abs() < 0.01,
            "{found:?}"
        );
        let bars = Bars::new("t", "g", Axis::linear("ms"), ["a", "b"])
            .stacked()
            .group("1", [10.0, 30.0]);
        let found = heights(&bars.svg());
        assert!((found[1] / found[0] - 3.0).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn bars_stand_beside_each_other_or_on_each_other() {
        let bars = Bars::new("t", "g", Axis::linear("ms"), ["a", "b"]).group("1", [10.0, 30.0]);
        let [a, b] = data(&bars.svg());
        assert!(a.right < b.left, "beside: {a:?} {b:?}");
        assert_eq!(a.bottom, b.bottom, "on the same ground");
        let [a, b] = data(&bars.stacked().svg());
        let column = (a.left, a.right) == (b.left, b.right);
        assert!(column, "in one column: {a:?} {b:?}");
        assert!((b.bottom - a.top).abs() < 0.11, "on its end: {a:?} {b:?}");
    }

    /// The two bars of the only group.
    fn data(svg: &str) -> [Rect; 2] {
        let mut bars = crate::drawn::rects(svg);
        bars.retain(|bar| bar.tip.contains(", "));
        bars.try_into().unwrap()
    }

    #[test]
    fn whiskers_limits_and_bars_below_nothing_fit() {
        let bars = Bars::new("t", "g", Axis::linear("%"), ["a"])
            .group("1", [Bar::new(-10.0).whisker(-20.0, 5.0)])
            .group("<b>", [Bar::new(3.0)])
            .limit("none", 0.0);
        let svg = bars.svg();
        assert!(
            svg.contains(">-20</text>") && svg.contains(">&lt;b&gt;</text>"),
            "{svg}"
        );
        assert!(
            Bars::new("t", "g", Axis::linear(""), [""; 0])
                .svg()
                .ends_with("</svg>\n")
        );
    }
}
