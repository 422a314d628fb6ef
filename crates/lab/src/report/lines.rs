//! Line plots as inline SVG, coloured by the page's style sheet.
//!
//! x is linear, or logarithmic if its values span more than a factor of `WIDE`; y begins at 0 and ends
//! at a round number. A paper's results are drawn as dashed lines in the kernel's colour.

use super::short;
use baton_apps::html_text::escape;
use std::fmt::Write as _;

const WIDTH: f64 = 312.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 34.0;
/// Lines end between these, as the room for their labels allows.
const RIGHT: (f64, f64) = (150.0, 262.0);
/// Width of a letter of a label.
const LETTER: f64 = 6.3;
const TOP: f64 = 16.0;
const BASE: f64 = 148.0;
/// Values of x that span more than this factor are drawn on a logarithmic scale.
const WIDE: f64 = 12.0;
/// Labels of lines are so far apart, and those of x.
const LABEL_Y: f64 = 11.0;
const LABEL_X: f64 = 30.0;
/// Lines of more points have no circles.
const CIRCLES: usize = 16;
/// Colours that the style sheet has for lines, and for parts of bars.
pub const COLOURS: usize = 7;

/// A plot of lines.
pub struct Lines {
    /// A short word, unique in the page.
    pub id: String,
    /// Title of the plot.
    pub title: String,
    /// Unit of y.
    pub unit: &'static str,
    /// The lines, in the order drawn.
    pub lines: Vec<Line>,
}

/// One line.
pub struct Line {
    /// Its label, written at its end.
    pub label: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
    /// True if it shows a paper's results.
    pub paper: bool,
}

/// A scale of x.
struct Steps {
    values: Vec<f64>,
    /// Where the largest value is drawn.
    right: f64,
    logarithmic: bool,
}

impl Steps {
    fn of(lines: &[Line]) -> Steps {
        let mut values: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0));
        let letters = lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0);
        let right = (WIDTH - 6.0 - LETTER * letters as f64).clamp(RIGHT.0, RIGHT.1);
        Steps { logarithmic: low > 0.0 && high / low > WIDE, values, right }
    }

    fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.ln() } else { value };
        let (Some(low), Some(high)) = (self.values.first(), self.values.last()) else { return LEFT };
        let span = scale(*high) - scale(*low);
        LEFT + (self.right - LEFT) * if span > 0.0 { (scale(value) - scale(*low)) / span } else { 0.0 }
    }

    /// The values that have a label: as many as have room.
    fn labels(&self) -> Vec<f64> {
        let mut shown: Vec<f64> = Vec::new();
        for value in &self.values {
            if shown.last().is_none_or(|last| self.at(*value) - self.at(*last) >= LABEL_X) {
                shown.push(*value);
            }
        }
        shown
    }
}

/// The smallest of 1, 2, 5 and their tenfolds that is at least this value.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let unit = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * unit).into_iter().find(|step| *step >= value).unwrap_or(value)
}

impl Lines {
    /// The plot as an `svg` element.
    pub fn render(&self) -> String {
        let steps = Steps::of(&self.lines);
        let top = round_up(self.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).fold(0.0, f64::max));
        let y = |value: f64| BASE - (BASE - TOP) * value / top;
        let marks: usize = self.lines.iter().map(|line| line.points.len()).sum();
        let (id, title) = (escape(&self.id), escape(&self.title));
        let mut svg = format!(
            "<svg class=\"plot\" data-plot=\"{id}\" data-marks=\"{marks}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\" aria-labelledby=\"{id}-title\"><title id=\"{id}-title\">{title}</title>"
        );
        for share in [0.0, 0.5, 1.0] {
            let (at, text) = (y(top * share), short(top * share));
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"label value\" x=\"{}\" y=\"{:.1}\">{text}</text>",
                steps.right,
                LEFT - 4.0,
                at + 4.0
            );
        }
        for step in steps.labels() {
            let text = step_text(step);
            let at = steps.at(step);
            let _ = write!(svg, "<text class=\"label middle\" x=\"{at:.1}\" y=\"{}\">{text}</text>", BASE + 14.0);
        }
        let _ = write!(svg, "<text class=\"label\" x=\"0\" y=\"9\">{}</text>", escape(self.unit));
        let ends = label_heights(self.lines.iter().map(|line| line.points.last().map_or(BASE, |(_, last)| y(*last))));
        for (number, (line, end)) in self.lines.iter().zip(ends).enumerate() {
            let class = if line.paper { "kernel".to_owned() } else { format!("baton line-{}", number % COLOURS) };
            let points: Vec<(f64, f64)> = line.points.iter().map(|(px, py)| (steps.at(*px), y(*py))).collect();
            let path: Vec<String> = points.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
            let _ = write!(svg, "<g class=\"{class}\"><polyline class=\"trend\" points=\"{}\"/>", path.join(" "));
            let circles = if points.len() <= CIRCLES { points.len() } else { 0 };
            for ((px, py), (_, value)) in points.iter().zip(&line.points).take(circles) {
                let _ = write!(
                    svg,
                    "<circle class=\"mark\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"2.5\"><title>{}</title></circle>",
                    short(*value)
                );
            }
            if let Some((px, _)) = points.last() {
                let label = escape(&line.label);
                let _ =
                    write!(svg, "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>", px + 6.0, end + 4.0);
            }
            svg.push_str("</g>");
        }
        svg.push_str("</svg>");
        svg
    }
}

/// A value of x in a few letters.
fn step_text(step: f64) -> String {
    if step >= 1024.0 && step % 1024.0 == 0.0 {
        format!("{}K", step / 1024.0)
    } else if step >= 9_995.0 || step.fract() != 0.0 {
        short(step)
    } else {
        step.to_string()
    }
}

/// Heights for labels that would be at these: none overlaps another.
fn label_heights(wanted: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut heights: Vec<f64> = wanted.collect();
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]));
    for pair in 1..order.len() {
        let above = heights[order[pair - 1]];
        let at = &mut heights[order[pair]];
        *at = at.max(above + LABEL_Y);
    }
    // Where the lowest would be below the plot, all that crowd there move up.
    let mut limit = HEIGHT - LABEL_Y;
    for &index in order.iter().rev() {
        heights[index] = heights[index].min(limit);
        limit = heights[index] - LABEL_Y;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(f64, f64)]) -> Lines {
        let line = |paper| Line { label: "16 <KB".into(), points: points.to_vec(), paper };
        Lines { id: "x".into(), title: "t".into(), unit: "%", lines: vec![line(false), line(true)] }
    }

    #[test]
    fn x_is_linear_unless_its_values_span_much() {
        let svg = plot(&[(1.0, 10.0), (2.0, 20.0), (5.0, 40.0)]).render();
        assert!(svg.contains("34.0,121.6 91.0,95.2 262.0,42.4"), "{svg}");
        let svg = plot(&[(1.0, 10.0), (8.0, 20.0), (64.0, 40.0)]).render();
        assert!(svg.contains("34.0,121.6 148.0,95.2 262.0,42.4"), "{svg}");
        assert!(svg.contains("data-marks=\"6\"") && svg.contains("16 &lt;KB") && svg.contains("class=\"kernel\""));
        assert!(Lines { lines: vec![], ..plot(&[]) }.render().contains("data-marks=\"0\""));
    }

    #[test]
    fn many_points_have_few_labels_and_no_circles() {
        let points: Vec<(f64, f64)> = (0..500).map(|x| (f64::from(x), 1.0)).collect();
        let svg = plot(&points).render();
        assert!(svg.matches("label middle").count() <= 8, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 0);
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut heights = label_heights([100.0, 100.0, 30.0, 158.0, 157.0].into_iter());
        heights.sort_by(f64::total_cmp);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_Y - 1e-9), "{heights:?}");
        assert!(heights[4] <= HEIGHT, "{heights:?}");
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        assert_eq!([0.0, 0.7, 41.0, 120.0].map(round_up), [1.0, 1.0, 50.0, 200.0]);
    }
}
