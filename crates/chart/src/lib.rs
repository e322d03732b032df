//! Charts as SVG text: lines and steps ([`Plot`]), bars ([`Bars`]), columns over time ([`Stack`]), segments from left
//! to right ([`Waterfall`]). Pure: data in, text out, equal data gives equal text.
//!
//! ```
//! use tandem_chart::{Axis, Chart, Plot, Series};
//!
//! let plot = Plot::new("TTFT by rate", Axis::linear("requests/s"), Axis::log("ms"))
//!     .series(Series::line("p50", [(1.0, 50.0), (2.0, 52.0), (4.0, 80.0)]))
//!     .series(Series::line("p99", [(1.0, 61.0), (2.0, 90.0), (4.0, 900.0)]).whiskers([(60.0, 63.0), (80.0, 97.0), (700.0, 1200.0)]))
//!     .limit("SLO 200 ms", 200.0);
//! let for_a_page = plot.svg(); // an element; the page holds `tandem_chart::STYLE` in a <style>
//! let for_a_file = plot.file(); // a document of its own, style and background included
//! assert!(for_a_page.starts_with("<svg") && for_a_file.contains("prefers-color-scheme: dark"));
//! ```
//!
//! What must hold: all text is escaped ([`escape`]) and stays text; colours follow the reader's light or dark scheme,
//! and without any style sheet they are those for a light page; series differ by dash and marker as well as by colour;
//! there is no script, no `style` attribute and nothing from elsewhere, so that a page of charts works under a strict
//! content security policy; what is no number or beyond 10¹⁵ is left out, as is what a logarithmic axis cannot show. It refuses to
//! thin out: who has more points than a reader can see (some thousands) picks some.
//!
//! Why not a crate: `plotters` draws fixed colours, estimates text by one font and has no dark scheme; `charming` needs
//! a script; `kuva` has what is needed and 90,000 lines, but each colour is fixed too. `poloto` can be styled, without
//! bars, whiskers and waterfalls.
//!
//! A chart is 420 units wide by default, in which letters have 12: on a phone it fills the screen and is readable, on
//! a wide page several stand side by side. [`Chart::sized`] makes others.
#![forbid(unsafe_code)]

mod bars;
#[cfg(test)]
mod drawn;
mod frame;
mod legend;
mod mark;
mod number;
mod plot;
mod scale;
mod stack;
mod style;
mod svg;
mod waterfall;

pub use bars::{Bar, Bars};
pub use number::short;
pub use plot::{Plot, Series};
pub use scale::Axis;
pub use stack::Stack;
pub use style::STYLE;
pub use svg::escape;
pub use waterfall::{Row, Segment, Waterfall};

/// Units of a chart's sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// From left to right; 240 at least.
    pub width: f64,
    /// From top to bottom; 120 at least.
    pub height: f64,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            width: 420.0,
            height: 290.0,
        }
    }
}

/// What can be drawn.
pub trait Chart: Sized {
    /// With these sides. The height of a [`Waterfall`] follows from its rows.
    #[must_use]
    fn sized(self, size: Size) -> Self;

    /// An `<svg>` element to stand in an HTML page that has [`STYLE`] in a `<style>` element.
    #[must_use]
    fn svg(&self) -> String;

    /// A document of its own: for a file, or for an `<img>`.
    #[must_use]
    fn file(&self) -> String {
        style::document(&self.svg())
    }
}
