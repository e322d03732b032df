//! A title, and under it which series is which.

use crate::mark::{self, Shape};
use crate::style;
use crate::svg::{Anchor, Svg, fitted, width};

/// How a series is told from others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Swatch {
    /// A line of its dash, with its marker or without.
    Line { marker: bool },
    /// A filled square.
    Fill,
    /// A line to compare by.
    Reference,
}

/// A series' line in the legend.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    /// Its place among the series.
    pub(crate) index: usize,
    pub(crate) swatch: Swatch,
}

/// Units of a swatch and of the space around it.
const SWATCH: f64 = 22.0;
const GAP: f64 = 5.0;
const APART: f64 = 14.0;
const LINE: f64 = 17.0;
pub(crate) const MARGIN: f64 = 10.0;

/// Draws both, and says below what they end.
pub(crate) fn heading(svg: &mut Svg, across: f64, title: &str, entries: &[Entry<'_>]) -> f64 {
    let room = across - 2.0 * MARGIN;
    let mut y = 18.0;
    // Its letters are a sixth larger, and bold.
    let title = fitted(title, room / 1.25);
    svg.label(
        (MARGIN, y),
        Anchor::Start,
        " font-size=\"14\" font-weight=\"600\"",
        &title,
    );
    let named: Vec<_> = entries
        .iter()
        .filter(|entry| !entry.name.is_empty())
        .collect();
    if named.is_empty() {
        return y + 6.0;
    }
    y += LINE + 2.0;
    let mut x = MARGIN;
    for entry in named {
        let name = fitted(entry.name, room - SWATCH - GAP);
        let wide = SWATCH + GAP + width(&name);
        if x > MARGIN && x + wide > MARGIN + room {
            x = MARGIN;
            y += LINE;
        }
        swatch(svg, x, y - 4.0, entry);
        svg.label((x + SWATCH + GAP, y), Anchor::Start, "", &name);
        x += wide + APART;
    }
    y + 6.0
}

fn swatch(svg: &mut Svg, x: f64, y: f64, entry: &Entry<'_>) {
    let colour = style::series(entry.index);
    match entry.swatch {
        Swatch::Line { marker } => {
            svg.write(format_args!("<g{colour}>\n"));
            let dash = style::dash(entry.index);
            svg.line(
                (x, y),
                (x + SWATCH, y),
                &format!(" stroke-width=\"2\"{dash}"),
            );
            if marker {
                mark::draw(svg, Shape::of(entry.index), (x + SWATCH / 2.0, y), "");
            }
            svg.write(format_args!("</g>\n"));
        }
        Swatch::Fill => {
            let opacity = style::opacity(entry.index);
            let attributes = format!("{colour} fill=\"currentColor\" fill-opacity=\"{opacity}\"");
            svg.rect(
                (x + 6.0, y - 5.0),
                (x + SWATCH, y + 5.0),
                &attributes,
                entry.name,
            );
        }
        Swatch::Reference => {
            let muted = style::MUTED;
            svg.line(
                (x, y),
                (x + SWATCH, y),
                &format!("{muted} stroke-dasharray=\"2 3\""),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::drawn::labels;
    use crate::{Axis, Chart, Plot, Series};

    #[test]
    fn a_legend_goes_on_in_another_line_and_cuts_what_no_line_has_room_for() {
        let plot = Plot::new("t", Axis::linear(""), Axis::linear(""));
        let names = [
            "first series",
            "second series",
            "third series",
            "fourth series",
            "fifth series",
            "a name that is so long that no chart of such a width could ever have a line for all of it",
        ];
        let series = names.map(|name| Series::line(name, [(0.0, 1.0)]));
        let svg = series.into_iter().fold(plot, Plot::series).svg();
        let named: Vec<_> = labels(&svg)
            .into_iter()
            .filter(|label| label.text.contains("series") || label.text.ends_with('…'))
            .collect();
        assert_eq!(named.len(), 6, "{named:?}");
        assert!(named.iter().all(|label| label.right <= 410.0), "{named:?}");
        for pair in named.windows(2) {
            let beside = pair[1].left > pair[0].right && pair[1].y == pair[0].y;
            assert!(beside || pair[1].y > pair[0].y + 12.0, "{pair:?}");
        }
        assert!(named[1].y == named[0].y && named[4].y > named[0].y);
    }
}
