//! Colours, dashes and markers. Colours stand in a style sheet by class, for light and dark, and those for light also
//! as presentation attributes, for viewers that read no style sheet.

/// The style sheet of a page with charts. It names `.chart` only.
pub const STYLE: &str = "\
.chart { display: block; width: 100%; height: auto; color: #1f2328; }
.chart .paper { fill: #ffffff; }
.chart .muted { color: #59636e; fill: #59636e; }
.chart .limit { color: #b3261e; }
.chart .s0 { color: #0065a3; }
.chart .s1 { color: #c44e00; }
.chart .s2 { color: #00795a; }
.chart .s3 { color: #a8407f; }
.chart .s4 { color: #8a6100; }
.chart .s5 { color: #5c54c9; }
@media (prefers-color-scheme: dark) {
.chart { color: #e6edf3; }
.chart .paper { fill: #0d1117; }
.chart .muted { color: #9da7b3; fill: #9da7b3; }
.chart .limit { color: #ff8b82; }
.chart .s0 { color: #58b4f0; }
.chart .s1 { color: #ff8f47; }
.chart .s2 { color: #35c99c; }
.chart .s3 { color: #ee8fc6; }
.chart .s4 { color: #e3bb3f; }
.chart .s5 { color: #aaa5ff; }
}
";

/// Of series in turn, for light pages: far apart in brightness or hue for all kinds of colour vision.
const COLOURS: [&str; 6] = [
    "#0065a3", "#c44e00", "#00795a", "#a8407f", "#8a6100", "#5c54c9",
];
const DASHES: [&str; 5] = ["", "6 3", "2 2.5", "9 3 2 3", "4 2"];

/// Class and colour of series number `i`, as attributes.
pub(crate) fn series(i: usize) -> String {
    let colour = i % COLOURS.len();
    format!(" class=\"s{colour}\" color=\"{}\"", COLOURS[colour])
}

/// The dashes of series number `i`, as an attribute.
pub(crate) fn dash(i: usize) -> String {
    match DASHES[i % DASHES.len()] {
        "" => String::new(),
        dash => format!(" stroke-dasharray=\"{dash}\""),
    }
}

/// Class and colour of what is only there to compare by.
pub(crate) const MUTED: &str = " class=\"muted\" color=\"#59636e\"";
/// Class and fill of text that stands back.
pub(crate) const MUTED_TEXT: &str = " class=\"muted\" fill=\"#59636e\"";
/// Class and colour of a limit.
pub(crate) const LIMIT: &str = " class=\"limit\" color=\"#b3261e\"";

/// How filled layers differ without colour: opacities in turn.
pub(crate) fn opacity(i: usize) -> &'static str {
    ["0.9", "0.65", "0.8", "0.5"][i % 4]
}

/// A document of its own: the style sheet and a background come first.
pub(crate) fn document(svg: &str) -> String {
    let (head, rest) = svg.split_once('\n').unwrap_or((svg, ""));
    format!(
        "{head}\n<style>\n{STYLE}</style>\n<rect class=\"paper\" fill=\"#ffffff\" width=\"100%\" height=\"100%\"/>\n{rest}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_by_colour_and_dash_and_a_whole_round_repeats_no_pair() {
        let pairs: Vec<_> = (0..30).map(|i| (series(i), dash(i))).collect();
        for (i, pair) in pairs.iter().enumerate() {
            assert!(!pairs[..i].contains(pair), "{i}");
        }
        for i in 0..29 {
            assert!(pairs[i].0 != pairs[i + 1].0 && pairs[i].1 != pairs[i + 1].1);
        }
    }

    #[test]
    fn the_attributes_colours_are_those_of_the_style_sheet() {
        for (i, colour) in COLOURS.iter().enumerate() {
            assert!(STYLE.contains(&format!(".s{i} {{ color: {colour}; }}")));
        }
    }

    /// WCAG's contrast of a colour and white or a dark page.
    fn contrast(colour: &str, paper: &str) -> f64 {
        let luminance = |colour: &str| {
            let part = |i: usize| {
                let c = f64::from(u8::from_str_radix(&colour[i..i + 2], 16).unwrap()) / 255.0;
                if c <= 0.04045 {
                    c / 12.92
                } else {
                    ((c + 0.055) / 1.055).powf(2.4)
                }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        let (a, b) = (luminance(colour), luminance(paper));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn all_colours_can_be_read_on_their_page() {
        let (light, dark) = STYLE.split_once("@media").unwrap();
        for (sheet, paper) in [(light, "#ffffff"), (dark, "#0d1117")] {
            let colours = sheet.match_indices(" color: #");
            for (at, found) in colours {
                let start = at + found.len() - 1;
                let colour = &sheet[start..start + 7];
                assert!(contrast(colour, paper) >= 4.5, "{colour} on {paper}");
            }
        }
    }
}
