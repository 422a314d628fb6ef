//! A chart of pairs as inline SVG: for each row the paper's value and the one here, on one scale.
//!
//! ```text
//!   name of the row
//!   ██████████                           12.3
//!   ████████████████                     19.8
//! ```

use crate::experiment::Row;
use crate::report::short;
use baton_apps::html_text::escape;
use std::fmt::Write as _;

const WIDTH: f64 = 312.0;
/// Right limit of bars.
const RIGHT: f64 = 262.0;
const NAME: f64 = 15.0;
const BAR: f64 = 7.0;
const GAP: f64 = 3.0;

/// The chart as an `svg` element, or `None` if no row has a value.
pub fn render<'a>(id: &str, title: &str, rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let rows: Vec<&Row> = rows.filter(|row| row.paper.is_some() || row.here.is_some()).collect();
    let values = || rows.iter().flat_map(|row| [row.paper, row.here]).flatten().filter(|value| value.is_finite());
    let (low, high) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
    let marks = values().count();
    if marks == 0 {
        return None;
    }
    let span = if high > low { high - low } else { 1.0 };
    let x = |value: f64| RIGHT * (value - low) / span;
    let bars = |row: &&Row| [row.paper, row.here].iter().flatten().count();
    let height: f64 = rows.iter().map(|row| NAME + GAP + (BAR + GAP) * bars(row) as f64).sum();
    let (id, title) = (escape(id), escape(title));
    let mut svg = format!(
        "<svg class=\"plot\" data-plot=\"{id}\" data-marks=\"{marks}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-labelledby=\"{id}-title\"><title id=\"{id}-title\">{title}</title>"
    );
    let mut y = 0.0;
    for row in rows {
        let _ = write!(svg, "<text class=\"label\" x=\"0\" y=\"{}\">{}</text>", y + NAME - 3.0, escape(&row.name));
        y += NAME;
        for (value, side) in [(row.paper, "kernel"), (row.here, "baton")] {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let (from, to) = (x(value.min(0.0)), x(value.max(0.0)));
            let _ = write!(
                svg,
                "<g class=\"{side}\"><rect class=\"mark\" x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" \
                 rx=\"2\"/><text class=\"value\" x=\"{WIDTH}\" y=\"{}\">{}</text></g>",
                (to - from).max(1.0),
                y + BAR,
                short(value)
            );
            y += BAR + GAP;
        }
        y += GAP;
    }
    svg.push_str("</svg>");
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_begin_left_of_zero_and_missing_values_have_no_bar() {
        let rows = [Row::new("a <b>", "%", Some(-10.0), Some(10.0)), Row::new("c", "%", None, None)];
        let svg = render("id", "title", rows.iter()).unwrap();
        assert!(svg.contains("data-marks=\"2\"") && svg.contains("a &lt;b&gt;"), "{svg}");
        assert!(svg.contains("x=\"0.0\" y=\"15\" width=\"131.0\""), "{svg}");
        assert!(svg.contains("x=\"131.0\" y=\"25\" width=\"131.0\""), "{svg}");
        assert!(render("id", "title", rows[1..].iter()).is_none());
    }
}
