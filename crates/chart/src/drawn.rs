//! What stands in a chart, read back.

use crate::svg::width;

/// A text, and about where it stands.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) y: f64,
    pub(crate) text: String,
}

/// The value of an element's attribute.
pub(crate) fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = element.split_once(&format!(" {name}=\""))?;
    value.split('"').next()
}

/// The same as a number.
pub(crate) fn number(element: &str, name: &str) -> f64 {
    attribute(element, name).unwrap().parse().unwrap()
}

/// All texts, in their order.
pub(crate) fn labels(svg: &str) -> Vec<Label> {
    let texts = svg.lines().filter(|line| line.starts_with("<text"));
    texts.map(label).collect()
}

fn label(element: &str) -> Label {
    let text = element.split(['>', '<']).nth(2).unwrap().to_owned();
    let (x, wide) = (number(element, "x"), width(&text));
    let left = match attribute(element, "text-anchor") {
        Some("middle") => x - wide / 2.0,
        Some("end") => x - wide,
        _ => x,
    };
    Label {
        left,
        right: left + wide,
        y: number(element, "y"),
        text,
    }
}

/// The one text of these words.
pub(crate) fn named(svg: &str, text: &str) -> Label {
    let mut found = labels(svg);
    found.retain(|label| label.text == text);
    assert_eq!(found.len(), 1, "{text}: {svg}");
    found.remove(0)
}

/// The paths of lines that are no straight ones, in their order.
pub(crate) fn curves(svg: &str) -> Vec<&str> {
    let curves = svg.lines().filter(|line| line.contains(" fill=\"none\""));
    curves.filter_map(|line| attribute(line, "d")).collect()
}

/// A rectangle: from where to where, and its tip.
#[derive(Debug)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    pub(crate) tip: String,
}

/// All rectangles, in their order.
pub(crate) fn rects(svg: &str) -> Vec<Rect> {
    let rects = svg.lines().filter(|line| line.starts_with("<rect"));
    let rect = |line| {
        let [x, y, w, h] = ["x", "y", "width", "height"].map(|name| number(line, name));
        Rect {
            left: x,
            right: x + w,
            top: y,
            bottom: y + h,
            tip: line.split(['>', '<']).nth(4).unwrap_or("").to_owned(),
        }
    };
    rects.map(rect).collect()
}
