//! Renders a ratio in a table of the page.

/// A ratio of costs, as a cell of a table.
pub(super) fn ratio_cell(ratio: Option<f64>) -> String {
    match ratio {
        None => "<td>–</td>".to_owned(),
        Some(ratio) => {
            let class = match ratio {
                ratio if ratio < 0.95 => " good",
                ratio if ratio > 1.05 => " bad",
                _ => "",
            };
            format!("<td class=\"num{class}\">{ratio:.2}×</td>")
        }
    }
}
