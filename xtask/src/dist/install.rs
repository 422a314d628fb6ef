//! `cargo xtask install`: the tree, copied to where it is to be.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::tree::{CONFIGURATION, Tree};

/// Copies the tree into `destdir`, or into `/` if that is empty. A configuration that is there
/// stays: its owner may have changed it.
pub fn copy(tree: &Tree, destdir: &Path) -> Result<()> {
    let root = if destdir.as_os_str().is_empty() { Path::new("/") } else { destdir };
    for file in files(&tree.root)? {
        let (from, to) = (tree.root.join(&file), root.join(&file));
        if file == Path::new(CONFIGURATION) && to.exists() {
            println!("{} stays as it is", to.display());
            continue;
        }
        place(&from, &to).with_context(|| format!("cannot install {}", to.display()))?;
    }
    if root == Path::new("/") {
        println!("Installed. Have the system read what is new:\n  systemd-sysusers; ldconfig; systemctl daemon-reload");
    }
    Ok(())
}

/// Puts a file or link into its place at once: a program that runs keeps its old file.
fn place(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().expect("a file is in a directory"))?;
    let mut new = to.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => (),
    }
    if from.is_symlink() {
        symlink(fs::read_link(from)?, &new)?;
    } else {
        fs::copy(from, &new)?;
    }
    Ok(fs::rename(new, to)?)
}

/// Every file and link below a directory, from there.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut left) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = left.pop() {
        for entry in fs::read_dir(directory.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            if entry.file_type()?.is_dir() { left.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}
