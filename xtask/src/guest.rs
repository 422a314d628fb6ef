//! Another kernel for tests of what this one may lack (`baton_testkit::vm`): taken out of
//! Debian's package, without installing it.
//!
//! It has to have TCX links (Linux 6.6 or later), which steering needs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::deb::{self, only};
use crate::run;

/// Packages that depend on the newest kernel of a series, the wanted first.
const SERIES: [&str; 2] = ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"];

/// Modules that the tests load, each after those that it needs.
const MODULES: [&str; 15] = [
    "llc",
    "stp",
    "garp",
    "mrp",
    "8021q",
    "veth",
    "tun",
    "inet_diag",
    "tcp_diag",
    "nfnetlink",
    "libcrc32c",
    "nf_defrag_ipv4",
    "nf_defrag_ipv6",
    "nf_conntrack",
    "nf_conntrack_netlink",
];

/// Where tests look for it: next to cargo's directory for tests.
fn place() -> PathBuf {
    run::target().join("guest")
}

/// Whether it is there, or cannot be used on this machine anyway.
pub fn is_settled() -> bool {
    let all = MODULES.iter().all(|name| place().join(format!("{name}.ko.xz")).is_file());
    all && place().join("vmlinuz").is_file() || !cfg!(target_arch = "x86_64") || !run::on_path("apt-get")
}

/// Fetches the package and unpacks the files that are used.
pub fn fetch() -> Result<()> {
    let place = place();
    let Some(package) = SERIES.iter().find_map(|series| newest(series)) else {
        bail!("apt knows none of {}", SERIES.join(", "));
    };
    let scratch = place.with_extension("unpacked");
    let taken = deb::with_files_of(&package, &scratch, |tree| take(&package, tree, &place));
    taken.context("the kernel that some tests boot")
}

fn take(package: &str, tree: &Path, place: &Path) -> Result<()> {
    fs::create_dir_all(place)?;
    let modules = only(&tree.join("lib/modules"), |_| true)?;
    for name in MODULES {
        let file = format!("{name}.ko.xz");
        let found = find(&modules, &file).with_context(|| format!("{package} has no {file}"))?;
        fs::copy(found, place.join(file))?;
    }
    // Last: its presence says that everything is there.
    fs::copy(only(&tree.join("boot"), |name| name.starts_with("vmlinuz"))?, place.join("vmlinuz"))?;
    Ok(())
}

/// The package that one of a series depends on.
fn newest(series: &str) -> Option<String> {
    let told = run::capture(&mut run::program("apt-cache", &["depends", "--important", series])).ok()?;
    depended(&told).map(str::to_owned)
}

/// The first dependency in what `apt-cache depends` prints.
fn depended(told: &str) -> Option<&str> {
    told.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::trim)
}

/// A file of that name anywhere below a directory.
fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { find(&path, name) } else { (entry.file_name() == name).then_some(path) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_what_the_series_depends_on() {
        let told = "linux-image-6.12-cloud-amd64\n  Depends: linux-image-6.12.9-cloud-amd64\n  Depends: other\n";
        assert_eq!(depended(told), Some("linux-image-6.12.9-cloud-amd64"));
        assert_eq!(depended("linux-image\n"), None);
    }
}
