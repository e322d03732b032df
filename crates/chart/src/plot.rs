//! Lines, steps and points over two numeric axes.

use crate::frame::{Frame, bounded};
use crate::legend::{Entry, Swatch};
use crate::mark::{self, Shape};
use crate::number::short;
use crate::scale::{Axis, Scale};
use crate::svg::{Svg, units};
use crate::{Chart, Size, style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draw {
    Line,
    Step,
    Points,
    Reference,
}

/// Points that belong together. What is no number is left out, and a line has a gap there.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    whiskers: Vec<(f64, f64)>,
    draw: Draw,
    markers: bool,
}

impl Series {
    fn new(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
        draw: Draw,
    ) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            whiskers: Vec::new(),
            draw,
            markers: matches!(draw, Draw::Line | Draw::Points),
        }
    }

    /// Points with a marker each, and lines between them.
    #[must_use]
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, points, Draw::Line)
    }

    /// A value holds until the next point: a CDF, or a count over time.
    #[must_use]
    pub fn step(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, points, Draw::Step)
    }

    /// Markers alone.
    #[must_use]
    pub fn points(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, points, Draw::Points)
    }

    /// A faint dashed line to compare others by, such as what was published or what would be ideal. It takes no colour
    /// from the others.
    #[must_use]
    pub fn reference(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self::new(name, points, Draw::Reference)
    }

    /// How far from each point the true value may be: lowest and highest, in the points' order.
    #[must_use]
    pub fn whiskers(mut self, ends: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.whiskers = ends.into_iter().collect();
        self
    }

    /// A line alone, for many points.
    #[must_use]
    pub const fn without_markers(mut self) -> Self {
        self.markers = false;
        self
    }
}

/// Several series over two axes.
#[derive(Clone, Debug)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    limits: Vec<(String, f64)>,
    x_limits: Vec<(String, f64)>,
    size: Size,
}

impl Plot {
    /// Without a series yet.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            series: Vec::new(),
            limits: Vec::new(),
            x_limits: Vec::new(),
            size: Size::default(),
        }
    }

    /// With one series more.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// With a horizontal line at a value of y, such as an SLO.
    #[must_use]
    pub fn limit(mut self, name: impl Into<String>, y: f64) -> Self {
        self.limits.push((name.into(), y));
        self
    }

    /// With a vertical line at a value of x.
    #[must_use]
    pub fn x_limit(mut self, name: impl Into<String>, x: f64) -> Self {
        self.x_limits.push((name.into(), x));
        self
    }

    fn xs(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let limits = self.x_limits.iter().map(|(_, x)| *x);
        points.map(|(x, _)| *x).chain(limits)
    }

    fn ys(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let ends = self.series.iter().flat_map(|series| &series.whiskers);
        let limits = self.limits.iter().map(|(_, y)| *y);
        points
            .map(|(_, y)| *y)
            .chain(ends.flat_map(|(low, high)| [*low, *high]))
            .chain(limits)
    }

    /// Each series with its number among those that have a colour.
    fn numbered(&self) -> impl Iterator<Item = (usize, &Series)> {
        let mut next = 0;
        self.series.iter().map(move |series| {
            let number = next;
            next += usize::from(series.draw != Draw::Reference);
            (number, series)
        })
    }

    fn legend(&self) -> Vec<Entry<'_>> {
        let entries = self.numbered().map(|(index, series)| Entry {
            name: &series.name,
            index,
            swatch: match series.draw {
                Draw::Reference => Swatch::Reference,
                _ => Swatch::Line {
                    marker: series.markers,
                },
            },
        });
        entries.collect()
    }
}

impl Chart for Plot {
    fn sized(mut self, size: Size) -> Self {
        self.size = bounded(size);
        self
    }

    fn svg(&self) -> String {
        let mut svg = Svg::new(self.size.width, self.size.height, &self.title);
        let frame = Frame::open(
            &mut svg,
            self.size,
            &self.title,
            &self.legend(),
            &self.y,
            self.ys(),
        );
        let x = self.x.fit(self.xs(), frame.x_ticks());
        frame.x_axis(&mut svg, &self.x, &x);
        let canvas = Canvas {
            frame: &frame,
            x: &x,
            axes: (&self.x, &self.y),
        };
        for (number, series) in self.numbered() {
            canvas.series(&mut svg, number, series);
        }
        for (name, y) in self.limits.iter().filter(|(_, y)| frame.y.holds(*y)) {
            frame.limit(&mut svg, name, *y);
        }
        for (name, at) in self.x_limits.iter().filter(|(_, at)| x.holds(*at)) {
            frame.x_limit(&mut svg, &x, name, *at, frame.bottom - 6.0);
        }
        svg.finish()
    }
}

struct Canvas<'a> {
    frame: &'a Frame,
    x: &'a Scale,
    axes: (&'a Axis, &'a Axis),
}

impl Canvas<'_> {
    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let shown = self.axes.0.shows(x) && self.axes.1.shows(y);
        shown.then(|| (self.frame.at_x(self.x, x), self.frame.at_y(y)))
    }

    fn series(&self, svg: &mut Svg, number: usize, series: &Series) {
        let places: Vec<_> = series
            .points
            .iter()
            .map(|point| self.place(*point))
            .collect();
        let (colour, dash, wide) = match series.draw {
            Draw::Reference => (
                style::MUTED.to_owned(),
                " stroke-dasharray=\"2 3\"".to_owned(),
                "1.5",
            ),
            _ => (style::series(number), style::dash(number), "2"),
        };
        svg.write(format_args!("<g{colour}>\n"));
        if series.draw != Draw::Points {
            let path = path(&places, series.draw == Draw::Step);
            svg.write(format_args!(
                "<path d=\"{path}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"{wide}\" \
                 stroke-linejoin=\"round\"{dash}/>\n"
            ));
        }
        for ((low, high), (x, _)) in series.whiskers.iter().zip(&series.points) {
            if let (Some(low), Some(high)) = (self.place((*x, *low)), self.place((*x, *high))) {
                whisker(svg, low, high);
            }
        }
        if series.markers {
            for (place, point) in places.iter().zip(&series.points) {
                if let Some(place) = place {
                    let (x, y) = (short(point.0, 4), short(point.1, 4));
                    let tip = format!("{}: {x}, {y}", series.name);
                    mark::draw(svg, Shape::of(number), *place, &tip);
                }
            }
        }
        svg.write(format_args!("</g>\n"));
    }
}

/// From place to place, straight or in steps, with a gap where there is none.
fn path(places: &[Option<(f64, f64)>], step: bool) -> String {
    let mut path = String::new();
    let mut drawing = false;
    for place in places {
        let Some((x, y)) = place else {
            drawing = false;
            continue;
        };
        let (x, y) = (units(*x), units(*y));
        path += &match (drawing, step) {
            (false, _) => format!("M{x} {y}"),
            (true, false) => format!("L{x} {y}"),
            (true, true) => format!("H{x}V{y}"),
        };
        drawing = true;
    }
    path
}

/// A line between two ends with a cap on each.
pub(crate) fn whisker(svg: &mut Svg, low: (f64, f64), high: (f64, f64)) {
    let x = units(low.0);
    let (left, right) = (units(low.0 - 4.0), units(low.0 + 4.0));
    let (low, high) = (units(low.1), units(high.1));
    svg.write(format_args!(
        "<path d=\"M{x} {low}V{high}M{left} {low}H{right}M{left} {high}H{right}\" stroke=\"currentColor\" \
         stroke-width=\"1.5\"/>\n"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        Plot::new("t", Axis::linear("x"), Axis::linear("y").to(10.0))
    }

    #[test]
    fn a_line_has_a_gap_where_there_is_no_number_and_steps_hold_a_value() {
        let points = [
            (0.0, 0.0),
            (1.0, 5.0),
            (2.0, f64::NAN),
            (3.0, 5.0),
            (4.0, 10.0),
        ];
        let line = plot().series(Series::line("a", points)).svg();
        let path = line
            .lines()
            .find(|line| line.contains("fill=\"none\""))
            .unwrap();
        assert_eq!(
            (path.matches('M').count(), path.matches('L').count()),
            (2, 2),
            "{path}"
        );
        assert_eq!(line.matches("<title>").count(), 4);
        let step = plot().series(Series::step("a", points)).svg();
        let path = step
            .lines()
            .find(|line| line.contains("fill=\"none\""))
            .unwrap();
        assert_eq!(
            (path.matches('H').count(), path.matches('V').count()),
            (2, 2),
            "{path}"
        );
    }

    #[test]
    fn a_logarithmic_axis_leaves_out_what_it_cannot_show() {
        let plot = Plot::new("t", Axis::log("x"), Axis::log("y"));
        let svg = plot
            .series(Series::line("a", [(0.0, 1.0), (1.0, -1.0), (10.0, 10.0)]))
            .svg();
        assert_eq!(svg.matches("<title>").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn limits_and_whiskers_widen_the_axes() {
        let svg = Plot::new("t", Axis::linear("x"), Axis::linear("y"))
            .series(Series::line("a", [(1.0, 2.0)]).whiskers([(1.0, 30.0)]))
            .limit("SLO", 90.0)
            .x_limit("now", 4.0)
            .svg();
        assert!(
            svg.contains(">SLO</text>") && svg.contains(">now</text>"),
            "{svg}"
        );
        assert!(svg.contains(">100</text>"), "{svg}");
    }

    #[test]
    fn a_step_holds_its_value_until_the_next_point() {
        let svg = plot()
            .series(Series::step("a", [(0.0, 0.0), (1.0, 10.0)]))
            .svg();
        let path = crate::drawn::curves(&svg)[0];
        let (across, up) = (path.find('H').unwrap(), path.find('V').unwrap());
        assert!(across < up, "first to the right, then up: {path}");
    }

    #[test]
    fn a_whisker_goes_from_its_lowest_to_its_highest_with_a_cap_on_each() {
        let x = Axis::linear("x").from(0.5).to(1.5);
        let svg = Plot::new("t", x, Axis::linear("y").to(10.0))
            .series(Series::line("a", [(1.0, 5.0)]).whiskers([(2.0, 9.0)]))
            .svg();
        let whisker = svg.lines().find(|line| line.contains("\"1.5\"")).unwrap();
        let path = crate::drawn::attribute(whisker, "d").unwrap();
        let numbers = path.split(['M', 'V', 'H', ' ']).filter(|n| !n.is_empty());
        let n: Vec<f64> = numbers.map(|n| n.parse().unwrap()).collect();
        let [
            x,
            low,
            high,
            left,
            low_cap,
            right,
            left_too,
            high_cap,
            right_too,
        ] = n[..]
        else {
            panic!("{path}");
        };
        // Seven of ten parts of the height.
        let (bottom, top) = (
            crate::drawn::named(&svg, "0").y,
            crate::drawn::named(&svg, "10").y,
        );
        let share = (low - high) / (bottom - top);
        assert!((share - 0.7).abs() < 0.01, "{share}");
        assert_eq!((low, high), (low_cap, high_cap));
        assert_eq!((left, right), (left_too, right_too));
        assert!(left < x && x < right);
    }

    #[test]
    fn a_reference_takes_no_colour_and_a_limit_beyond_a_given_end_is_not_drawn() {
        let svg = plot()
            .series(Series::reference("r", [(1.0, 5.0)]))
            .series(Series::line("a", [(1.0, 5.0)]))
            .series(Series::line("b", [(1.0, 5.0)]))
            .limit("within", 10.0)
            .limit("beyond", 20.0)
            .svg();
        let colours: Vec<&str> = svg
            .lines()
            .filter(|line| line.starts_with("<g"))
            .filter_map(|line| crate::drawn::attribute(line, "class"))
            .collect();
        // The two of the legend, then the three of the plot.
        assert_eq!(colours, ["s0", "s1", "muted", "s0", "s1"]);
        assert!(svg.contains(">within<") && !svg.contains(">beyond<"));
    }

    #[test]
    fn all_words_are_escaped_and_equal_data_gives_equal_text() {
        let hostile = "</text><script>alert(1)</script>\" onload='x";
        let make = || {
            Plot::new(hostile, Axis::linear(hostile), Axis::linear(hostile))
                .series(Series::line(hostile, [(1.0, 1.0)]))
                .series(Series::reference(hostile, [(1.0, 1.0)]))
                .limit(hostile, 1.0)
                .x_limit(hostile, 1.0)
                .sized(Size {
                    width: 2000.0,
                    height: 300.0,
                })
        };
        let svg = make().svg();
        assert!(
            !svg.contains("<script") && !svg.contains("\" onload"),
            "{svg}"
        );
        assert!(svg.contains("&lt;script&gt;"), "{svg}");
        assert_eq!(svg, make().svg());
        assert!(!svg.contains("style="), "{svg}");
    }

    #[test]
    fn what_is_outside_of_given_ends_is_drawn_at_the_edge() {
        let axis = Axis::linear("y").to(10.0);
        let plot = Plot::new("t", Axis::linear("x"), axis)
            .series(Series::line("a", [(0.0, 5.0), (1.0, 1e9)]));
        let svg = plot.svg();
        // The upper edge, right of everything.
        let top = svg
            .lines()
            .find(|line| line.contains("fill=\"none\""))
            .unwrap();
        assert!(top.contains("L406 67\""), "{svg}");
    }
}
