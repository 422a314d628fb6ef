//! `libbaton.so` with a soname and symbol versions.
//!
//! rustc passes the linker a version script of its own for each `cdylib`, without a name. GNU ld
//! refuses a second one, and lld ignores it. So the shared library that users get is linked here
//! from the static one, by `crates/libbaton/libbaton.map`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::VERSION;
use crate::run;

const MAP: &str = "crates/libbaton/libbaton.map";
const PKG_CONFIG: &str = "crates/libbaton/libbaton.pc.in";

/// Links `libbaton.so.VERSION` of the static library in `built`; it has its debug information.
pub fn link(built: &Path, library: &Path) -> Result<()> {
    let abi = abi();
    let map = fs::read_to_string(MAP).with_context(|| format!("cannot read {MAP}"))?;
    ensure!(map.contains(&format!("BATON_{abi} {{")), "{MAP} has no node BATON_{abi}, which release {VERSION} needs");
    let mut command = run::program("cc", &["-shared", "-o"]);
    command.arg(library);
    command.args([format!("-Wl,-soname,{}", soname()), format!("-Wl,--version-script={MAP}")]);
    command.args(["-Wl,--build-id", "-Wl,--gc-sections", "-Wl,-z,relro,-z,now", "-Wl,--whole-archive"]);
    command.arg(built.join("libbaton.a")).arg("-Wl,--no-whole-archive,--as-needed");
    command.args(private_libraries()?.split_whitespace());
    run::succeed(&mut command)
}

/// Makes the links that the loader and the linker look for.
pub fn links(directory: &Path) -> Result<()> {
    symlink(file_name(), directory.join(soname()))?;
    Ok(symlink(soname(), directory.join("libbaton.so"))?)
}

/// The file's name: the whole version is in it.
pub fn file_name() -> String {
    format!("libbaton.so.{VERSION}")
}

/// The name that programs ask the loader for.
fn soname() -> String {
    format!("libbaton.so.{}", abi())
}

/// The major version: releases with the same one are compatible.
fn abi() -> &'static str {
    VERSION.split('.').next().expect("a version has a first part")
}

/// The pkg-config file of a library below `prefix`.
pub fn pkg_config(prefix: &str) -> Result<String> {
    let template = fs::read_to_string(PKG_CONFIG).with_context(|| format!("cannot read {PKG_CONFIG}"))?;
    let filled = template
        .replace("@prefix@", prefix)
        .replace("@includedir@", "${prefix}/include")
        .replace("@libdir@", "${prefix}/lib")
        .replace("@version@", VERSION);
    ensure!(!filled.contains('@'), "{PKG_CONFIG} has a place that nothing fills");
    Ok(filled)
}

/// Libraries that the static library needs.
fn private_libraries() -> Result<String> {
    let filled = pkg_config("/usr")?;
    let line = filled.lines().find_map(|line| line.strip_prefix("Libs.private:"));
    Ok(line.with_context(|| format!("{PKG_CONFIG} has no Libs.private"))?.to_owned())
}
