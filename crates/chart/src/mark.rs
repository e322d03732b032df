//! Markers of points.

use crate::svg::{Svg, escape, units};

/// How a point looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Wedge,
}

impl Shape {
    /// That of series number `i`.
    pub(crate) const fn of(i: usize) -> Self {
        match i % 6 {
            0 => Self::Circle,
            1 => Self::Square,
            2 => Self::Triangle,
            3 => Self::Diamond,
            4 => Self::Cross,
            _ => Self::Wedge,
        }
    }

    /// Its outline around a place.
    fn path(self, (x, y): (f64, f64)) -> String {
        let corners = |offsets: &[(f64, f64)]| {
            let places = offsets
                .iter()
                .map(|(dx, dy)| format!("{} {}", units(x + dx), units(y + dy)));
            format!("M{}Z", places.collect::<Vec<_>>().join("L"))
        };
        match self {
            Self::Circle => {
                let (left, y) = (units(x - 3.2), units(y));
                format!("M{left} {y}a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0Z")
            }
            Self::Square => corners(&[(-3.0, -3.0), (3.0, -3.0), (3.0, 3.0), (-3.0, 3.0)]),
            Self::Triangle => corners(&[(0.0, -4.0), (3.8, 3.0), (-3.8, 3.0)]),
            Self::Diamond => corners(&[(0.0, -4.2), (4.2, 0.0), (0.0, 4.2), (-4.2, 0.0)]),
            Self::Cross => corners(&[
                (-1.2, -4.0),
                (1.2, -4.0),
                (1.2, -1.2),
                (4.0, -1.2),
                (4.0, 1.2),
                (1.2, 1.2),
                (1.2, 4.0),
                (-1.2, 4.0),
                (-1.2, 1.2),
                (-4.0, 1.2),
                (-4.0, -1.2),
                (-1.2, -1.2),
            ]),
            Self::Wedge => corners(&[(0.0, 4.0), (3.8, -3.0), (-3.8, -3.0)]),
        }
    }
}

/// Draws one in its group's colour; a tip that is not empty shows where a pointer rests on it.
pub(crate) fn draw(svg: &mut Svg, shape: Shape, at: (f64, f64), tip: &str) {
    let path = shape.path(at);
    match tip {
        "" => svg.write(format_args!("<path d=\"{path}\"/>\n")),
        tip => {
            let tip = escape(tip);
            svg.write(format_args!(
                "<path d=\"{path}\"><title>{tip}</title></path>\n"
            ));
        }
    }
}
