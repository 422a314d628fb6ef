//! Plots as inline SVG, coloured by the page's style sheet so that they follow
//! light and dark mode.
//!
//! All rows have one form: a label at the left, a mark on a scale from zero that the rows of a group
//! share, and the number at the right. The drawing is 312 units wide, so that its text stays readable on
//! a phone at 300 pixels.
//!
//! ```text
//!   group
//!     label        ██████████|--       12.3 Gb/s
//!     label        █████|-              6.1 Gb/s
//!     label        ███▒▒▒▒░░            9.0 Gb/s
//! ```

use super::lines::COLOURS;
use super::{Side, short};
use baton_apps::html_text::escape;
use baton_apps::measure::Median;
use std::fmt::Write as _;

const WIDTH: f64 = 312.0;
/// Left and right limits of marks.
const LEFT: f64 = 108.0;
const RIGHT: f64 = 226.0;
const ROW: f64 = 19.0;
const GROUP: f64 = 27.0;
const BAR: f64 = 11.0;

/// A chart of horizontal bars in groups.
pub struct Plot {
    /// Short identifier, unique in the page.
    pub id: String,
    /// Title of the plot.
    pub title: String,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// Rows that belong together.
    pub groups: Vec<Group>,
}

/// Rows that belong together.
pub struct Group {
    /// The group's label.
    pub label: String,
    /// The bars of the group, from top to bottom.
    pub rows: Vec<Row>,
}

/// One row.
pub struct Row {
    /// Label of the row.
    pub label: String,
    /// The side, which determines the colour.
    pub side: Side,
    /// The mark to draw.
    pub mark: Mark,
}

/// The mark of a row.
pub enum Mark {
    /// A bar to the median, with a line over the range of the runs.
    Bar(Median),
    /// A span from one value to another, both with a dot.
    Span(f64, f64),
    /// A bar of parts, one after the other. Those of 0 and less are left out.
    Stack(Vec<Part>),
}

/// A part of a bar.
pub struct Part {
    /// Name that a pointer on it shows.
    pub label: String,
    /// Its length, in the unit of the plot.
    pub value: f64,
    /// Its class of colour: see [`colour`].
    pub colour: String,
}

/// The class of the colour with this number; without one, that of what has no colour of its own.
pub fn colour(number: Option<usize>) -> String {
    number.map_or("kernel".to_owned(), |number| format!("baton line-{}", number % COLOURS))
}

/// The parts of a bar that can be drawn.
fn shown(parts: &[Part]) -> impl Iterator<Item = &Part> {
    parts.iter().filter(|part| part.value > 0.0)
}

impl Mark {
    fn largest(&self) -> f64 {
        match self {
            Mark::Bar(value) => value.max,
            Mark::Span(_, to) => *to,
            Mark::Stack(parts) => shown(parts).map(|part| part.value).sum(),
        }
    }

    /// Elements of class `mark` that it is drawn with.
    fn elements(&self) -> usize {
        match self {
            Mark::Bar(_) => 1,
            Mark::Span(..) => 3,
            Mark::Stack(parts) => shown(parts).count(),
        }
    }
}

impl Group {
    fn largest(&self) -> f64 {
        self.rows.iter().map(|row| row.mark.largest()).fold(0.0, f64::max)
    }
}

impl Plot {
    /// The plot as an `svg` element, or `None` if there is nothing to draw.
    ///
    /// `data-marks` says how many elements of class `mark` it has, so that a
    /// browser test can tell a plot that was drawn from one that was not.
    pub fn render(&self) -> Option<String> {
        if self.groups.iter().all(|group| group.largest() <= 0.0) {
            return None;
        }
        let height = self.groups.iter().map(|group| GROUP + ROW * group.rows.len() as f64).sum::<f64>() + 4.0;
        let marks: usize = self.groups.iter().flat_map(|group| &group.rows).map(|row| row.mark.elements()).sum();
        let mut svg = format!(
            "<svg class=\"plot\" data-plot=\"{id}\" data-marks=\"{marks}\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" aria-labelledby=\"{id}-title\"><title id=\"{id}-title\">{title}</title>",
            id = escape(&self.id),
            title = escape(&self.title),
        );
        let mut y = 0.0;
        for group in &self.groups {
            let largest = group.largest().max(f64::MIN_POSITIVE);
            let scale = |value: f64| LEFT + (RIGHT - LEFT) * value / largest;
            let _ = write!(svg, "<text class=\"group\" x=\"0\" y=\"{}\">{}</text>", y + 19.0, escape(&group.label));
            y += GROUP;
            let end = y + ROW * group.rows.len() as f64;
            let _ = write!(svg, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{LEFT}\" y1=\"{y}\" y2=\"{end}\"/>");
            for row in &group.rows {
                self.row(&mut svg, row, y + ROW / 2.0, &scale);
                y += ROW;
            }
        }
        svg.push_str("</svg>");
        Some(svg)
    }

    fn row(&self, svg: &mut String, row: &Row, middle: f64, scale: &dyn Fn(f64) -> f64) {
        let side = match (&row.mark, row.side) {
            // Each part has a colour of its own.
            (Mark::Stack(_), _) => "stack",
            (_, Side::Kernel) => "kernel",
            (_, Side::Baton) => "baton",
        };
        let base = middle + 4.0;
        let _ =
            write!(svg, "<g class=\"{side}\"><text class=\"label\" x=\"0\" y=\"{base}\">{}</text>", escape(&row.label));
        let number = match &row.mark {
            Mark::Bar(value) => {
                let (top, width) = (middle - BAR / 2.0, (scale(value.median) - LEFT).max(1.0));
                let (from, to) = (scale(value.min), scale(value.max));
                let about = format!("{}: {} to {} {}", row.label, short(value.min), short(value.max), self.unit);
                let _ = write!(
                    svg,
                    "<rect class=\"mark\" x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\">\
                     <title>{}</title></rect><line class=\"range\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" \
                     y2=\"{middle}\"/>",
                    escape(&about)
                );
                short(value.median)
            }
            Mark::Span(from, to) => {
                let (x1, x2) = (scale(*from), scale(*to));
                let _ = write!(
                    svg,
                    "<rect class=\"mark span\" x=\"{x1:.1}\" y=\"{}\" width=\"{:.1}\" height=\"3\" rx=\"1.5\"/>\
                     <circle class=\"mark\" cx=\"{x1:.1}\" cy=\"{middle}\" r=\"4.5\"/>\
                     <circle class=\"mark tail\" cx=\"{x2:.1}\" cy=\"{middle}\" r=\"4\"/>",
                    middle - 1.5,
                    (x2 - x1).max(1.0),
                );
                format!("{} – {}", short(*from), short(*to))
            }
            Mark::Stack(parts) => {
                let mut end = 0.0;
                for Part { label, value, colour } in shown(parts) {
                    let (from, to) = (scale(end), scale(end + value));
                    let _ = write!(
                        svg,
                        "<g class=\"{colour}\"><rect class=\"mark\" x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" \
                         height=\"{BAR}\"><title>{}: {} {}</title></rect></g>",
                        middle - BAR / 2.0,
                        to - from,
                        escape(label),
                        short(*value),
                        escape(self.unit)
                    );
                    end += value;
                }
                short(end)
            }
        };
        let _ = write!(svg, "<text class=\"value\" x=\"{WIDTH}\" y=\"{base}\">{number}</text></g>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_bar_follow_each_other() {
        let part = |label: &str, value, number| Part { label: label.into(), value, colour: colour(number) };
        let bar = |parts| Row { label: "bar".into(), side: Side::Baton, mark: Mark::Stack(parts) };
        let parts = vec![part("a <b>", 25.0, Some(1)), part("gone", -1.0, Some(2)), part("c", 75.0, None)];
        let rows = vec![bar(parts), bar(vec![part("d", 50.0, Some(7))])];
        let group = Group { label: "g".into(), rows };
        let plot = Plot { id: "stack".into(), title: "t".into(), unit: "%", groups: vec![group] };
        let svg = plot.render().unwrap();
        assert!(svg.contains("data-marks=\"3\"") && svg.matches("<rect").count() == 3, "{svg}");
        assert!(svg.contains("<g class=\"baton line-1\"><rect class=\"mark\" x=\"108.0\""), "{svg}");
        assert!(svg.contains("<g class=\"kernel\"><rect class=\"mark\" x=\"137.5\""), "{svg}");
        assert!(svg.contains("width=\"59.0\"") && svg.contains(">50.0</text>"), "{svg}");
        assert!(
            svg.contains("<g class=\"stack\">") && svg.contains("a &lt;b&gt;: 25.0 %") && !svg.contains("gone"),
            "{svg}"
        );
    }
}
