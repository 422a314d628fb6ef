//! Builds C programs against the library as its users do: with `cc`, through the pkg-config file,
//! shared and static, and under valgrind.

use baton_testkit::{c, need_program, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// This test's own directory below the target directory.
fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_abi");
        fs::create_dir_all(&path).expect("the target directory is writable");
        path
    })
}

/// The pkg-config file, filled in with the paths of this build.
fn pkg_config_file() -> PathBuf {
    let template = fs::read_to_string(Path::new(ROOT).join("libbaton.pc.in")).expect("the template");
    let libdir = c::libraries().display().to_string();
    let fill = [
        ("@prefix@", ROOT),
        ("@includedir@", concat!(env!("CARGO_MANIFEST_DIR"), "/include")),
        ("@libdir@", &libdir),
        ("@version@", env!("CARGO_PKG_VERSION")),
    ];
    let text = fill.iter().fold(template, |text, (name, value)| text.replace(name, value));
    assert!(!text.contains('@'), "a placeholder was not filled in:\n{text}");
    let path = scratch().join("libbaton.pc");
    fs::write(&path, text).expect("the target directory is writable");
    path
}

fn build_static(source: &str, name: &str) -> PathBuf {
    let program = scratch().join(name);
    c::build_static(&Path::new(ROOT).join(source), &program);
    program
}

#[test]
fn the_example_echoes_through_the_shared_library() {
    need_program!("cc");
    need_program!("pkg-config");
    let directory = pkg_config_file();
    let directory = directory.parent().expect("a directory");
    let flags =
        run(Command::new("pkg-config").env("PKG_CONFIG_PATH", directory).args(["--cflags", "--libs", "libbaton"]));
    let program = scratch().join("echo-shared");
    let mut command = c::compiler(&Path::new(ROOT).join("examples/echo.c"), &program);
    run(command.args(flags.split_whitespace()));
    let said = run(Command::new(program).env("LD_LIBRARY_PATH", c::libraries()));
    assert_eq!(said.trim(), "OK");
}

/// Builds a program with the static library and runs it; it must print OK.
fn runs_clean(source: &str, name: &str) {
    let said = run(&mut Command::new(build_static(source, name)));
    assert_eq!(said.trim(), "OK");
}

#[test]
fn the_example_echoes_through_the_static_library() {
    need_program!("cc");
    runs_clean("examples/echo.c", "echo-static");
}

#[test]
fn misuse_from_c_is_refused() {
    need_program!("cc");
    runs_clean("tests/c/misuse.c", "misuse");
}

#[test]
fn messages_in_parts_arrive_whole() {
    need_program!("cc");
    runs_clean("tests/c/messages.c", "messages");
}

#[test]
fn valgrind_finds_no_error_and_no_leak() {
    need_program!("cc");
    need_program!("valgrind");
    let program = build_static("tests/c/misuse.c", "misuse-valgrind");
    let mut command = Command::new("valgrind");
    run(command.args(["--quiet", "--leak-check=full", "--error-exitcode=9"]).arg(program));
}
