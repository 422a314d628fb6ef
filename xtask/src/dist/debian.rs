//! A Debian package of the tree, by `dpkg-deb`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::tree::{CONFIGURATION, Tree};
use super::{VERSION, library};
use crate::run;

/// Scripts that dpkg runs, from `packaging/debian`.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Makes the package in `to`. `time` is that of every file, in seconds since 1970.
pub fn make(tree: &Tree, to: &Path, time: &str) -> Result<PathBuf> {
    let root = tree.root.with_file_name("debian");
    run::succeed(run::program("cp", &["--archive", "--link"]).arg(&tree.root).arg(&root))?;
    // Debian's zsh looks elsewhere than zsh's own default.
    let zsh = root.join("usr/share/zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))?;
    let architecture = run::capture(&mut run::program("dpkg", &["--print-architecture"]))?;
    let architecture = architecture.trim();
    describe(&root, architecture)?;
    let package = to.join(format!("baton_{VERSION}_{architecture}.deb"));
    let mut command = run::program("dpkg-deb", &["--root-owner-group", "--build"]);
    run::succeed(command.arg(&root).arg(&package).env("SOURCE_DATE_EPOCH", time))?;
    fs::remove_dir_all(root)?;
    Ok(package)
}

/// Writes what dpkg reads: `DEBIAN/`.
fn describe(root: &Path, architecture: &str) -> Result<()> {
    let size = run::capture(run::program("du", &["--summarize", "--apparent-size", "--block-size=1024"]).arg(root))?;
    let size = size.split_whitespace().next().context("du prints a size")?;
    let binaries = ["usr/bin/baton".into(), "usr/lib/baton/libbaton_shim.so".into()];
    let binaries = binaries.into_iter().chain([format!("usr/lib/{}", library::file_name())]);
    let depends = depends(binaries.map(|binary| root.join(binary)))?;
    let directory = root.join("DEBIAN");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("control"), control(architecture, size, &depends))?;
    fs::write(directory.join("conffiles"), format!("/{CONFIGURATION}\n"))?;
    fs::write(directory.join("triggers"), "activate-noawait ldconfig\n")?;
    for script in SCRIPTS {
        let place = directory.join(script);
        let from = Path::new("packaging/debian").join(script);
        fs::copy(&from, &place).with_context(|| format!("cannot copy {}", from.display()))?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// `iproute2` and `nftables` are for `baton doctor`: it tries steering on a wire, and looks for NAT.
/// `baton demo` uses the suggested packages.
fn control(architecture: &str, size: &str, depends: &str) -> String {
    format!(
        "Package: baton\n\
         Version: {VERSION}\n\
         Architecture: {architecture}\n\
         Maintainer: The Baton authors\n\
         Section: net\n\
         Priority: optional\n\
         Installed-Size: {size}\n\
         Depends: {depends}, iproute2\n\
         Recommends: nftables\n\
         Suggests: curl, ethtool, nginx, wrk\n\
         Description: TCP offload NIC in software\n \
         Baton takes established TCP connections over from the kernel, runs them in an\n \
         engine in user space, and gives them back. Programs run unchanged under\n \
         'baton run'. The package has the program, the service, and the C library\n \
         libbaton with its header.\n"
    )
}

/// Debian's packages of the libraries that the binaries load, with the C library's version.
fn depends(binaries: impl Iterator<Item = PathBuf>) -> Result<String> {
    let (mut packages, mut newest) = (BTreeSet::new(), (0, 0));
    for binary in binaries {
        let told = run::capture(run::program("readelf", &["--wide", "--dynamic", "--version-info"]).arg(&binary))?;
        for library in needed(&told) {
            packages.insert(package_of(library).with_context(|| binary.display().to_string())?);
        }
        newest = newest.max(newest_glibc(&told));
    }
    let (major, minor) = newest;
    let name = |package: &str| match package {
        "libc6" => format!("libc6 (>= {major}.{minor})"),
        other => other.to_owned(),
    };
    Ok(packages.into_iter().map(name).collect::<Vec<String>>().join(", "))
}

/// Names of the libraries that `readelf --dynamic` lists as needed.
fn needed(told: &str) -> impl Iterator<Item = &str> {
    let lines = told.lines().filter(|line| line.contains("(NEEDED)"));
    lines.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0))
}

fn package_of(library: &str) -> Result<&'static str> {
    let c = ["libc.so.", "libm.so.", "libdl.so.", "librt.so.", "libpthread.so.", "ld-linux-"];
    match library {
        _ if library.starts_with("libgcc_s.so.") => Ok("libgcc-s1"),
        _ if c.iter().any(|start| library.starts_with(start)) => Ok("libc6"),
        _ => bail!("{library} is loaded, and Depends names no package for it"),
    }
}

/// The newest version of the C library that `readelf --version-info` names.
fn newest_glibc(told: &str) -> (u32, u32) {
    let versions = told.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    let numbers = versions.filter_map(|version| {
        let mut parts = version.trim_end_matches(|c: char| !c.is_ascii_digit()).split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    numbers.max().unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = " 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4
  0x0020:   Name: GLIBC_2.34  Flags: none  Version: 3
  0x0030:   Name: GLIBC_2.2.5  Flags: none  Version: 2
";

    #[test]
    fn libraries_have_packages() {
        assert_eq!(needed(TOLD).collect::<Vec<_>>(), ["libgcc_s.so.1", "libc.so.6"]);
        assert_eq!(package_of("libgcc_s.so.1").unwrap(), "libgcc-s1");
        assert_eq!(package_of("libm.so.6").unwrap(), "libc6");
        assert!(package_of("libssl.so.3").is_err());
    }

    #[test]
    fn the_newest_version_is_compared_as_numbers() {
        assert_eq!(newest_glibc(TOLD), (2, 34));
    }
}
