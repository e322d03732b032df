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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{attribute, curves, labels, named};
    use crate::{Chart, Plot, Series};

    fn small(plot: &Plot) -> String {
        let plot = plot.clone().sized(Size {
            width: 240.0,
            height: 120.0,
        });
        plot.svg()
    }

    #[test]
    fn words_of_ticks_do_not_run_into_each_other_nor_out_of_the_chart() {
        let points = [(1.0, 1.0), (1e3, 1e3)];
        let plot = Plot::new("", Axis::log(""), Axis::log("")).series(Series::line("", points));
        let wide = Plot::new(
            "",
            Axis::linear("").from(100_000.0).to(100_004.0),
            Axis::linear("").from(1e6).to(1_000_004.0),
        );
        for plot in [plot, wide] {
            let svg = small(&plot);
            let all = labels(&svg);
            let words: Vec<_> = all.iter().filter(|label| !label.text.is_empty()).collect();
            assert!(words.len() >= 4, "{words:?}");
            for (i, a) in words.iter().enumerate() {
                assert!(a.left >= 0.0 && a.right <= 240.0, "{a:?}");
                for b in &words[i + 1..] {
                    let beside = a.right <= b.left || b.right <= a.left;
                    assert!(beside || (a.y - b.y).abs() >= FONT, "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn a_limits_name_stands_above_its_line_or_below_it_at_the_upper_end() {
        let plot = |y: f64| {
            let plot = Plot::new("", Axis::linear("").to(1.0), Axis::linear("").to(10.0));
            plot.limit("SLO", y).svg()
        };
        let places = |svg: &str| {
            let line = svg.lines().find(|line| line.contains("5 3")).unwrap();
            let path = attribute(line, "d").unwrap();
            let y = path.split([' ', 'L']).nth(1).unwrap();
            (y.parse::<f64>().unwrap(), named(svg, "SLO").y)
        };
        let (line, name) = places(&plot(5.0));
        assert!(name < line, "{name} {line}");
        let (line, name) = places(&plot(10.0));
        assert!(
            name - FONT > line,
            "it would run into what is above: {name} {line}"
        );
    }

    #[test]
    fn an_upright_limits_name_stands_on_the_side_that_has_room() {
        let plot = |x: f64| {
            let plot = Plot::new("", Axis::linear("").to(10.0), Axis::linear("").to(1.0));
            plot.x_limit("a rather long name", x).svg()
        };
        for x in [0.0, 5.0, 9.0, 10.0] {
            let name = named(&plot(x), "a rather long name");
            assert!(name.left >= 0.0 && name.right <= 420.0, "{x}: {name:?}");
        }
    }

    #[test]
    fn what_is_right_of_a_given_end_is_drawn_at_the_edge() {
        let axis = Axis::linear("").to(10.0);
        let points = [(0.0, 0.0), (1e6, 1.0)];
        let svg = Plot::new("", axis, Axis::linear(""))
            .series(Series::line("", points))
            .svg();
        let curve = curves(&svg)[0];
        let x: f64 = curve.split(['L', ' ']).nth(2).unwrap().parse().unwrap();
        assert_eq!(x, 406.0, "{curve}");
    }

    #[test]
    fn a_legend_that_takes_all_room_leaves_some_to_the_data() {
        let plot = Plot::new("", Axis::linear(""), Axis::linear(""));
        let named = |i: u32| Series::points(format!("a series of number {i}"), [(0.0, 5.0)]);
        let svg = small(&(0..12).map(named).fold(plot, Plot::series));
        let ticks = svg.lines().filter(|line| line.contains("\"0.15\""));
        let ys: Vec<f64> = ticks
            .map(|line| {
                let path = attribute(line, "d").unwrap();
                path.split([' ', 'L']).nth(1).unwrap().parse().unwrap()
            })
            .collect();
        let (first, last) = (ys[0], ys[ys.len() - 1]);
        assert!(first - last >= 39.0, "from the least up: {ys:?}");
    }
}
