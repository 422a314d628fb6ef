//! The Python module: an environment with what it needs, its wheel, and its tests.
//!
//! Everything lies in cargo's target directory: the environment in which the wheel is built and tested, one that has
//! nothing but the wheel, and cargo's own directory for the module, which is outside the workspace.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::counts::Counts;
use crate::run;
use crate::steps::Outcome;

const MANIFEST: &str = "crates/python/Cargo.toml";

/// Packages of the environment. Ray is not made for every version of Python; its tests are skipped then.
const NEEDED: &[&str] = &["maturin>=1.9,<2", "pytest", "pyarrow"];
const WANTED: &[&str] = &["ray"];

fn place(name: &str) -> Result<PathBuf> {
    Ok(env::current_dir()?.join(run::target()).join("python").join(name))
}

fn program(environment: &Path, name: &str) -> Command {
    let mut command = Command::new(environment.join("bin").join(name));
    // As in an activated environment: maturin looks for Python there.
    command.env("VIRTUAL_ENV", environment).env_remove("PYTHONHOME");
    command
}

/// Whether the environment is there, or there is no Python.
pub fn is_settled() -> bool {
    !run::on_path("python3") || place("venv").is_ok_and(|place| place.join("settled").is_file())
}

/// True if Debian has to install what makes environments.
pub fn lacks_venv() -> bool {
    let has = |script| run::program("python3", &["-c", script]).output().is_ok_and(|out| out.status.success());
    run::on_path("python3") && !has("import ensurepip, venv")
}

/// Makes the environment, and fetches the module's crates.
pub fn fetch() -> Result<()> {
    let venv = place("venv")?;
    let pip = |packages: &[&str]| {
        let mut command = program(&venv, "python");
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
        run::succeed(&mut command)
    };
    make(&venv, &[]).and_then(|()| pip(NEEDED)).context("the environment for the Python module")?;
    if let Err(e) = pip(WANTED) {
        println!("{e:#}; the corpus is not tested");
    }
    run::succeed(run::cargo().args(["fetch", "--locked", "--manifest-path", MANIFEST]))?;
    fs::write(venv.join("settled"), "")?;
    Ok(())
}

fn make(place: &Path, arguments: &[&str]) -> Result<()> {
    run::succeed(run::program("python3", &["-m", "venv", "--clear"]).args(arguments).arg(place))
}

/// `cargo xtask python`.
pub fn command(_: &[&str]) -> Result<ExitCode> {
    if !is_settled() {
        fetch()?;
    }
    let (outcome, counts) = test()?;
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    Ok(if matches!(outcome, Outcome::Failed(_)) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Builds the wheel, installs it into an environment that has nothing else, and runs its tests.
pub fn test() -> Result<(Outcome, Counts)> {
    let venv = place("venv")?;
    if !venv.join("settled").is_file() {
        let why = "the environment for the Python module is missing: cargo xtask setup says why";
        return Ok((Outcome::Skipped(why.into()), Counts::SKIPPED));
    }
    run::succeed(run::cargo().args(["fmt", "--check", "--manifest-path", MANIFEST]))?;
    let cargo = place("cargo")?;
    let mut clippy = run::cargo();
    clippy.args(["clippy", "--locked", "--manifest-path", MANIFEST, "--target-dir"]).arg(&cargo);
    run::succeed(clippy.args(["--", "-D", "warnings"]))?;
    let wheel = build(&venv, &cargo)?;
    let fresh = place("fresh")?;
    make(&fresh, &["--without-pip"])?;
    for environment in [&fresh, &venv] {
        let mut install = program(&venv, "python");
        install.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(environment);
        install.args(["install", "--quiet", "--no-index", "--no-deps", "--force-reinstall"]).arg(&wheel);
        run::succeed(&mut install)?;
    }
    let script = "import baton_trace; r = [baton_trace.trace(p) for p in baton_trace.find('crates/wire/tests/pcaps')]; \
                  assert r; print(baton_trace.Report.merge(r))";
    run::succeed(program(&fresh, "python").args(["-c", script]))?;
    let mut summary = String::new();
    let mut pytest = program(&venv, "python");
    pytest.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]).current_dir("crates/python");
    let status = run::watch(&mut pytest, None, |line| {
        if line.contains(" in ") && (line.contains(" passed") || line.contains(" failed")) {
            summary = line.to_owned();
        }
    })?;
    let mut counts = read(&summary);
    match status {
        Some(status) if status.success() && counts.passed > 0 => Ok((Outcome::Passed, counts)),
        Some(status) => {
            counts.failed = counts.failed.max(1);
            Ok((Outcome::Failed(format!("pytest: {status}")), counts))
        }
        None => bail!("pytest was ended without a limit"),
    }
}

fn build(venv: &Path, cargo: &Path) -> Result<PathBuf> {
    let wheels = place("wheels")?;
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let mut maturin = program(venv, "maturin");
    maturin.args(["build", "--quiet", "--manifest-path", MANIFEST, "--out"]).arg(&wheels);
    run::succeed(maturin.arg("--target-dir").arg(cargo))?;
    let mut files = fs::read_dir(&wheels)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension() == Some(OsStr::new("whl")));
    match files.pop() {
        Some(wheel) if files.is_empty() => Ok(wheel),
        _ => bail!("maturin made no wheel, or several"),
    }
}

/// Reads the last line of pytest: `3 failed, 12 passed, 1 skipped in 4.56s`.
fn read(summary: &str) -> Counts {
    let words: Vec<&str> = summary.split([' ', ',', '=']).filter(|word| !word.is_empty()).collect();
    let count = |names: &[&str]| {
        let pairs = words.windows(2).filter(|pair| names.contains(&pair[1]));
        pairs.filter_map(|pair| pair[0].parse::<usize>().ok()).sum()
    };
    Counts { passed: count(&["passed"]), failed: count(&["failed", "error", "errors"]), skipped: count(&["skipped"]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_pytest_is_counted() {
        let counts = |line| {
            let Counts { passed, failed, skipped } = read(line);
            (passed, failed, skipped)
        };
        assert_eq!(counts("12 passed in 4.56s"), (12, 0, 0));
        assert_eq!(counts("== 3 failed, 12 passed, 1 skipped, 2 errors in 4.56s =="), (12, 5, 1));
        assert_eq!(counts(""), (0, 0, 0));
    }
}
