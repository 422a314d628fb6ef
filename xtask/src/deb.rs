//! Takes files out of a Debian package without installing it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run;

/// Calls `take` on the directory of a package's files, which are removed afterwards. They are
/// unpacked into `scratch`, which is created.
pub fn with_files_of(package: &str, scratch: &Path, take: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let result = unpack(package, scratch).and_then(|tree| take(&tree));
    // Whether or not that worked, and whether or not the directory exists.
    let _ = fs::remove_dir_all(scratch);
    result
}

fn unpack(package: &str, scratch: &Path) -> Result<PathBuf> {
    fs::create_dir_all(scratch)?;
    let mut download = run::program("apt-get", &["-qq", "-o", "APT::Sandbox::User=root", "download", package]);
    run::succeed(download.current_dir(scratch))?;
    let archive = only(scratch, |name| name.ends_with(".deb"))?;
    let tree = scratch.join("tree");
    run::succeed(run::program("dpkg-deb", &["-x"]).arg(&archive).arg(&tree))?;
    Ok(tree)
}

/// The one entry of a directory whose name is wanted.
pub fn only(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let found = entries.flatten().find(|entry| wanted(&entry.file_name().to_string_lossy()));
    Ok(found.with_context(|| format!("nothing of that name in {}", directory.display()))?.path())
}
