//! Plots as inline SVG, coloured by the page's style sheet so that they follow
//! light and dark mode.
//!
//! All rows have one form: a label at the left, a mark on a scale from zero that the rows of a group
//! share, and the number at the right. The scale ends at a round number.
//!
//! ```text
//!   group
//!     label        ██████████|--       12.3 Gb/s
//!     label        █████|-              6.1 Gb/s
//!     label        ███▒▒▒▒░░            9.0 Gb/s
//!                  0        10       20
//! ```

use super::axis::{self, Axis, WIDTH};
use super::lines::COLOURS;
use super::{Side, short, thousands};
use baton_apps::html_text::escape;
use baton_apps::measure::Median;
use std::fmt::Write as _;

/// Left limit of marks, and the right one, which long numbers move.
const LEFT: f64 = 108.0;
const RIGHT: f64 = 226.0;
/// Least length of the scale.
const SCALE: f64 = 16.0;
const ROW: f64 = 19.0;
/// Height of a group's label, and of the space above one without a label.
const GROUP: f64 = 27.0;
const SPACE: f64 = 4.0;
/// Height of the numbers below a scale.
const NUMBERS: f64 = 15.0;
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
    /// A bar to a count, which is exact. Of none there is no bar.
    Count(u64),
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
            Mark::Count(count) => *count as f64,
            Mark::Span(_, to) => *to,
            Mark::Stack(parts) => shown(parts).map(|part| part.value).sum(),
        }
    }

    /// The number at the right of its row.
    fn number(&self) -> String {
        match self {
            Mark::Bar(value) => short(value.median),
            Mark::Count(count) => thousands(*count),
            Mark::Span(from, to) => format!("{} – {}", short(*from), short(*to)),
            Mark::Stack(_) => short(self.largest()),
        }
    }

    /// Elements of class `mark` that it is drawn with.
    fn elements(&self) -> usize {
        match self {
            Mark::Bar(_) => 1,
            Mark::Count(count) => usize::from(*count > 0),
            Mark::Span(..) => 3,
            Mark::Stack(parts) => shown(parts).count(),
        }
    }
}

impl Group {
    fn largest(&self) -> f64 {
        self.rows.iter().map(|row| row.mark.largest()).fold(0.0, f64::max)
    }

    /// Its scale, which reaches at least `least`.
    fn axis(&self, least: f64, unit: &str) -> Axis {
        let largest = self.largest().max(least);
        let counts = self.rows.iter().all(|row| matches!(row.mark, Mark::Count(_)));
        if counts { Axis::of_counts(largest) } else { Axis::new(largest, unit) }
    }

    /// The height of what is above its rows.
    fn head(&self) -> f64 {
        if self.label.is_empty() { SPACE } else { GROUP }
    }
}

impl Plot {
    /// The plot as an `svg` element, or `None` if there is nothing to draw.
    ///
    /// `data-marks` says how many elements of class `mark` it has, so that a
    /// browser test can tell a plot that was drawn from one that was not.
    pub fn render(&self) -> Option<String> {
        self.render_beside(0.0)
    }

    /// The same beside plots of one unit whose largest value this is: they have one scale.
    pub fn render_beside(&self, largest: f64) -> Option<String> {
        if self.groups.iter().all(|group| group.largest() <= 0.0) {
            return None;
        }
        let axes: Vec<Axis> = self.groups.iter().map(|group| group.axis(largest, self.unit)).collect();
        // Groups that follow each other with the same scale have its numbers below the last of them.
        let numbered = |number: usize| axes.get(number + 1) != Some(&axes[number]);
        let height = |(number, group): (usize, &Group)| {
            group.head() + ROW * group.rows.len() as f64 + if numbered(number) { NUMBERS } else { 0.0 }
        };
        let height = self.groups.iter().enumerate().map(height).sum::<f64>() + 4.0;
        let rows = || self.groups.iter().flat_map(|group| &group.rows);
        let marks: usize = rows().map(|row| row.mark.elements()).sum();
        let numbers = rows().map(|row| axis::width(&row.mark.number())).fold(0.0, f64::max);
        let right = RIGHT.min(WIDTH - 6.0 - numbers).max(LEFT + SCALE);
        let mut svg = format!(
            "<svg class=\"plot\" data-plot=\"{id}\" data-marks=\"{marks}\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" aria-labelledby=\"{id}-title\"><title id=\"{id}-title\">{title}</title>",
            id = escape(&self.id),
            title = escape(&self.title),
        );
        let mut y = 0.0;
        for (number, (group, axis)) in self.groups.iter().zip(&axes).enumerate() {
            let scale = |value: f64| LEFT + (right - LEFT) * value / axis.end;
            if !group.label.is_empty() {
                let _ = write!(svg, "<text class=\"group\" x=\"0\" y=\"{}\">{}</text>", y + 19.0, escape(&group.label));
            }
            y += group.head();
            let end = y + ROW * group.rows.len() as f64;
            for x in axis.ticks().into_iter().map(scale) {
                let _ = write!(svg, "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{end}\"/>");
            }
            for row in &group.rows {
                self.row(&mut svg, row, y + ROW / 2.0, &scale);
                y += ROW;
            }
            if numbered(number) {
                for tick in axis.numbered(right - LEFT) {
                    let (x, base, text) = (scale(tick), y + 11.0, axis.text(tick));
                    let _ = write!(svg, "<text class=\"label middle\" x=\"{x:.1}\" y=\"{base}\">{text}</text>");
                }
                y += NUMBERS;
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
        match &row.mark {
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
            }
            Mark::Count(0) => {}
            Mark::Count(count) => {
                let (top, width) = (middle - BAR / 2.0, (scale(*count as f64) - LEFT).max(1.0));
                let about = format!("{}: {} {}", row.label, thousands(*count), self.unit);
                let _ = write!(
                    svg,
                    "<rect class=\"mark\" x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\">\
                     <title>{}</title></rect>",
                    escape(&about)
                );
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
            }
        }
        let number = row.mark.number();
        let _ = write!(svg, "<text class=\"value\" x=\"{WIDTH}\" y=\"{base}\">{number}</text></g>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(label: &str, all: &[(&str, u64)]) -> Group {
        let row =
            |&(label, count): &(&str, u64)| Row { label: label.into(), side: Side::Baton, mark: Mark::Count(count) };
        Group { label: label.into(), rows: all.iter().map(row).collect() }
    }

    fn plot(groups: Vec<Group>) -> Plot {
        Plot { id: "p".into(), title: "t".into(), unit: "runs", groups }
    }

    fn height(svg: &str) -> f64 {
        svg.split("viewBox=\"0 0 312 ").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    }

    #[test]
    fn counts_are_whole_numbers_with_their_thousands_apart() {
        let svg = plot(vec![counts("", &[("one", 1), ("many", 1_234_567)])]).render().unwrap();
        assert!(svg.contains(">1<") && svg.contains(">1,234,567<") && svg.contains("many: 1,234,567 runs"), "{svg}");
        let svg = plot(vec![counts("", &[("one", 1), ("two", 2)])]).render().unwrap();
        assert!(!svg.split(">").any(|text| text.split('<').next().unwrap().contains('.')), "{svg}");
        // A bar does not reach its number, however long that is.
        let svg = plot(vec![counts("", &[("most", u64::MAX)])]).render().unwrap();
        let right: f64 = svg.rsplit("class=\"axis\" x1=\"").next().unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(right < WIDTH - axis::width("18,446,744,073,709,551,615"), "{svg}");
    }

    #[test]
    fn a_count_of_none_has_no_bar() {
        let svg = plot(vec![counts("", &[("none", 0), ("one", 1)])]).render().unwrap();
        assert!(svg.contains("data-marks=\"1\"") && svg.matches("<rect").count() == 1, "{svg}");
    }

    #[test]
    fn no_band_is_above_bars_without_a_label() {
        let rows = [("a", 1), ("b", 2)];
        let (bare, labelled) = (plot(vec![counts("", &rows)]), plot(vec![counts("g", &rows)]));
        let (bare, labelled) = (bare.render().unwrap(), labelled.render().unwrap());
        assert_eq!(height(&labelled) - height(&bare), GROUP - SPACE);
        assert!(
            bare.contains("y=\"8\"") && !bare.contains("class=\"group\"") && labelled.contains("class=\"group\""),
            "{bare}"
        );
    }

    #[test]
    fn a_scale_ends_at_a_round_number_and_is_that_of_its_neighbour() {
        let svg = plot(vec![counts("", &[("a", 41)])]).render().unwrap();
        assert!(svg.contains(">50</text>") && svg.contains("width=\"96.8\""), "{svg}");
        let svg = plot(vec![counts("", &[("a", 41)])]).render_beside(75.0).unwrap();
        assert!(svg.contains(">100</text>") && svg.contains("width=\"48.4\""), "{svg}");
    }

    #[test]
    fn groups_with_one_scale_have_its_numbers_once() {
        let groups = |b| plot(vec![counts("g", &[("a", 41)]), counts("h", &[("a", b)])]).render().unwrap();
        assert_eq!(groups(45).matches(">50</text>").count(), 1);
        assert_eq!(groups(4).matches("label middle\" x=\"108.0\"").count(), 2);
    }

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
