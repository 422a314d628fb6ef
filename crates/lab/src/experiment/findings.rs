//! Results of an experiment, in every form.

use super::exhibit::Rows;
use crate::report::claim::Claim;
use serde::Serialize;

/// Results of an experiment.
#[derive(Clone, Debug)]
pub struct Findings {
    /// For a terminal.
    pub table: String,
    /// Everything, for other programs.
    pub json: String,
    /// Every run as comma-separated values.
    pub csv: Option<String>,
    /// A page with plots.
    pub page: Option<String>,
    /// The papers' statements, and what was found here.
    pub claims: Vec<Claim>,
    /// Rows of exhibits, each with the exhibit's id.
    pub rows: Rows,
    /// More files, each with its name.
    pub files: Vec<(String, String)>,
}

/// Results and claims as one object of JSON.
#[derive(Serialize)]
struct Whole<'a, T> {
    #[serde(flatten)]
    results: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<&'a [Claim]>,
}

impl Findings {
    /// Findings without values, page and files.
    ///
    /// # Errors
    /// If the results cannot be written as an object of JSON.
    pub fn new(results: &impl Serialize, table: String, claims: Vec<Claim>) -> anyhow::Result<Findings> {
        let whole = Whole { results, claims: Some(&claims[..]).filter(|claims| !claims.is_empty()) };
        let json = serde_json::to_string_pretty(&whole)?;
        Ok(Findings { table, json, csv: None, page: None, claims, rows: Vec::new(), files: Vec::new() })
    }

    /// The same with every run as comma-separated values, and a page.
    #[must_use]
    pub fn with(self, csv: String, page: String) -> Findings {
        Findings { csv: Some(csv), page: Some(page), ..self }
    }

    /// The same with rows of exhibits.
    #[must_use]
    pub fn showing(self, rows: Rows) -> Findings {
        Findings { rows, ..self }
    }

    /// All files of an experiment, each with its name.
    pub fn named(&self, id: &str) -> Vec<(String, &str)> {
        let whole = [("json", Some(&self.json)), ("csv", self.csv.as_ref()), ("html", self.page.as_ref())];
        let whole = whole.into_iter().filter_map(|(end, text)| Some((format!("{id}.{end}"), text?.as_str())));
        whole.chain(self.files.iter().map(|(name, text)| (name.clone(), text.as_str()))).collect()
    }
}
