//! Bars of parts: one for the paper and each variant here, in a group for each value of an axis, with a
//! key of the colours.

use crate::experiment::{Drawn, Row};
use crate::report::Side;
use crate::report::plot::{self, Group, Mark, Part, Plot};
use baton_apps::html_text::escape;
use std::fmt::Write as _;

/// The kinds of parts that rows have, each once: a kind has the colour of its place in all plots of them.
pub fn kinds(rows: &[Row]) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for row in rows {
        if let Drawn::Part { kind: Some(kind), .. } = row.drawn
            && !kinds.contains(&kind)
        {
            kinds.push(kind);
        }
    }
    kinds
}

/// The bars that rows of one unit are parts of, as a `figure` element; `None` if there are none.
pub fn render<'a>(
    id: &str,
    title: &str,
    unit: &'static str,
    kinds: &[&'static str],
    rows: impl Iterator<Item = &'a Row>,
) -> Option<String> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let Drawn::Part { group, bar, kind } = &row.drawn else { continue };
        let Some(value) = row.here.or(row.paper).filter(|value| value.is_finite()) else { continue };
        let number = kind.and_then(|kind| kinds.iter().position(|known| *known == kind));
        let part = Part { label: row.name.clone(), value, colour: plot::colour(number) };
        parts(&mut groups, group, bar).push(part);
    }
    let plot = Plot { id: id.to_owned(), title: title.to_owned(), unit, groups };
    let svg = plot.render()?;
    let mut key = String::new();
    for (number, kind) in kinds.iter().enumerate() {
        let _ = write!(key, "<i class=\"b line-{number}\"></i>{}", escape(kind));
    }
    key.push_str("<i class=\"k\"></i>not in the paper");
    Some(format!("<figure><h3>{}</h3>{svg}<figcaption class=\"key\">{key}</figcaption></figure>", escape(unit)))
}

/// The parts of a bar, which is added if it is new.
fn parts<'a>(groups: &'a mut Vec<Group>, group: &str, bar: &str) -> &'a mut Vec<Part> {
    let at = groups.iter().position(|known| known.label == group).unwrap_or_else(|| {
        groups.push(Group { label: group.to_owned(), rows: Vec::new() });
        groups.len() - 1
    });
    let rows = &mut groups[at].rows;
    let at = rows.iter().position(|known| known.label == bar).unwrap_or_else(|| {
        rows.push(plot::Row { label: bar.to_owned(), side: Side::Baton, mark: Mark::Stack(Vec::new()) });
        rows.len() - 1
    });
    let Mark::Stack(parts) = &mut rows[at].mark else { unreachable!("only such marks are pushed") };
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_value_here_or_the_papers_and_each_kind_has_a_colour() {
        let part = |bar: &str, kind, paper, here| {
            let drawn = Drawn::Part { group: "4 bytes".into(), bar: bar.into(), kind };
            Row::new(format!("{bar}, <{}>", kind.unwrap_or("none")), "%", paper, here).drawn(drawn)
        };
        let rows = [
            part("paper", Some("User"), Some(25.0), None),
            part("paper", Some("IP"), Some(75.0), None),
            part("here", Some("IP"), Some(75.0), Some(60.0)),
            part("here", None, None, Some(40.0)),
            Row::new("alone", "%", Some(1.0), Some(1.0)),
        ];
        let kinds = kinds(&rows);
        assert_eq!(kinds, ["User", "IP"]);
        let figure = render("id", "title", "%", &kinds, rows.iter()).unwrap();
        assert!(figure.contains("data-plot=\"id\" data-marks=\"4\""), "{figure}");
        assert!(
            figure.contains("<i class=\"b line-0\"></i>User<i class=\"b line-1\"></i>IP<i class=\"k\">"),
            "{figure}"
        );
        assert!(
            figure.contains("here, &lt;IP&gt;: 60.0 %") && figure.contains("here, &lt;none&gt;: 40.0 %"),
            "{figure}"
        );
        assert!(!figure.contains("alone") && render("id", "title", "%", &kinds, rows[4..].iter()).is_none());
    }
}
