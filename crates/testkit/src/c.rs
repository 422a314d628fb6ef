//! Builds C programs against the library, as its users do.

use crate::run;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the library's sources are.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("libbaton")
}

/// Where the libraries are. Cargo builds none for a test that cannot link to it as Rust, so
/// it is asked to.
///
/// # Panics
/// If they cannot be built.
pub fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let test = std::env::current_exe().expect("a path");
        let profile = test.ancestors().nth(2).expect("target/debug/deps/test");
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let target = profile.parent().expect("target/debug");
        let arguments =
            ["build", "--locked", "--package", "libbaton", "--lib", "--profile", "test", "--quiet", "--target-dir"];
        run(Command::new(cargo).current_dir(root()).args(arguments).arg(target));
        profile.to_owned()
    })
}

/// A compiler that makes `program` of `source`.
pub fn compiler(source: &Path, program: &Path) -> Command {
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program).arg(source);
    command
}

/// Makes `program` of `source`, linked with the static library.
///
/// # Panics
/// If it does not compile.
pub fn build_static(source: &Path, program: &Path) {
    let mut command = compiler(source, program);
    command.arg("-I").arg(root().join("include")).arg(libraries().join("libbaton.a"));
    run(command.args(["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lrt"]));
}
