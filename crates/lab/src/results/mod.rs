//! Tables and figures of papers with the rows that were found: as text, JSON, CSV and a page.

mod pairs;
mod stacks;

use crate::experiment::{Drawn, Exhibit, Method, Row};
use crate::report::claim::{self, Claim};
use crate::report::lines::{Line, Lines};
use crate::report::{Machine, html, short};
use baton_apps::html_text::escape;
use serde::Serialize;
use std::fmt::Write as _;

/// A table or figure, and the rows that were found for it.
#[derive(Debug)]
pub struct Shown {
    /// The table or figure.
    pub exhibit: &'static Exhibit,
    /// The values that were found, in the order to show them.
    pub rows: Vec<Row>,
}

/// Tables and figures as one object of JSON.
#[derive(Serialize)]
struct Whole<'a> {
    experiments: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    id: &'static str,
    paper: &'static str,
    what: &'static str,
    method: Method,
    why: &'static str,
    rows: &'a [Row],
}

/// The results as one object of JSON, `{"experiments": [...]}`.
///
/// # Errors
/// If a value has no form in JSON.
pub fn json<'a>(shown: &'a [Shown]) -> anyhow::Result<String> {
    let entry = |shown: &'a Shown| {
        let Exhibit { id, paper, what, method, why, .. } = *shown.exhibit;
        Entry { id, paper: paper.key, what, method, why, rows: &shown.rows }
    };
    let experiments = shown.iter().map(entry).collect();
    Ok(serde_json::to_string_pretty(&Whole { experiments })?)
}

/// Every row as comma-separated values.
pub fn csv(shown: &[Shown]) -> String {
    let value = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let mut out = "id,name,unit,paper,here\n".to_owned();
    for Shown { exhibit, rows } in shown {
        for Row { name, unit, paper, here, .. } in rows {
            let _ = writeln!(out, "{},\"{name}\",{unit},{},{}", exhibit.id, value(*paper), value(*here));
        }
    }
    out
}

/// A table for a terminal.
pub fn table(shown: &[Shown], claims: &[Claim]) -> String {
    let mut out = String::new();
    for Shown { exhibit, rows } in shown {
        let _ = writeln!(out, "{exhibit}: {} ({})", exhibit.about, exhibit.method);
        let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        if !rows.is_empty() {
            let _ = writeln!(out, "  {:width$}  {:>10}  {:>10}", "", "paper", "here");
        }
        for row in rows {
            let [paper, here, off] = cells(row);
            let _ = writeln!(out, "  {:width$}  {paper:>10}  {here:>10}  {}{off}", row.name, row.unit);
        }
        let _ = writeln!(out, "{}\n", indented(exhibit.why));
    }
    claim::lines(&mut out, claims);
    out
}

/// The paper's value, the one here, and the difference, as texts.
fn cells(row: &Row) -> [String; 3] {
    let text = |value: Option<f64>| value.map_or("–".to_owned(), short);
    let off = row.difference().map_or(String::new(), |share| format!(" ({:+.0} %)", share * 100.0));
    [text(row.paper), text(row.here), off]
}

/// A text in lines of at most 100 characters, each after two spaces.
fn indented(text: &str) -> String {
    let mut lines = vec![String::from(" ")];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one is there");
        if line.len() + word.len() > 100 {
            lines.push(format!("  {word}"));
        } else {
            *line = format!("{line} {word}");
        }
    }
    lines.join("\n")
}

/// A page with a plot and a table for each.
pub fn page(shown: &[Shown], claims: &[Claim], machine: &Machine) -> String {
    let mut body = String::new();
    for Shown { exhibit, rows } in shown {
        let _ = write!(
            body,
            "<section id=\"{0}\"><h2>{1}: {2}</h2><p class=\"soft\">{0} · {3}</p><p>{4}</p>",
            exhibit.id,
            escape(&exhibit.to_string()),
            escape(exhibit.about),
            exhibit.method,
            escape(exhibit.why)
        );
        let plots = plots(exhibit.id, rows);
        if !plots.is_empty() {
            let _ = write!(body, "<div class=\"plots\">{plots}</div>");
        }
        if !rows.is_empty() {
            table_of(&mut body, rows);
        }
        body.push_str("</section>");
    }
    if !claims.is_empty() {
        body.push_str("<h2>The papers' statements</h2>");
        claim::paragraphs(&mut body, claims);
    }
    let mut keys: Vec<&str> = shown.iter().map(|shown| shown.exhibit.paper.key).collect();
    keys.dedup();
    let lead = format!(
        "Values of the papers (dashed or grey) beside those found here, on {} × {}, Linux {}. A dash means that the paper \
         prints no value, or that there is none here.",
        machine.cpus, machine.cpu, machine.kernel
    );
    html::page(&format!("{}: tables and figures, repeated", keys.join(", ")), &lead, &body)
}

/// A table of all rows, folded if there are many.
fn table_of(body: &mut String, rows: &[Row]) {
    let many = rows.len() > 24;
    if many {
        let _ = write!(body, "<details><summary>{} rows</summary>", rows.len());
    }
    body.push_str(
        "<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th></th><th>paper</th><th>here</th><th>unit</th><th>difference</th>\
         </tr></thead><tbody>",
    );
    for row in rows {
        let [paper, here, off] = cells(row);
        let off = off.trim_matches([' ', '(', ')']);
        let (name, unit) = (escape(&row.name), escape(row.unit));
        let _ = write!(body, "<tr><th>{name}</th><td>{paper}</td><td>{here}</td><td>{unit}</td><td>{off}</td></tr>");
    }
    body.push_str("</tbody></table></div>");
    if many {
        body.push_str("</details>");
    }
}

/// Plots for each unit: lines, pairs of bars, and bars of parts, as the rows say.
fn plots(id: &str, rows: &[Row]) -> String {
    let mut units: Vec<&'static str> = rows.iter().map(|row| row.unit).collect();
    units.sort_unstable();
    units.dedup();
    let (mut out, kinds) = (String::new(), stacks::kinds(rows));
    for (number, unit) in units.into_iter().enumerate() {
        let of_unit = || rows.iter().filter(move |row| row.unit == unit);
        let lines = lines(of_unit());
        if !lines.is_empty() {
            let plot = Lines { id: format!("{id}-line-{number}"), title: format!("{id}, {unit}"), unit, lines };
            let _ = write!(out, "<figure>{}</figure>", plot.render());
        }
        let (stack, title) = (format!("{id}-stack-{number}"), format!("{id}, {unit}"));
        out.extend(stacks::render(&stack, &title, unit, &kinds, of_unit()));
        let alone = of_unit().filter(|row| row.drawn == Drawn::Bar);
        if let Some(svg) = pairs::render(&format!("{id}-bar-{number}"), &format!("{id}, {unit}"), alone) {
            let _ = write!(out, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(unit));
        }
    }
    out
}

/// The lines that rows are points of: the paper's, and those here.
fn lines<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Drawn::Point { line: name, x } = &row.drawn else { continue };
        for (value, paper) in [(row.here, false), (row.paper, true)] {
            let Some(y) = value else { continue };
            match lines.iter_mut().find(|line| line.label == *name && line.paper == paper) {
                Some(line) => line.points.push((*x, y)),
                None => lines.push(Line { label: name.clone(), points: vec![(*x, y)], paper }),
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::exhibits::all;

    fn shown() -> Vec<Shown> {
        let exhibit = all().find(|exhibit| exhibit.id == "ra-figure-7").unwrap();
        let rows = vec![
            Row::new("gain, <SMP>", "%", Some(67.0), Some(80.4)),
            Row::new("gain, Xen", "%", Some(86.0), None),
            Row::point("cost", ("limit", 20.0), "ns", None, Some(3.0)),
            Row::point("cost", ("limit", 44.0), "ns", None, Some(2.0)),
        ];
        vec![Shown { exhibit, rows }]
    }

    #[test]
    fn json_has_exactly_the_agreed_keys() {
        let value: serde_json::Value = serde_json::from_str(&json(&shown()).unwrap()).unwrap();
        let entry = &value["experiments"][0];
        let keys: Vec<&String> = entry.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["id", "method", "paper", "rows", "what", "why"]);
        assert_eq!(
            (&entry["id"], &entry["paper"], &entry["what"]),
            (&"ra-figure-7".into(), &"RA".into(), &"Figure 7".into())
        );
        assert_eq!(entry["method"], "measured");
        let row = serde_json::json!({"name": "gain, Xen", "unit": "%", "paper": 86.0, "here": null});
        assert_eq!(entry["rows"][1], row);
    }

    #[test]
    fn a_table_has_both_values_and_the_difference() {
        let text = table(&shown(), &[]);
        assert!(text.contains("RA Figure 7: throughput"), "{text}");
        let line = text.lines().find(|line| line.contains("<SMP>")).unwrap();
        assert!(line.contains("67") && line.contains("80.4") && line.ends_with("% (+20 %)"), "{line}");
        assert!(text.lines().any(|line| line.contains("Xen") && line.contains('–')), "{text}");
    }

    #[test]
    fn a_page_draws_points_as_lines_and_others_as_bars() {
        let page = page(&shown(), &[], &Machine::default());
        assert!(page.contains("data-plot=\"ra-figure-7-line-1\" data-marks=\"2\""), "{page}");
        assert!(page.contains("data-plot=\"ra-figure-7-bar-0\" data-marks=\"3\""), "{page}");
        assert!(page.contains("gain, &lt;SMP&gt;") && !page.contains("<SMP>"));
    }

    #[test]
    fn values_are_separated_by_commas() {
        let text = csv(&shown());
        assert!(text.contains("ra-figure-7,\"gain, Xen\",%,86,\n"), "{text}");
    }
}
