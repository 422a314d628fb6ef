//! Plots of benchmarks, made from the csv that they leave.
//!
//! One bar a contender: its median, a line from the first to the third quartile,
//! and its ratio to the first contender.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

const HEADER: &str = "contender,round,ns";
const WIDTH: f64 = 760.0;
const NAMES: f64 = 240.0;
const FIGURES: f64 = 130.0;
const ROW: f64 = 26.0;
const TOP: f64 = 44.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#222}.t{font-weight:600}\
.b{fill:#4a7fb5}.q{stroke:#222;stroke-width:1.5}rect.p{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.q{stroke:#eee}rect.p{fill:#1b1b1b}}";

/// A contender's name and its figures.
type Series = Vec<(String, Vec<f64>)>;

/// Draws `NAME.svg` beside each `NAME.csv` in a directory that has the form of
/// alternated rounds; other files are left alone.
///
/// # Errors
/// If a file cannot be read, understood or written.
pub fn draw_all(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "csv") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        if text.lines().next() != Some(HEADER) {
            continue;
        }
        let series = parse(&text).with_context(|| format!("cannot understand {}", path.display()))?;
        let title = path.file_stem().unwrap_or_default().to_string_lossy().replace('-', " ");
        fs::write(path.with_extension("svg"), svg(&title, &series))?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<Series> {
    let mut series = Series::new();
    for line in text.lines().skip(1) {
        // The name is quoted and may hold commas; the figures are not and may not.
        let mut fields = line.rsplitn(3, ',');
        let (Some(ns), Some(_round), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            bail!("not three fields: {line}");
        };
        let (name, ns) = (name.trim_matches('"'), ns.parse().with_context(|| format!("not a number: {line}"))?);
        match series.last_mut() {
            Some((last, values)) if last == name => values.push(ns),
            _ => series.push((name.to_owned(), vec![ns])),
        }
    }
    Ok(series)
}

fn svg(title: &str, series: &Series) -> String {
    let quartiles: Vec<[f64; 3]> = series.iter().map(|(_, values)| quartiles(values)).collect();
    let most = quartiles.iter().map(|q| q[2]).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - NAMES - FIGURES) / most;
    let height = TOP + ROW * series.len() as f64 + 10.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <style>{STYLE}</style><rect class=\"p\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"t\" x=\"10\" y=\"22\">{}: ns an operation, median and quartiles</text>\n",
        escaped(title)
    );
    for (row, ((name, _), &[q1, median, q3])) in series.iter().zip(&quartiles).enumerate() {
        let y = TOP + ROW * row as f64;
        let (middle, base) = (y + 9.0, y + 14.0);
        let x = |ns: f64| NAMES + ns * scale;
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{base:.0}\" text-anchor=\"end\">{}</text>\
             <rect class=\"b\" x=\"{NAMES}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"18\"/>\
             <line class=\"q\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.0}\" y2=\"{middle:.0}\"/>\
             <text x=\"{:.1}\" y=\"{base:.0}\">{median:.1} ({:.2}×)</text>",
            NAMES - 8.0,
            escaped(name),
            median * scale,
            x(q1),
            x(q3),
            x(q3) + 8.0,
            median / quartiles[0][1],
        );
    }
    out.push_str("</svg>\n");
    out
}

fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str =
        "contender,round,ns\n\"memcpy\",0,10.0\n\"memcpy\",1,30.0\n\"memcpy\",2,20.0\n\"a, <b>\",0,40.0\n";

    #[test]
    fn figures_are_grouped_by_contender() {
        let series = parse(CSV).unwrap();
        assert_eq!(series[0], ("memcpy".to_owned(), vec![10.0, 30.0, 20.0]));
        assert_eq!(series[1].0, "a, <b>");
        assert!(parse("contender,round,ns\n\"a\",0,x\n").is_err());
        assert!(parse("contender,round,ns\na\n").is_err());
    }

    #[test]
    fn a_bar_is_as_long_as_its_median() {
        let text = svg("copy & sum", &parse(CSV).unwrap());
        // 40 ns fill the width that is left, 20 ns half of it.
        assert!(text.contains("width=\"390.0\"") && text.contains("width=\"195.0\""), "{text}");
        assert!(text.contains("40.0 (2.00×)"), "{text}");
        assert!(text.contains("copy &amp; sum") && text.contains("a, &lt;b&gt;"), "{text}");
    }
}
