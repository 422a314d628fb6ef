//! Heat maps as inline SVG: shares by two numbers, coloured by the page's style sheet.
//!
//! The colours run from 0 to 100 % on every map, so that maps can be compared. Each cell has its number;
//! one cell can be marked with an outline. Twelve columns stay readable on a phone at 300 pixels, with labels of up to seven letters.
//!
//! ```text
//!   ↓ entries      bytes →
//!         2K    4K    8K
//!     1  31.0  40.2  44.9
//!     2  48.3 [61.7] 63.0
//! ```

use super::axis::{self, WIDTH};
use baton_apps::html_text::escape;
use std::fmt::Write as _;

/// Height of a row, and of a line of text.
const ROW: f64 = 24.0;
const LINE: f64 = 15.0;
/// Room beside the labels of rows.
const GAP: f64 = 6.0;
/// Cells of this width have room for a decimal.
const DECIMAL: f64 = 34.0;

/// A grid of shares.
pub struct HeatMap {
    /// Short identifier, unique in the page.
    pub id: String,
    /// Title of the map.
    pub title: String,
    /// Title of the columns' axis.
    pub columns_title: String,
    /// Labels of the columns, from left to right.
    pub columns: Vec<String>,
    /// Title of the rows' axis.
    pub rows_title: String,
    /// Labels of the rows, from top to bottom.
    pub rows: Vec<String>,
    /// A list of shares, 0 to 1, for each row. A cell without one, or with one that is no number, stays empty.
    pub shares: Vec<Vec<f64>>,
    /// The cell that is marked.
    pub marked: Option<Marked>,
}

/// A cell with an outline.
pub struct Marked {
    /// Number of its row, from 0.
    pub row: usize,
    /// Number of its column, from 0.
    pub column: usize,
    /// Words that a pointer on it shows.
    pub title: String,
}

impl HeatMap {
    /// The map as an `svg` element, or `None` if it has no share. `data-marks` says how many cells it has.
    pub fn render(&self) -> Option<String> {
        let cells = self.cells();
        if cells.is_empty() {
            return None;
        }
        let left = self.rows.iter().map(|label| axis::width(label)).fold(0.0, f64::max) + GAP;
        let titles = self.titles();
        let widest = self.columns.iter().map(|label| axis::width(label)).fold(0.0, f64::max);
        let columns = self.columns.len() as f64;
        // Labels that are wider than their columns stand on two lines in turn, and the last needs room beside it.
        let beside = ((widest - (WIDTH - left) / columns) / 2.0).max(1.0);
        let width = (WIDTH - left - beside) / columns;
        let lines = if widest + 2.0 > width { 2 } else { 1 };
        let top = LINE * (titles.len() + lines) as f64;
        let height = top + ROW * self.rows.len() as f64 + 1.0;
        let mut svg = format!(
            "<svg class=\"plot heat\" data-plot=\"{id}\" data-marks=\"{marks}\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" aria-labelledby=\"{id}-title\"><title id=\"{id}-title\">{title}</title>",
            id = escape(&self.id),
            marks = cells.len(),
            title = escape(&self.title),
        );
        for (line, texts) in titles.iter().enumerate() {
            let _ = write!(svg, "<g transform=\"translate(0 {})\">{texts}</g>", LINE * (line + 1) as f64 - 4.0);
        }
        for (number, label) in self.columns.iter().enumerate() {
            let (x, y) = (left + width * (number as f64 + 0.5), top - 4.0 - LINE * (number % lines) as f64);
            let _ = write!(svg, "<text class=\"label middle\" x=\"{x:.1}\" y=\"{y}\">{}</text>", escape(label));
        }
        for (number, label) in self.rows.iter().enumerate() {
            let (x, y) = (left - GAP, top + ROW * (number as f64 + 0.5) + 4.0);
            let _ = write!(svg, "<text class=\"label value\" x=\"{x:.1}\" y=\"{y}\">{}</text>", escape(label));
        }
        let place = |row: usize, column: usize| (left + width * column as f64, top + ROW * row as f64);
        svg.push_str("<g class=\"baton\">");
        for &(row, column, share) in &cells {
            let (x, y) = place(row, column);
            let number =
                if width < DECIMAL { format!("{:.0}", share * 100.0) } else { format!("{:.1}", share * 100.0) };
            let about = format!("{}, {}: {:.1} %", self.rows[row], self.columns[column], share * 100.0);
            let _ = write!(
                svg,
                "<rect class=\"mark\" style=\"--share:{share:.3}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" \
                 height=\"{ROW}\"><title>{}</title></rect><text class=\"middle\" x=\"{:.1}\" y=\"{}\">{number}</text>",
                escape(&about),
                x + width / 2.0,
                y + ROW / 2.0 + 4.0
            );
        }
        svg.push_str("</g>");
        if let Some(Marked { row, column, title }) = &self.marked
            && cells.iter().any(|(r, c, _)| (r, c) == (row, column))
        {
            let (x, y) = place(*row, *column);
            let _ = write!(
                svg,
                "<rect class=\"marked\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{ROW}\"><title>{}</title></rect>",
                escape(title)
            );
        }
        svg.push_str("</svg>");
        Some(svg)
    }

    /// The cells that have a share: row, column and share.
    fn cells(&self) -> Vec<(usize, usize, f64)> {
        let mut cells = Vec::new();
        for (row, shares) in self.shares.iter().enumerate().take(self.rows.len()) {
            for (column, share) in shares.iter().enumerate().take(self.columns.len()) {
                if share.is_finite() {
                    cells.push((row, column, share.clamp(0.0, 1.0)));
                }
            }
        }
        cells
    }

    /// The titles of both axes: on one line where there is room.
    fn titles(&self) -> Vec<String> {
        let (rows, columns) = (format!("↓ {}", self.rows_title), format!("{} →", self.columns_title));
        let together = axis::width(&rows) + axis::width(&columns) + GAP <= WIDTH;
        let rows = format!("<text class=\"label\" x=\"0\" y=\"0\">{}</text>", escape(&rows));
        let columns = format!("<text class=\"label value\" x=\"{WIDTH}\" y=\"0\">{}</text>", escape(&columns));
        if together { vec![rows + &columns] } else { vec![columns, rows] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::colours::{contrast, modes};

    fn map() -> HeatMap {
        HeatMap {
            id: "memory".into(),
            title: "Joined <frames>".into(),
            columns_title: "bytes".into(),
            columns: ["2K", "4K", "8K"].map(Into::into).into(),
            rows_title: "entries".into(),
            rows: ["1", "2"].map(Into::into).into(),
            shares: vec![vec![0.31, 0.402, 0.449], vec![0.483, 0.6171, f64::NAN]],
            marked: Some(Marked { row: 1, column: 1, title: "enough & small".into() }),
        }
    }

    #[test]
    fn each_share_is_a_cell_with_its_number() {
        let svg = map().render().unwrap();
        assert!(svg.contains("data-marks=\"5\"") && svg.matches("class=\"mark\"").count() == 5, "{svg}");
        for part in ["--share:0.617", ">61.7<", "<title>2, 4K: 61.7 %</title>", "Joined &lt;frames&gt;", "↓ entries"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn the_marked_cell_has_an_outline_where_the_cell_is() {
        let svg = map().render().unwrap();
        let place = |from: &str| svg[svg.find(from).unwrap()..].split_once(" x=").unwrap().1.split_once('>').unwrap().0;
        assert_eq!(place("class=\"marked\""), place("--share:0.617"));
        assert!(svg.contains("<title>enough &amp; small</title>"), "{svg}");
        // A cell that is not there has none.
        let far = Some(Marked { row: 1, column: 2, title: String::new() });
        assert!(!HeatMap { marked: far, ..map() }.render().unwrap().contains("marked"));
    }

    #[test]
    fn a_map_without_shares_is_not_drawn() {
        assert_eq!(HeatMap { shares: vec![], ..map() }.render(), None);
        assert_eq!(HeatMap { columns: vec![], ..map() }.render(), None);
    }

    #[test]
    fn narrow_cells_have_whole_numbers() {
        let columns: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        let shares = vec![vec![1.7; 12]];
        let svg = HeatMap { columns, shares, ..map() }.render().unwrap();
        assert!(svg.matches(">100</text>").count() == 12, "{svg}");
    }

    #[test]
    fn labels_wider_than_their_columns_are_on_two_lines() {
        let heights = |label: &str| {
            let svg =
                HeatMap { columns: vec![label.to_owned(); 12], shares: vec![vec![0.5; 12]], ..map() }.render().unwrap();
            let labels = svg
                .split("class=\"label middle\"")
                .skip(1)
                .map(|rest| rest.split(" y=").nth(1).unwrap()[..5].to_owned());
            labels.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!([heights("64"), heights("65536")], [1, 2]);
    }

    #[test]
    fn long_titles_of_axes_have_a_line_each() {
        let long = "bytes of payload that a run may have at most";
        let svg = HeatMap { columns_title: long.into(), ..map() }.render().unwrap();
        assert_eq!(svg.matches("translate").count(), 2, "{svg}");
        assert_eq!(map().render().unwrap().matches("translate").count(), 1);
    }

    /// The number in a cell is readable (a contrast of 4.5) whatever its share, in light and in dark.
    #[test]
    fn numbers_are_readable_on_every_colour() {
        for mode in modes() {
            let most: f64 = mode.value("heat").parse().unwrap();
            let (card, baton) = (mode.colour("card"), mode.colour("baton"));
            for share in [0.0, 0.5, 1.0] {
                let cover = most * share;
                let behind = [0, 1, 2].map(|i| card[i] * (1.0 - cover) + baton[i] * cover);
                let contrast = contrast(mode.colour("ink"), behind);
                assert!(contrast >= 4.5, "{contrast:.2} at {share} on {}", mode.value("card"));
            }
        }
    }
}
