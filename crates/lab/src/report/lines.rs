//! Line plots as inline SVG, coloured by the page's style sheet.
//!
//! The values of x are drawn at equal distances, which suits sweeps that double x; y begins at 0. A
//! paper's results are drawn as dashed lines in the kernel's colour.

use super::short;
use baton_apps::html_text::escape;
use std::fmt::Write as _;

const WIDTH: f64 = 312.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 262.0;
const TOP: f64 = 16.0;
const BASE: f64 = 148.0;

/// The most steps whose values are written below them; of more, every second, third and so on.
const MOST_STEPS: usize = 10;

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

impl Lines {
    /// The plot as an `svg` element.
    pub fn render(&self) -> String {
        let mut steps: Vec<f64> = self.lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x).collect();
        steps.sort_by(f64::total_cmp);
        steps.dedup();
        let top = self.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).fold(0.0, f64::max);
        let top = if top <= 0.0 { 1.0 } else { top };
        let x = |value: f64| {
            let step = steps.iter().position(|step| *step == value).unwrap_or(0);
            LEFT + (RIGHT - LEFT) * step as f64 / (steps.len().max(2) - 1) as f64
        };
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
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"label value\" x=\"{}\" y=\"{:.1}\">{text}</text>",
                LEFT - 4.0,
                at + 4.0
            );
        }
        for step in steps.iter().step_by(steps.len().div_ceil(MOST_STEPS).max(1)) {
            let text =
                if *step >= 1024.0 && step % 1024.0 == 0.0 { format!("{}K", step / 1024.0) } else { step.to_string() };
            let _ =
                write!(svg, "<text class=\"label middle\" x=\"{:.1}\" y=\"{}\">{text}</text>", x(*step), BASE + 14.0);
        }
        let _ = write!(svg, "<text class=\"label\" x=\"0\" y=\"9\">{}</text>", escape(self.unit));
        for (i, line) in self.lines.iter().enumerate() {
            let points: Vec<(f64, f64)> = line.points.iter().map(|(px, py)| (x(*px), y(*py))).collect();
            let path: Vec<String> = points.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
            let class = if line.paper { "kernel" } else { "baton" };
            let shade = 1.0 - 0.65 * i as f64 / self.lines.len() as f64;
            let _ = write!(
                svg,
                "<g class=\"{class}\" opacity=\"{shade:.2}\"><polyline class=\"trend\" points=\"{}\"/>",
                path.join(" ")
            );
            for ((px, py), (_, value)) in points.iter().zip(&line.points) {
                let _ = write!(
                    svg,
                    "<circle class=\"mark\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"2.5\"><title>{}</title></circle>",
                    short(*value)
                );
            }
            if let Some((px, py)) = points.last() {
                let label = escape(&line.label);
                let _ = write!(svg, "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>", px + 6.0, py + 4.0);
            }
            svg.push_str("</g>");
        }
        svg.push_str("</svg>");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_stand_at_equal_distances() {
        let line = |paper| Line { label: "16 <KB".into(), points: vec![(1.0, 10.0), (2.0, 20.0), (64.0, 40.0)], paper };
        let plot = Lines { id: "x".into(), title: "t".into(), unit: "%", lines: vec![line(false), line(true)] };
        let svg = plot.render();
        assert!(svg.contains("data-marks=\"6\""), "{svg}");
        assert!(svg.contains("34.0,115.0 148.0,82.0 262.0,16.0"), "{svg}");
        assert!(svg.contains("16 &lt;KB") && svg.contains("class=\"kernel\""));
        assert!(Lines { lines: vec![], ..plot }.render().contains("data-marks=\"0\""));
    }
}
