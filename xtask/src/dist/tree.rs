//! Every file that is shipped, at its place.
//!
//! ```text
//!   PREFIX/bin/baton
//!   PREFIX/lib/baton/libbaton_shim.so       what `baton run` loads into programs
//!   PREFIX/lib/libbaton.so.0.2.0            with its two links, pkgconfig/ and include/
//!   PREFIX/lib/systemd/system, sysusers.d   the service, and the engine's user
//!   PREFIX/share                            manual pages, completions, changelog, licences
//!   /etc/baton/baton.toml                   wherever PREFIX is: the unit names it
//! ```
//!
//! `baton run` finds its library from its own place, so a tree works wherever it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{library, notices, symbols};
use crate::run;

/// The configuration file, below the root.
pub const CONFIGURATION: &str = "etc/baton/baton.toml";

/// A tree of files as they are to be installed, and one of their debug information.
#[derive(Debug)]
pub struct Tree {
    /// The tree that becomes `/`.
    pub root: PathBuf,
    /// Debug information, to be laid over the same `/`.
    pub debug: PathBuf,
    /// Where everything but the configuration is, such as `/usr`.
    prefix: String,
}

impl Tree {
    /// Makes both trees of what is in `built`, anew, below `directory`.
    ///
    /// # Errors
    /// If something is not in `built`, or a program that makes a part fails.
    pub fn make(built: &Path, directory: &Path, prefix: &str) -> Result<Tree> {
        // As it may be left from an earlier run.
        let _ = fs::remove_dir_all(directory);
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let tree = Tree { root: directory.join("files"), debug: directory.join("debug"), prefix: prefix.to_owned() };
        for name in ["baton", "libbaton_shim.so", "libbaton.a"] {
            ensure!(built.join(name).is_file(), "no {name} in {}", built.display());
        }
        let program = fs::canonicalize(built.join("baton"))?;
        tree.programs(built, directory)?;
        tree.development()?;
        tree.service(&program)?;
        tree.documents()?;
        tree.command_line(&program)?;
        Ok(tree)
    }

    /// Removes both trees.
    pub fn remove(self) -> Result<()> {
        let directory = self.root.parent().expect("a tree is below a directory");
        fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))
    }

    /// A place below the prefix; its directory is made.
    fn place(&self, path: &str) -> Result<PathBuf> {
        made(self.root.join(&self.prefix[1..]).join(path))
    }

    fn programs(&self, built: &Path, directory: &Path) -> Result<()> {
        let linked = directory.join(library::file_name());
        library::link(built, &linked)?;
        let debug = self.debug.join(&self.prefix[1..]).join("lib/debug/.build-id");
        let shared = format!("lib/{}", library::file_name());
        for (from, to, mode) in [
            (built.join("baton"), "bin/baton", 0o755),
            (built.join("libbaton_shim.so"), "lib/baton/libbaton_shim.so", 0o644),
            (linked.clone(), shared.as_str(), 0o644),
        ] {
            let place = self.place(to)?;
            symbols::split(&from, &place, &debug)?;
            fs::set_permissions(&place, fs::Permissions::from_mode(mode))?;
        }
        fs::remove_file(linked)?;
        library::links(self.place(&shared)?.parent().expect("a file is in a directory"))
    }

    fn development(&self) -> Result<()> {
        fs::copy("crates/libbaton/include/baton.h", self.place("include/baton.h")?)?;
        write(&self.place("lib/pkgconfig/libbaton.pc")?, &library::pkg_config(&self.prefix)?)
    }

    fn service(&self, program: &Path) -> Result<()> {
        let unit = fs::read_to_string("packaging/baton.service").context("cannot read packaging/baton.service")?;
        let unit = replace(&unit, "=/usr/bin/baton ", &format!("={}/bin/baton ", self.prefix))?;
        write(&self.place("lib/systemd/system/baton.service")?, &unit)?;
        fs::copy("packaging/baton.sysusers", self.place("lib/sysusers.d/baton.conf")?)?;
        let default = run::capture(Command::new(program).args(["service", "--print-config"]))?;
        let own = replace(&default, "\nuser = \"nobody\"\n", "\nuser = \"baton\"\n")?;
        write(&made(self.root.join(CONFIGURATION))?, &own)
    }

    fn documents(&self) -> Result<()> {
        let changelog = self.place("share/doc/baton/changelog")?;
        fs::copy("CHANGELOG.md", &changelog)?;
        compress(&changelog)?;
        write(&self.place("share/doc/baton/copyright")?, &notices::text()?)
    }

    fn command_line(&self, program: &Path) -> Result<()> {
        let pages = self.root.join(&self.prefix[1..]).join("share/man/man1");
        fs::create_dir_all(&pages)?;
        run::succeed(Command::new(program).arg("man").arg(&pages))?;
        for page in fs::read_dir(&pages)? {
            compress(&page?.path())?;
        }
        for (shell, place) in [
            ("bash", "share/bash-completion/completions/baton"),
            ("fish", "share/fish/vendor_completions.d/baton.fish"),
            ("zsh", "share/zsh/site-functions/_baton"),
        ] {
            write(&self.place(place)?, &run::capture(Command::new(program).args(["completions", shell]))?)?;
        }
        Ok(())
    }
}

/// The path, once its directory is made.
fn made(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(path.parent().expect("a file is in a directory"))?;
    Ok(path)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The text with one passage replaced, which must be there: else the source has changed.
fn replace(text: &str, passage: &str, by: &str) -> Result<String> {
    ensure!(text.matches(passage).count() == 1, "{passage:?} must occur once in a file that is packaged");
    Ok(text.replace(passage, by))
}

/// Compresses a file in place, without its name and time, so that it always has the same bytes.
fn compress(path: &Path) -> Result<()> {
    run::succeed(run::program("gzip", &["-9", "--no-name", "--force"]).arg(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passage_that_is_gone_is_an_error() {
        assert_eq!(replace("a b c", "b", "d").unwrap(), "a d c");
        assert!(replace("a c", "b", "d").is_err());
        assert!(replace("b b", "b", "d").is_err());
    }
}
