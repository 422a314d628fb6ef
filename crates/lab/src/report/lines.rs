//! Line plots as inline SVG, coloured by the page's style sheet.
//!
//! x is linear. It is logarithmic if its values span more than a factor of `WIDE`, unless they are evenly
//! spaced, and if each is the one before times the same. y begins at 0 and ends at a round number. Each line has a colour of its own,
//! and its label at its end; a paper's results are drawn as dashed lines in the kernel's colour.

use super::axis::{self, Axis, WIDTH};
use super::short;
use baton_apps::html_text::escape;
use std::fmt::Write as _;

/// Room above, for the unit.
const HEAD: f64 = 4.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 34.0;
/// Lines end between these, as the room for their labels allows, or at the last if they have no labels.
const RIGHT: (f64, f64) = (150.0, 262.0);
const RIGHT_ALONE: f64 = 298.0;
/// Distance from the end of a line to its label, which a leader bridges.
const LEADER: f64 = 8.0;
const TOP: f64 = 16.0;
const BASE: f64 = 148.0;
/// Values of x that span more than this factor are drawn on a logarithmic scale.
const WIDE: f64 = 12.0;
/// Labels of lines are so far apart, and those of x.
const LABEL_Y: f64 = 11.0;
const LABEL_X: f64 = 5.0;
/// Lines of more points have no circles, and round numbers below x instead of the values.
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
        let labels = lines.iter().map(|line| axis::width(&line.label)).fold(0.0, f64::max);
        let right = match labels {
            0.0 => RIGHT_ALONE,
            labels => (WIDTH - LEADER - labels).clamp(RIGHT.0, RIGHT.1),
        };
        let wide = high / low > WIDE && !is_even(&values);
        Steps { logarithmic: low > 0.0 && (wide || is_geometric(&values)), values, right }
    }

    fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.ln() } else { value };
        let (Some(low), Some(high)) = (self.values.first(), self.values.last()) else { return LEFT };
        let span = scale(*high) - scale(*low);
        LEFT + (self.right - LEFT) * if span > 0.0 { (scale(value) - scale(*low)) / span } else { 0.0 }
    }

    /// The values that have a tick: those that were measured or, of many on a linear scale, round ones.
    fn ticks(&self) -> Vec<f64> {
        match (self.values.first(), self.values.last()) {
            (Some(low), Some(high)) if !self.logarithmic && self.values.len() > CIRCLES => {
                Axis::new(*high, "").ticks().into_iter().filter(|tick| (*low..=*high).contains(tick)).collect()
            }
            _ => self.values.clone(),
        }
    }

    /// Those ticks that have a label: the first, the last, and between them as many as have room.
    fn labels(&self) -> Vec<f64> {
        let ticks = self.ticks();
        let (Some(first), Some(last)) = (ticks.first(), ticks.last()) else { return Vec::new() };
        let fits = |left: f64, right: f64| {
            let half = (axis::width(&step_text(left)) + axis::width(&step_text(right))) / 2.0;
            self.at(right) - self.at(left) >= half + LABEL_X
        };
        let mut shown = vec![*first];
        for tick in &ticks[1..] {
            if fits(shown[shown.len() - 1], *tick) && (tick == last || fits(*tick, *last)) {
                shown.push(*tick);
            }
        }
        shown
    }
}

/// True if each value is the one before and the same more.
fn is_even(values: &[f64]) -> bool {
    let [first, second, ..] = values else { return true };
    let step = second - first;
    values.windows(2).all(|pair| ((pair[1] - pair[0]) / step - 1.0).abs() < 1e-6)
}

/// True if each of at least three values is the one before times the same factor.
fn is_geometric(values: &[f64]) -> bool {
    let [first, second, .., _] = values else { return false };
    let factor = second / first;
    values.windows(2).all(|pair| (pair[1] / pair[0] / factor - 1.0).abs() < 1e-6)
}

impl Lines {
    /// The plot as an `svg` element.
    pub fn render(&self) -> String {
        let steps = Steps::of(&self.lines);
        let largest = self.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).fold(0.0, f64::max);
        let axis = Axis::new(largest, self.unit);
        let y = |value: f64| BASE - (BASE - TOP) * value / axis.end;
        let marks: usize = self.lines.iter().map(|line| line.points.len()).sum();
        let (id, title) = (escape(&self.id), escape(&self.title));
        let mut svg = format!(
            "<svg class=\"plot\" data-plot=\"{id}\" data-marks=\"{marks}\" viewBox=\"0 -{HEAD} {WIDTH} {}\" \
             role=\"img\" aria-labelledby=\"{id}-title\"><title id=\"{id}-title\">{title}</title>",
            HEAD + HEIGHT
        );
        for tick in axis.ticks() {
            let (at, text) = (y(tick), axis.text(tick));
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"label value\" x=\"{}\" y=\"{:.1}\">{text}</text>",
                steps.right,
                LEFT - 4.0,
                at + 4.0
            );
        }
        for at in steps.ticks().into_iter().map(|tick| steps.at(tick)) {
            let end = BASE + 3.0;
            let _ = write!(svg, "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{BASE}\" y2=\"{end}\"/>");
        }
        for step in steps.labels() {
            let text = step_text(step);
            let at = steps.at(step);
            let _ = write!(svg, "<text class=\"label middle\" x=\"{at:.1}\" y=\"{}\">{text}</text>", BASE + 16.0);
        }
        let _ = write!(svg, "<text class=\"label\" x=\"0\" y=\"7\">{}</text>", escape(self.unit));
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
            if let (Some((px, py)), false) = (points.last(), line.label.is_empty()) {
                let label = escape(&line.label);
                // From the last point to the label, which may have been moved out of another's way.
                let _ = write!(
                    svg,
                    "<line class=\"leader\" x1=\"{px:.1}\" x2=\"{:.1}\" y1=\"{py:.1}\" y2=\"{end:.1}\"/>\
                     <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                    px + LEADER - 2.0,
                    px + LEADER,
                    end + 4.0
                );
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
    // Below the base are the labels of x.
    let mut limit = BASE;
    for &index in order.iter().rev() {
        heights[index] = heights[index].min(limit);
        limit = heights[index] - LABEL_Y;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::colours::{contrast, modes};

    fn plot(points: &[(f64, f64)]) -> Lines {
        let line = |paper| Line { label: "16 <KB".into(), points: points.to_vec(), paper };
        Lines { id: "x".into(), title: "t".into(), unit: "%", lines: vec![line(false), line(true)] }
    }

    #[test]
    fn x_is_linear_unless_its_values_span_much() {
        let svg = plot(&[(1.0, 10.0), (2.0, 20.0), (5.0, 40.0)]).render();
        assert!(svg.contains("34.0,121.6 91.0,95.2 262.0,42.4"), "{svg}");
        let even: Vec<(f64, f64)> = (0..4).map(|step| (f64::from(1 + 20 * step), 10.0)).collect();
        assert!(plot(&even).render().contains("34.0,16.0 110.0,16.0 186.0,16.0 262.0,16.0"));
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
        assert!(heights[4] <= BASE, "{heights:?}");
    }

    #[test]
    fn steps_that_double_are_logarithmic_and_keep_first_and_last_label() {
        let points = |values: &[f64]| values.iter().map(|x| (*x, 10.0)).collect::<Vec<_>>();
        let svg = plot(&points(&[1.0, 2.0, 4.0, 8.0])).render();
        assert!(svg.contains("34.0,16.0 110.0,16.0 186.0,16.0 262.0,16.0"), "{svg}");
        let values: Vec<f64> = (0..24).map(|power| f64::from(1 << power)).collect();
        let line = Line { label: String::new(), points: points(&values), paper: false };
        let steps = Steps::of(&[line]);
        let labels = steps.labels();
        assert!(labels.len() < values.len() && labels.first() == Some(&1.0) && labels.last() == values.last());
        for pair in labels.windows(2) {
            let [left, right] = [pair[0], pair[1]].map(|value| (steps.at(value), axis::width(&step_text(value)) / 2.0));
            assert!(left.0 + left.1 < right.0 - right.1, "{labels:?}");
        }
    }

    #[test]
    fn many_steps_have_round_labels() {
        let points: Vec<(f64, f64)> = (3..=437).map(|x| (f64::from(x), 1.0)).collect();
        let steps = Steps::of(&[Line { label: String::new(), points, paper: false }]);
        assert_eq!(steps.labels(), [100.0, 200.0, 300.0, 400.0]);
    }

    #[test]
    fn plots_of_shares_have_one_scale() {
        let svg = |largest| Lines { unit: "% of frames joined", ..plot(&[(1.0, largest)]) }.render();
        for svg in [svg(3.0), svg(61.0)] {
            assert!(svg.contains("y=\"20.0\">100</text>") && svg.contains("y=\"152.0\">0</text>"), "{svg}");
        }
    }

    #[test]
    fn colours_of_lines_differ_and_stand_out() {
        for mode in modes() {
            let names = ["baton".to_owned(), "kernel".to_owned()].into_iter();
            let names: Vec<String> = names.chain((1..COLOURS).map(|number| format!("line-{number}"))).collect();
            for (number, name) in names.iter().enumerate() {
                let colour = mode.colour(name);
                let contrast = contrast(colour, mode.colour("card"));
                assert!(contrast >= 3.0, "{name} on {}: {contrast:.2}", mode.value("card"));
                for other in &names[..number] {
                    let apart = colour.iter().zip(mode.colour(other)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(apart >= 0.1, "{name} and {other} on {}", mode.value("card"));
                }
            }
        }
    }

    #[test]
    fn each_line_has_its_colour_and_a_leader_to_its_label() {
        let line =
            |number: usize| Line { label: number.to_string(), points: vec![(1.0, 5.0), (2.0, 5.0)], paper: false };
        let lines: Vec<Line> = (0..COLOURS).map(line).collect();
        let svg = Lines { lines, ..plot(&[]) }.render();
        assert_eq!(svg.matches("class=\"leader\"").count(), COLOURS);
        for number in 0..COLOURS {
            assert_eq!(svg.matches(&format!("<g class=\"baton line-{number}\">")).count(), 1, "{svg}");
        }
    }
}
