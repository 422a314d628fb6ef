//! CPython's own tests, which Debian has in a separate package: unpacked for the tests of
//! `baton run`, and not installed, since that would upgrade Python.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{deb, run};

/// Debian's Python: the tests are of its version.
const PYTHON: &str = "/usr/bin/python3";

/// Where tests look for them: next to cargo's directory for tests.
fn place() -> PathBuf {
    run::target().join("cpython")
}

/// Whether they are there, or there is no Python of Debian's.
pub fn is_settled() -> bool {
    place().join("test").is_dir() || !Path::new(PYTHON).exists() || !run::on_path("apt-get")
}

/// Fetches the package and takes the tests out.
pub fn fetch() -> Result<()> {
    let place = place();
    let script = "import sys; print('%d.%d' % sys.version_info[:2])";
    let version = run::capture(&mut run::program(PYTHON, &["-c", script]))?;
    let (version, package) = (version.trim(), format!("libpython{}-testsuite", version.trim()));
    let take = |tree: &Path| {
        fs::create_dir_all(&place)?;
        // In one step: a part of them would be taken for all.
        Ok(fs::rename(tree.join(format!("usr/lib/python{version}/test")), place.join("test"))?)
    };
    deb::with_files_of(&package, &place.with_extension("unpacked"), take).context("CPython's tests of sockets")
}
