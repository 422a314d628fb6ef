//! Finds the program to run, and checks whether the library can be loaded into it.
//!
//! `ld.so` loads the libraries that `LD_PRELOAD` names. So a program without an interpreter
//! (`PT_INTERP`) does not load the library, and neither does one that changes its user. Both run
//! on the kernel's TCP; `baton run` says so before it starts them.

use baton_apps::fail::usage;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Most scripts that may name each other as interpreters (`BINPRM_MAX_RECURSION`).
const DEPTH: usize = 5;

/// A program that can be run.
pub struct Found {
    /// Path of its file.
    pub path: PathBuf,
    /// Why the library cannot be loaded into it, or `None` if it can.
    pub unreached: Option<String>,
}

/// Finds a program as a shell would, and checks whether the library can be loaded into it.
///
/// # Errors
/// A usage error if there is no such program.
pub fn find(name: &OsStr) -> anyhow::Result<Found> {
    let path = locate(name).ok_or_else(|| {
        usage(format!("there is no program '{}'", name.to_string_lossy()), "give its path, or check PATH")
    })?;
    let unreached = unreached(&path)?;
    Ok(Found { path, unreached })
}

fn locate(name: &OsStr) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(runs);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(runs)
}

/// Returns why the library cannot be loaded into a program, or `None` if it can.
///
/// # Errors
/// If there is no such file.
pub fn unreached(path: &Path) -> anyhow::Result<Option<String>> {
    look_at(path, DEPTH)
}

fn look_at(path: &Path, depth: usize) -> anyhow::Result<Option<String>> {
    let name = path.display();
    let found = fs::metadata(path)?;
    let privileged = found.mode() & 0o4000 != 0 && found.uid() != rustix::process::geteuid().as_raw();
    if privileged {
        return Ok(Some(format!("{name} changes its user when it starts, so the library cannot be loaded into it")));
    }
    let Ok(bytes) = fs::read(path) else { return Ok(None) };
    if let Some(interpreter) = interpreter(&bytes) {
        // If the interpreter is wrong, the kernel reports it when the program starts.
        return if depth > 0 && interpreter.exists() { look_at(&interpreter, depth - 1) } else { Ok(None) };
    }
    Ok(is_static(&bytes).then(|| format!("{name} is linked statically, so the library cannot be loaded into it")))
}

/// The interpreter that a script names in its first line.
fn interpreter(bytes: &[u8]) -> Option<PathBuf> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// Returns true for a 64-bit ELF program without `PT_INTERP` (elf(5)).
fn is_static(bytes: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let word = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let first = bytes.get(32..40).and_then(|at| usize::try_from(u64::from_le_bytes(at.try_into().ok()?)).ok());
    let (Some(first), Some(size), Some(count)) = (first, word(54), word(56)) else { return false };
    let header = |number: u16| long(first.checked_add(usize::from(number) * usize::from(size))?);
    !(0..count).any(|number| header(number) == Some(PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_does() {
        let shell = find(OsStr::new("sh")).unwrap();
        assert!(shell.path.ends_with("sh") && shell.unreached.is_none());
        assert!(find(OsStr::new("/bin/sh")).is_ok());
        let none = find(OsStr::new("no-such-program-here")).err().unwrap().to_string();
        assert!(none.contains("there is no program 'no-such-program-here'"), "{none}");
    }

    #[test]
    fn a_program_without_an_interpreter_is_static() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&own));
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[32], elf[54], elf[56]) = (64, 56, 2);
        assert!(is_static(&elf));
        elf[64 + 56] = 3;
        assert!(!is_static(&elf));
        assert!(!is_static(b"\x7fELF\x02\x01"), "a truncated file is left to the kernel to refuse");
    }

    #[test]
    fn a_script_names_its_interpreter() {
        assert_eq!(interpreter(b"#! /usr/bin/env python3\nx"), Some("/usr/bin/env".into()));
        assert_eq!(interpreter(b"\x7fELF"), None);
    }
}
