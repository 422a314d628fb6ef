//! Tarballs: the tree, and its debug information.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::VERSION;
use super::tree::Tree;
use crate::run;

/// Packs both trees into `to`. `time` is that of every file, in seconds since 1970.
pub fn make(tree: &Tree, to: &Path, time: &str) -> Result<Vec<PathBuf>> {
    let name = format!("baton-{VERSION}-{}-linux", std::env::consts::ARCH);
    Ok(vec![
        pack(&tree.root, &name, &to.join(format!("{name}.tar.gz")), time)?,
        pack(&tree.debug, &name, &to.join(format!("{name}-debug.tar.gz")), time)?,
    ])
}

/// Packs a directory, whose name becomes `name`, the same each time.
fn pack(directory: &Path, name: &str, archive: &Path, time: &str) -> Result<PathBuf> {
    let mut command = run::program("tar", &["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    command.args(["--mode=u+w,go=rX", "--use-compress-program=gzip --no-name"]);
    command.args([format!("--mtime=@{time}"), format!("--transform=flags=r;s|^\\.|{name}|")]);
    command.arg("--file").arg(archive).arg("--directory").arg(directory).arg(".");
    run::succeed(&mut command)?;
    Ok(archive.to_owned())
}
