//! Skips: how a test that cannot run here says so.
//!
//! One line a skip: `extent TAB binary TAB test TAB why`. Lines are short and
//! written in one call with `O_APPEND`, so that tests of many processes can
//! share the file.

use std::io::Write;
use std::path::Path;
use std::{env, fs, thread};

/// The environment variable that names the file of skips.
pub const LOG_VARIABLE: &str = "BATON_SKIP_LOG";

/// How much of the test did not run: all of it, or a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Nothing that counts: the test is skipped.
    Whole,
    /// Some of its cases: the test's outcome stands.
    Part,
}

/// Prints `SKIPPED why` and adds it to the log, if there is one.
///
/// # Panics
/// If the log is named but cannot be written: a skip must not be lost.
pub fn record(extent: Extent, why: &str) {
    println!("SKIPPED {why}");
    let Some(path) = env::var_os(LOG_VARIABLE) else { return };
    let line = log_line(extent, &crate::binary_name(), thread::current().name().unwrap_or("?"), why);
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .unwrap_or_else(|e| panic!("cannot open the log of skips {}: {e}", Path::new(&path).display()));
    file.write_all(line.as_bytes()).expect("cannot write the log of skips");
}

/// Something that set-up provides is missing: a skip, or in CI as root a failure.
///
/// # Panics
/// In CI as root.
pub fn missing(why: &str) {
    assert!(!strict(), "{why}; in CI as root this is a failure, not a skip");
    record(Extent::Whole, why);
}

/// True in CI as root, where everything that set-up provides must be there.
pub fn strict() -> bool {
    env::var_os("CI").is_some_and(|v| v == "true") && rustix::process::geteuid().is_root()
}

/// Whether this process may make namespaces and network devices.
///
/// # Errors
/// The missing right, and the remedy.
pub fn check_root() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|e| format!("cannot read /proc/self/status: {e}"))?;
    missing_capability(&status)
        .map_or(Ok(()), |name| Err(format!("needs {name} to make namespaces and devices: run it as root")))
}

/// Whether a program is on the `PATH`.
///
/// # Errors
/// That it is not, and the remedy.
pub fn check_program(name: &str) -> Result<(), String> {
    // Debian keeps administrators' programs in directories that are not always
    // on a user's PATH.
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory: std::path::PathBuf| directory.join(name).is_file());
    if found { Ok(()) } else { Err(format!("needs {name}: `cargo xtask setup` installs it")) }
}

fn log_line(extent: Extent, binary: &str, test: &str, why: &str) -> String {
    let extent = match extent {
        Extent::Whole => "whole",
        Extent::Part => "part",
    };
    let why = why.replace(['\n', '\t'], " ");
    format!("{extent}\t{binary}\t{test}\t{why}\n")
}

/// The first capability that `status` (of `/proc/self/status`) does not show as
/// effective (`linux/capability.h`).
fn missing_capability(status: &str) -> Option<&'static str> {
    const NEEDED: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    NEEDED.iter().find(|(bit, _)| effective >> bit & 1 == 0).map(|&(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        assert_eq!(missing_capability("CapPrm:\tffffffffffffffff\nCapEff:\t0000000000000000\n"), Some("CAP_NET_ADMIN"));
        assert_eq!(missing_capability("CapEff:\t0000000000001000\n"), Some("CAP_SYS_ADMIN"));
        assert_eq!(missing_capability("CapEff:\t0000000000201000\n"), None);
        assert_eq!(missing_capability("nothing here"), Some("CAP_NET_ADMIN"));
    }

    #[test]
    fn a_skip_is_one_line_whatever_its_reason() {
        assert_eq!(log_line(Extent::Whole, "tap", "opens", "no\ttap\nhere"), "whole\ttap\topens\tno tap here\n");
        assert_eq!(log_line(Extent::Part, "tap", "opens", "x"), "part\ttap\topens\tx\n");
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert_eq!(check_program("sh"), Ok(()));
        assert!(check_program("no-such-program-as-this").unwrap_err().contains("no-such-program-as-this"));
    }
}
