//! A clean Debian, made of this host's own packages.
//!
//! `debootstrap` takes minutes and the network for each run. This takes seconds: every essential
//! package, and the few that the test uses, with all that they depend on, file by file as
//! Debian's package list of this host has them, and with dpkg's records of these packages only.
//! dpkg in there checks dependencies against what is there, and nothing else is.

use baton_testkit::{output, run};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packages besides the essential ones: the dependency of ours, and those that the test uses.
const USED: [&str; 6] = ["iproute2", "passwd", "curl", "gcc", "libc6-dev", "pkg-config"];

/// Where dpkg keeps its records.
const RECORDS: &str = "var/lib/dpkg";

/// Files of dpkg, the loader and `useradd`, which change with every package.
const KEPT: [&str; 5] = ["etc/.pwd.lock", "etc/ld.so.cache", "var/cache/ldconfig", "var/lib/dpkg", "var/log"];

/// A directory that is a Debian.
pub struct Root {
    pub path: PathBuf,
}

impl Root {
    /// Makes one below `directory`.
    ///
    /// # Errors
    /// Why this host has none to give.
    pub fn assemble(directory: &Path) -> Result<Root, String> {
        let installed = Installed::read()?;
        let packages = installed.closure(&USED)?;
        let root = Root { path: directory.join("debian") };
        fs::create_dir(&root.path).unwrap();
        root.copy(&files(&packages));
        root.records(&packages);
        for name in ["passwd", "group"] {
            let master = root.path.join(format!("usr/share/base-passwd/{name}.master"));
            fs::copy(&master, root.path.join("etc").join(name)).map_err(|error| format!("{name}.master: {error}"))?;
        }
        for name in ["dev", "proc", "run", "srv", "sys", "tmp"] {
            fs::create_dir_all(root.path.join(name)).unwrap();
        }
        // An alternative, which no package lists.
        let _ = symlink("dash", root.path.join("usr/bin/sh"));
        run(Command::new("chroot").arg(&root.path).arg("/sbin/ldconfig"));
        Ok(root)
    }

    /// Copies files with their modes, owners and links.
    fn copy(&self, files: &BTreeSet<PathBuf>) {
        let mut pack = Command::new("tar");
        pack.args(["--create", "--no-recursion", "--directory=/", "--null", "--verbatim-files-from"]);
        let mut pack = pack.arg("--files-from=-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut unpack = Command::new("tar");
        unpack.args(["--extract", "--preserve-permissions", "--numeric-owner", "--directory"]).arg(&self.path);
        let unpack = unpack.stdin(pack.stdout.take().unwrap()).stderr(Stdio::piped()).spawn().unwrap();
        let mut names = pack.stdin.take().unwrap();
        for file in files {
            names.write_all(file.strip_prefix("/").unwrap().as_os_str().as_encoded_bytes()).unwrap();
            names.write_all(b"\0").unwrap();
        }
        drop(names);
        assert!(pack.wait().unwrap().success(), "tar cannot read this host's files");
        let out = unpack.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// Tells dpkg in there which packages there are.
    fn records(&self, packages: &BTreeSet<String>) {
        let records = self.path.join(RECORDS);
        for directory in ["info", "updates", "triggers"] {
            fs::create_dir_all(records.join(directory)).unwrap();
        }
        let host = Path::new("/").join(RECORDS);
        let status = fs::read_to_string(host.join("status")).unwrap();
        let name = |stanza: &&str| stanza.lines().find_map(|line| line.strip_prefix("Package: ")).map(str::to_owned);
        let known = status.split("\n\n").filter(|stanza| name(stanza).is_some_and(|name| packages.contains(&name)));
        let known: Vec<&str> = known.map(str::trim).collect();
        fs::write(records.join("status"), known.join("\n\n") + "\n").unwrap();
        for entry in fs::read_dir(host.join("info")).unwrap() {
            let entry = entry.unwrap();
            let file = entry.file_name().into_string().unwrap();
            // `name.list`, or `name:architecture.list`; a name has dots, too.
            let Some((of, _)) = file.rsplit_once('.') else { continue };
            if packages.contains(of.split(':').next().unwrap()) {
                fs::copy(entry.path(), records.join("info").join(file)).unwrap();
            }
        }
        for file in ["info/format", "triggers/ldconfig"] {
            fs::copy(host.join(file), records.join(file)).unwrap();
        }
    }

    /// Paths of all files, and the lines of the lists of users and groups. [`KEPT`] and backups of
    /// these lists are left out.
    pub fn contents(&self) -> BTreeSet<String> {
        let found = run(Command::new("find").current_dir(&self.path).args([".", "-xdev", "-printf", "%P\\n"]));
        let is_kept = |path: &str| KEPT.iter().any(|kept| Path::new(path).starts_with(kept));
        let is_copy = |path: &str| path.starts_with("etc/") && path.ends_with('-');
        let mut contents: BTreeSet<String> =
            found.lines().filter(|path| !is_kept(path) && !is_copy(path)).map(str::to_owned).collect();
        for list in ["etc/passwd", "etc/group"] {
            contents.extend(fs::read_to_string(self.path.join(list)).unwrap().lines().map(str::to_owned));
        }
        contents
    }
}

/// Paths of all files of packages, each by its real directory: `/bin` may be a link.
fn files(packages: &BTreeSet<String>) -> BTreeSet<PathBuf> {
    let list = run(Command::new("dpkg-query").arg("--listfiles").args(packages));
    let links = ["bin", "sbin", "lib", "lib64"].map(|name| format!("/{name}"));
    let listed = list.lines().chain(links.iter().map(String::as_str));
    // Lines on diversions are sentences, and some images leave documentation out.
    let paths = listed.map(Path::new).filter(|path| path.is_absolute() && path.symlink_metadata().is_ok());
    let real = |path: &Path| Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
    paths.filter_map(real).collect()
}

/// The packages of this host.
struct Installed {
    essential: BTreeSet<String>,
    /// Alternatives for each dependency, by package.
    depends: BTreeMap<String, Vec<Vec<String>>>,
    /// Packages that stand for a name that is no package's.
    provides: BTreeMap<String, String>,
}

impl Installed {
    fn read() -> Result<Installed, String> {
        let format = "${db:Status-Status}\t${Package}\t${Essential}\t${Pre-Depends}, ${Depends}\t${Provides}\n";
        let out = output(Command::new("dpkg-query").args(["--show", "--showformat", format]));
        if !out.status.success() {
            return Err("this host has no packages of Debian's".into());
        }
        let mut installed =
            Installed { essential: BTreeSet::new(), depends: BTreeMap::new(), provides: BTreeMap::new() };
        for line in String::from_utf8(out.stdout).unwrap().lines() {
            let [status, name, essential, depends, provides] = line.split('\t').collect::<Vec<_>>()[..] else {
                return Err(format!("dpkg-query prints what is not understood: {line}"));
            };
            if status != "installed" {
                continue;
            }
            if essential == "yes" {
                installed.essential.insert(name.to_owned());
            }
            for provided in names(provides).into_iter().flatten() {
                installed.provides.insert(provided, name.to_owned());
            }
            installed.depends.insert(name.to_owned(), names(depends));
        }
        Ok(installed)
    }

    /// The essential packages, these, and all that they depend on.
    fn closure(&self, used: &[&str]) -> Result<BTreeSet<String>, String> {
        let mut closure = BTreeSet::new();
        let mut left: Vec<String> = self.essential.iter().cloned().collect();
        for name in used {
            let real = self.real(name).ok_or(format!("this host's {name} is of no package"))?;
            left.push(real.to_owned());
        }
        while let Some(name) = left.pop() {
            let depends = self.depends[&name].iter();
            left.extend(depends.filter_map(|any| any.iter().find_map(|one| self.real(one))).map(str::to_owned));
            closure.insert(name);
            left.retain(|name| !closure.contains(name));
        }
        Ok(closure)
    }

    /// The installed package that is called so, or provides it.
    fn real<'a>(&'a self, name: &str) -> Option<&'a str> {
        let own = self.depends.get_key_value(name).map(|(name, _)| name.as_str());
        own.or_else(|| self.provides.get(name).map(String::as_str))
    }
}

/// The names in a field such as `a (>= 1), b:any | c`.
fn names(field: &str) -> Vec<Vec<String>> {
    let name = |word: &str| word.split([' ', ':', '(']).next().unwrap().to_owned();
    let alternatives = field.split(',').map(|any| any.split('|').map(|one| name(one.trim())).collect());
    alternatives.filter(|any: &Vec<String>| any.iter().any(|one| !one.is_empty())).collect()
}
