//! Tables and figures of papers, and the rows that experiments find for them.

use super::source::Paper;
use serde::Serialize;
use std::fmt;

/// A table or figure of a paper that has results.
#[derive(Debug)]
pub struct Exhibit {
    /// Its name: the paper's letters and the place, such as `ra-figure-7`.
    pub id: &'static str,
    /// The paper that it is in.
    pub paper: &'static Paper,
    /// The place in the paper, such as `Figure 7`.
    pub what: &'static str,
    /// Its subject in a few words.
    pub about: &'static str,
    /// How it is repeated here.
    pub method: Method,
    /// How values here differ from the paper's, and for what reason; or why there are none.
    pub why: &'static str,
    /// The ids of the experiments that find its rows.
    pub from: &'static [&'static str],
}

/// How a table or figure is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// By real traffic on this machine.
    Measured,
    /// In virtual time, by the testbed.
    Simulated,
    /// Not at all.
    NotPossible,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Measured => "measured",
            Method::Simulated => "simulated",
            Method::NotPossible => "not possible here",
        })
    }
}

impl fmt::Display for Exhibit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.paper.key, self.what)
    }
}

/// Rows, each with the id of its exhibit.
pub type Rows = Vec<(&'static str, Row)>;

/// Gives rows the id of their exhibit.
pub fn of(id: &'static str, rows: Vec<Row>) -> Rows {
    rows.into_iter().map(|row| (id, row)).collect()
}

/// One value of an exhibit, in the paper and here.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The value's meaning.
    pub name: String,
    /// Unit of both values.
    pub unit: &'static str,
    /// The paper's value, if its text prints one.
    pub paper: Option<f64>,
    /// The value here, if there is one.
    pub here: Option<f64>,
    /// How a page draws the value.
    #[serde(skip)]
    pub drawn: Drawn,
}

/// How a page draws the value of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Drawn {
    /// As a bar, beside that of the paper's value.
    Bar,
    /// As a point of a line.
    Point {
        /// The line's name.
        line: String,
        /// The point's place on the line.
        x: f64,
    },
    /// As a part of a bar: the value here, or the paper's if there is none here.
    Part {
        /// The bars that are compared with each other.
        group: String,
        /// The bar, by its name in the group.
        bar: String,
        /// The meaning of the part's colour, of which a plot has seven; `None` for grey.
        kind: Option<&'static str>,
    },
    /// Not at all.
    Not,
}

impl Row {
    /// A row that stands alone.
    pub fn new(name: impl Into<String>, unit: &'static str, paper: Option<f64>, here: Option<f64>) -> Row {
        Row { name: name.into(), unit, paper, here, drawn: Drawn::Bar }
    }

    /// The same row, drawn in another way.
    #[must_use]
    pub fn drawn(self, drawn: Drawn) -> Row {
        Row { drawn, ..self }
    }

    /// A row on a line of a plot, named by the line and `at`, the name and value of its x.
    pub fn point(line: &str, at: (&str, f64), unit: &'static str, paper: Option<f64>, here: Option<f64>) -> Row {
        let (axis, x) = at;
        Row::new(format!("{line}, {axis} {x}"), unit, paper, here).drawn(Drawn::Point { line: line.to_owned(), x })
    }

    /// The difference to the paper, as a share of the paper's value.
    pub fn difference(&self) -> Option<f64> {
        let (paper, here) = (self.paper?, self.here?);
        (paper != 0.0).then(|| here / paper - 1.0)
    }
}
