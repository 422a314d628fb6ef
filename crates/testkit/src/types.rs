//! The kernel's description of its own types (BTF), which some kernels lack: hidden for a test.

use crate::process::run;
use std::env;
use std::path::Path;
use std::process::Command;

const DIRECTORY: &str = "/sys/kernel/btf";
/// Set where it is hidden.
const HIDDEN: &str = "BATON_TYPES_HIDDEN";

/// Whether the kernel shows its types here.
pub fn are_there() -> bool {
    Path::new(DIRECTORY).join("vmlinux").exists()
}

/// Whether this is a run with the kernel's types hidden. If not, `test` of this binary is run so,
/// as a process of its own.
///
/// # Panics
/// If the test fails there.
#[track_caller]
pub fn are_hidden(test: &str) -> bool {
    if env::var_os(HIDDEN).is_some() {
        assert!(!are_there(), "they are seen");
        return true;
    }
    let hide = format!("[ ! -d {DIRECTORY} ] || mount -t tmpfs none {DIRECTORY}; exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &hide, "sh"]).arg(env::current_exe().expect("a test is a program"));
    command.args(["--exact", "--nocapture", test]).env(HIDDEN, "");
    let printed = run(&mut command);
    assert!(printed.contains("test result: ok. 1 passed"), "{printed}");
    false
}
