//! Columns on top of each other over an axis of time.

use crate::frame::{Frame, bounded};
use crate::legend::{Entry, Swatch};
use crate::number::short;
use crate::scale::Axis;
use crate::svg::{Svg, units};
use crate::{Chart, Size, style};

/// Layers of counts over equal steps of x: what was under way each second.
#[derive(Clone, Debug)]
pub struct Stack {
    title: String,
    x: Axis,
    y: Axis,
    first: f64,
    step: f64,
    layers: Vec<(String, Vec<f64>)>,
    outlines: Vec<(String, Vec<f64>)>,
    size: Size,
}

impl Stack {
    /// Steps as wide as `step` from `first` on; both axes are linear ones.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, first: f64, step: f64) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            first,
            step: if step.is_finite() && step > 0.0 {
                step
            } else {
                1.0
            },
            layers: Vec::new(),
            outlines: Vec::new(),
            size: Size::default(),
        }
    }

    /// With a layer on top of those before: a value for each step. Those below 0 count as 0.
    #[must_use]
    pub fn layer(mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        self.layers
            .push((name.into(), values.into_iter().collect()));
        self
    }

    /// With a line of steps over the layers, to compare them by.
    #[must_use]
    pub fn outline(
        mut self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        self.outlines
            .push((name.into(), values.into_iter().collect()));
        self
    }

    fn steps(&self) -> usize {
        let all = self.layers.iter().chain(&self.outlines);
        all.map(|(_, values)| values.len()).max().unwrap_or(0)
    }

    fn at(&self, step: usize) -> f64 {
        self.first + step as f64 * self.step
    }
}

/// The edge of steps as a path: from left to right, holding each value for its step.
fn edge(xs: &[f64], ys: &[f64]) -> String {
    let mut path = String::new();
    let mut last = None;
    for (i, y) in ys.iter().enumerate() {
        let y = units(*y);
        if last.as_ref() != Some(&y) {
            let x = units(xs[i]);
            path += &match i {
                0 => format!("{x} {y}"),
                _ => format!("H{x}V{y}"),
            };
        }
        last = Some(y);
    }
    path + &format!("H{}", units(xs[ys.len()]))
}

impl Chart for Stack {
    fn sized(mut self, size: Size) -> Self {
        self.size = bounded(size);
        self
    }

    fn svg(&self) -> String {
        let mut svg = Svg::new(self.size.width, self.size.height, &self.title);
        let count = self.layers.len();
        let named = self.layers.iter().chain(&self.outlines).enumerate();
        let legend: Vec<_> = named
            .map(|(index, (name, _))| {
                let swatch = if index < count {
                    Swatch::Fill
                } else {
                    Swatch::Line { marker: false }
                };
                Entry {
                    name,
                    index,
                    swatch,
                }
            })
            .collect();
        let steps = self.steps();
        let tops = tops(&self.layers, steps);
        let lines = self
            .outlines
            .iter()
            .flat_map(|(_, values)| values.iter().copied());
        let all = tops.last().into_iter().flatten().copied().chain(lines);
        let frame = Frame::open(&mut svg, self.size, &self.title, &legend, &self.y, all);
        let ends = [self.first, self.at(steps.max(1))];
        let x = self
            .x
            .clone()
            .from(ends[0])
            .to(ends[1])
            .fit(ends.into_iter(), frame.x_ticks());
        if steps > 0 {
            let xs: Vec<f64> = (0..=steps)
                .map(|step| frame.at_x(&x, self.at(step)))
                .collect();
            self.draw(&mut svg, &frame, &xs, &tops);
        }
        frame.x_axis(&mut svg, &self.x, &x);
        svg.finish()
    }
}

impl Stack {
    fn draw(&self, svg: &mut Svg, frame: &Frame, xs: &[f64], tops: &[Vec<f64>]) {
        // From the highest down to the base; each is drawn to the base of its own layer.
        let base = vec![0.0; xs.len() - 1];
        for (i, (name, values)) in self.layers.iter().enumerate() {
            let low = if i == 0 { &base } else { &tops[i - 1] };
            let ys =
                |values: &[f64]| -> Vec<f64> { values.iter().map(|y| frame.at_y(*y)).collect() };
            let upper = edge(xs, &ys(&tops[i]));
            // Back along the lower edge, as steps from right to left.
            let backwards: String = ys(low)
                .iter()
                .enumerate()
                .rev()
                .map(|(step, y)| format!("V{}H{}", units(*y), units(xs[step])))
                .collect();
            let (colour, opacity) = (style::series(i), style::opacity(i));
            let most = values.iter().copied().fold(0.0, f64::max);
            let tip = crate::escape(name).into_owned();
            let most = short(most, 4);
            svg.write(format_args!(
                "<path d=\"M{upper}{backwards}Z\"{colour} fill=\"currentColor\" fill-opacity=\"{opacity}\">\
                 <title>{tip}: {most} at most</title></path>\n"
            ));
        }
        for (i, (_, values)) in self.outlines.iter().enumerate() {
            let number = self.layers.len() + i;
            let shown = values
                .iter()
                .map(|y| frame.at_y(if y.is_finite() { *y } else { 0.0 }));
            let path = edge(xs, &shown.collect::<Vec<_>>());
            let colour = style::series(number);
            let dash = style::dash(number);
            svg.write(format_args!(
                "<path d=\"M{path}\"{colour} fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"{dash}/>\n"
            ));
        }
    }
}

/// The upper edge of each layer on top of those before.
fn tops(layers: &[(String, Vec<f64>)], steps: usize) -> Vec<Vec<f64>> {
    let mut below = vec![0.0; steps];
    let mut tops = Vec::new();
    for (_, values) in layers {
        for (sum, value) in below.iter_mut().zip(values) {
            *sum += if value.is_finite() {
                value.max(0.0)
            } else {
                0.0
            };
        }
        tops.push(below.clone());
    }
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack() -> Stack {
        Stack::new("t", Axis::linear("s"), Axis::linear("requests"), 0.0, 1.0)
    }

    #[test]
    fn layers_lie_on_each_other() {
        let layers = [
            ("a".to_owned(), vec![1.0, 2.0]),
            ("b".to_owned(), vec![3.0, f64::NAN]),
        ];
        assert_eq!(tops(&layers, 2), [[1.0, 2.0], [4.0, 2.0]]);
        let svg = stack()
            .layer("a", [1.0, 2.0])
            .layer("b", [3.0, 0.0])
            .outline("c", [4.0, 4.0])
            .svg();
        assert!(svg.contains(">4</text>"), "{svg}");
        assert_eq!(
            svg.matches("<path d=\"M").count() - svg.matches("stroke-opacity").count(),
            4,
            "{svg}"
        );
    }

    #[test]
    fn a_layer_begins_where_the_one_below_it_ends() {
        let svg = stack().layer("a", [1.0, 1.0]).layer("b", [1.0, 1.0]).svg();
        let areas = svg.lines().filter(|line| line.contains("fill-opacity"));
        let areas: Vec<&str> = areas
            .filter(|line| line.contains("at most"))
            .filter_map(|line| crate::drawn::attribute(line, "d"))
            .collect();
        // M x top H right, V base H middle, V base H left, Z.
        let heights = |area: &str| {
            let begin = area.split([' ', 'H']).nth(1).unwrap().to_owned();
            let base = area.split(['V', 'H']).nth(2).unwrap().to_owned();
            [begin, base].map(|y| y.parse::<f64>().unwrap())
        };
        let [lower, upper] = areas[..] else {
            panic!("{svg}");
        };
        let ([lower_top, ground], [upper_top, upper_base]) = (heights(lower), heights(upper));
        assert_eq!(upper_base, lower_top);
        let each = ground - lower_top;
        assert!(
            (lower_top - upper_top - each).abs() < 0.2 && each > 10.0,
            "{svg}"
        );
    }

    #[test]
    fn an_outline_shorter_or_longer_than_the_layers_and_nothing_at_all_are_fine() {
        for svg in [
            stack()
                .layer("a", [1.0, 2.0, 3.0])
                .outline("b", [1.0])
                .svg(),
            stack()
                .layer("a", [1.0])
                .outline("b", [1.0, 2.0, 3.0])
                .svg(),
            stack().layer("<", []).svg(),
        ] {
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn equal_steps_in_a_row_take_no_room() {
        assert_eq!(edge(&[0.0, 1.0, 2.0, 3.0], &[5.0, 5.0, 6.0]), "0 5H2V6H3");
    }
}
