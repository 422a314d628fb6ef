//! The rules' settings, from `xtask/tidy.toml`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Where the rules are.
pub const PATH: &str = "xtask/tidy.toml";

/// The contents of `tidy.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Crates, by directory: each may use only those before it.
    pub order: Vec<String>,
    /// Crates that call nothing of the operating system.
    pub pure: Vec<String>,
    /// Crates outside the order that all may use in tests.
    pub test_crates: Vec<String>,
    /// Licences, by SPDX name, that a dependency may have.
    pub licences: Vec<String>,
    /// Dependencies from outside.
    #[serde(rename = "dependency", default)]
    pub dependencies: Vec<Dependency>,
    /// Turns of phrase that are left in a crate's comments; see `english`.
    #[serde(default)]
    pub english: BTreeMap<String, usize>,
    /// Files that a rule does not hold for.
    #[serde(rename = "exception", default)]
    pub exceptions: Vec<Exception>,
}

/// A dependency from outside that is allowed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dependency {
    /// Its name on crates.io.
    pub name: String,
    /// Our crates that may use it.
    #[serde(default)]
    pub crates: Vec<String>,
    /// Our crates that may use it in tests and benches only.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Why it is worth it.
    pub why: String,
}

/// A file that a rule does not hold for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// The name of the rule that does not apply.
    pub rule: String,
    /// The file to which it does not apply, from the top of the workspace.
    pub path: String,
    /// Why; for people.
    #[allow(dead_code, reason = "required of whoever writes the file, read by people")]
    pub why: String,
}

impl Rules {
    /// Reads `tidy.toml`.
    ///
    /// # Errors
    /// If it cannot be read or understood.
    pub fn load() -> Result<Rules> {
        let text = fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
        toml::from_str(&text).with_context(|| format!("cannot understand {PATH}"))
    }
}
