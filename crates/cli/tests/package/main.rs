//! The release as a user gets it: one set of files in the Debian package, the tarball and
//! `make install`; the package in a clean Debian, from `dpkg --install` to `dpkg --purge`; and
//! the C library's names.
//!
//! `cargo xtask dist` packs the programs of this test build, so that nothing is built twice. The
//! layout is tested, not the optimizer.

mod library;
mod machine;
mod root;

use baton_testkit::skip::check_program;
use baton_testkit::{build_beside, c, need_program, need_root, output, run, skip};
use machine::Machine;
use root::Root;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The top of the workspace.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A directory of this test's own, below the target directory.
fn scratch() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    fs::create_dir_all(&path).unwrap();
    path
}

/// The directory of programs and libraries that are packed.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let baton = Path::new(env!("CARGO_BIN_EXE_baton"));
        build_beside(baton, "baton-shim", WORKSPACE);
        assert_eq!(baton.parent().unwrap(), c::libraries());
        c::libraries().to_owned()
    })
}

/// `cargo xtask` with these words; what it printed.
fn xtask(command: &str, options: &[(&str, &Path)]) -> String {
    let mut line = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    line.current_dir(WORKSPACE).args(["run", "--quiet", "--locked", "--package", "xtask", "--", command]);
    line.arg("--from").arg(built());
    for (option, value) in options {
        line.arg(option).arg(value);
    }
    run(&mut line)
}

/// The directory with all packages, and the tree that they are made of below `tree/files`.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let to = scratch().join("dist");
        xtask("dist", &[("--to", &to)]);
        to
    })
}

/// The package whose name ends so.
fn package(end: &str) -> PathBuf {
    let entries = fs::read_dir(packages()).unwrap().map(|entry| entry.unwrap().path());
    let mut found = entries.filter(|path| path.to_string_lossy().ends_with(end));
    found.next().unwrap_or_else(|| panic!("no package ends in {end}"))
}

/// Lines of a listing, each from the first slash on, without directories.
fn listed(listing: &str) -> BTreeSet<String> {
    let names = listing.lines().map(|line| line.split(" -> ").next().unwrap());
    let paths = names.filter_map(|line| Some(line[line.find('/')?..].to_owned()));
    paths.filter(|path| !path.ends_with('/')).collect()
}

#[test]
fn the_same_files_are_in_each_package_and_installed() {
    need_program!("dpkg-deb");
    need_program!("cc");
    let tarball = listed(&run(Command::new("tar").arg("-tf").arg(package("-linux.tar.gz"))));
    for file in [
        "/etc/baton/baton.toml",
        "/usr/bin/baton",
        "/usr/include/baton.h",
        "/usr/lib/baton/libbaton_shim.so",
        "/usr/lib/libbaton.so.0",
        "/usr/lib/pkgconfig/libbaton.pc",
        "/usr/lib/systemd/system/baton.service",
        "/usr/lib/sysusers.d/baton.conf",
        "/usr/share/bash-completion/completions/baton",
        "/usr/share/doc/baton/changelog.gz",
        "/usr/share/doc/baton/copyright",
        "/usr/share/fish/vendor_completions.d/baton.fish",
        "/usr/share/man/man1/baton-run.1.gz",
        "/usr/share/zsh/site-functions/_baton",
    ] {
        assert!(tarball.contains(file), "{file} is not in {tarball:#?}");
    }
    // Each line begins with a mode and an owner such as `root/root`, which has a slash, too.
    let contents = run(Command::new("dpkg-deb").arg("--contents").arg(package(".deb")));
    let contents: Vec<&str> = contents.lines().map(|line| line.split_once(" ./").unwrap().1).collect();
    let rooted: Vec<String> = contents.iter().map(|path| format!("/{path}")).collect();
    let debian = listed(&rooted.join("\n")).into_iter();
    // Debian's zsh looks in a directory of its own.
    let debian: BTreeSet<String> = debian.map(|path| path.replace("vendor-completions", "site-functions")).collect();
    assert_eq!(debian, tarball);

    let destdir = scratch().join("installed");
    let _ = fs::remove_dir_all(&destdir);
    xtask("install", &[("--destdir", &destdir), ("--prefix", Path::new("/usr"))]);
    let found = run(Command::new("find").current_dir(&destdir).args([".", "-not", "-type", "d"]));
    assert_eq!(listed(&found), tarball);
    // A configuration that somebody has changed stays.
    let configuration = destdir.join("etc/baton/baton.toml");
    fs::write(&configuration, "log = \"debug\"\n").unwrap();
    let said = xtask("install", &[("--destdir", &destdir), ("--prefix", Path::new("/usr"))]);
    assert!(said.contains("baton.toml stays as it is"), "{said}");
    assert_eq!(fs::read_to_string(configuration).unwrap(), "log = \"debug\"\n");
}

#[test]
fn another_prefix_is_in_all_that_names_it() {
    need_program!("cc");
    let destdir = scratch().join("elsewhere");
    let _ = fs::remove_dir_all(&destdir);
    xtask("install", &[("--destdir", &destdir), ("--prefix", Path::new("/opt/baton"))]);
    let read = |path: &str| fs::read_to_string(destdir.join("opt/baton/lib").join(path)).unwrap();
    assert!(read("systemd/system/baton.service").contains("\nExecStart=/opt/baton/bin/baton service --config /etc/"));
    assert!(read("pkgconfig/libbaton.pc").starts_with("prefix=/opt/baton\n"));
    let out = output(Command::new(destdir.join("opt/baton/bin/baton")).args(["run", "--", "true"]));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !said.contains("libbaton_shim.so"), "{said}");
}

#[test]
fn debug_information_lies_apart_under_its_build_id() {
    need_program!("readelf");
    let listing = listed(&run(Command::new("tar").arg("-tf").arg(package("-debug.tar.gz"))));
    for file in ["usr/bin/baton", "usr/lib/baton/libbaton_shim.so", "usr/lib/libbaton.so.0"] {
        let path = packages().join("tree/files").join(file);
        let told = run(Command::new("readelf").args(["--wide", "--notes", "--sections"]).arg(&path));
        for section in [".debug_info", ".debug_line", ".symtab"] {
            assert!(!told.contains(&format!(" {section} ")), "{file}: {told}");
        }
        let id = told.split_once("Build ID: ").unwrap().1.split_whitespace().next().unwrap();
        let apart = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
        assert!(listing.contains(&apart), "{file}: no {apart} in {listing:#?}");
    }
}

#[test]
fn licences_of_what_is_linked_are_there() {
    need_program!("cc");
    let text = fs::read_to_string(packages().join("tree/files/usr/share/doc/baton/copyright")).unwrap();
    for passage in ["\nclap ", "\nzstd-sys ", "\nlibc ", "Permission is hereby granted", "Apache License", "Facebook"] {
        assert!(text.contains(passage), "no {passage:?}");
    }
    // Only tests use these two, and only the compiler the third.
    for name in ["proptest", "smoltcp", "clap_derive"] {
        assert!(!text.contains(&format!("\n{name} ")), "{name} is not in the programs");
    }
}

#[test]
fn systemd_makes_the_engines_user() {
    let sysusers = "systemd-sysusers";
    if let Err(why) = check_program(sysusers) {
        skip!("{why}");
    }
    let directory = tempfile::tempdir().unwrap();
    let entries = directory.path().join("usr/lib/sysusers.d");
    fs::create_dir_all(&entries).unwrap();
    fs::create_dir(directory.path().join("etc")).unwrap();
    fs::copy(Path::new(WORKSPACE).join("packaging/baton.sysusers"), entries.join("baton.conf")).unwrap();
    run(Command::new(sysusers).arg(format!("--root={}", directory.path().display())));
    let users = fs::read_to_string(directory.path().join("etc/passwd")).unwrap();
    assert!(users.lines().any(|user| user.starts_with("baton:") && user.contains(":Baton engine:/:")), "{users}");
}

#[test]
fn a_clean_debian_installs_uses_and_removes_the_package() {
    need_root!();
    for program in ["dpkg", "curl", "cc", "pkg-config"] {
        need_program!(program);
    }
    let directory = tempfile::tempdir().unwrap();
    let root = match Root::assemble(directory.path()) {
        Ok(root) => root,
        Err(why) => skip!("{why}"),
    };
    let machine = Machine::new(root);
    let before = machine.contents();
    machine.install(&package(".deb"));
    machine.doctor_finds_the_same();
    machine.the_service_takes_its_configuration();
    machine.a_download_moves();
    machine.a_c_program_runs();
    machine.purge();
    let after = machine.contents();
    let changed: Vec<_> = after.symmetric_difference(&before).collect();
    assert!(changed.is_empty(), "left behind, or taken along: {changed:#?}");
}
