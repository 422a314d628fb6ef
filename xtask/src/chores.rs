//! Commands that set up and start one of the project's programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail, ensure};

use crate::run::{self, cargo};
use crate::setup::{self, Setup};
use crate::tidy;

/// `cargo xtask run`: the demo, from a release build.
pub fn demo(arguments: &[String]) -> Result<ExitCode> {
    if let Setup::Incomplete(why) = setup::ensure(true)? {
        println!("{why}\n");
    }
    run::succeed(cargo().args([
        "build",
        "--release",
        "--locked",
        "--package",
        "baton-cli",
        "--package",
        "baton-shim",
    ]))?;
    let status = Command::new(run::target().join("release/baton")).arg("demo").args(arguments).status();
    Ok(code(status.context("cannot start target/release/baton")?))
}

/// `cargo xtask sim`.
pub fn sim(arguments: &[String]) -> Result<ExitCode> {
    if let Err(why) = sim_available() {
        bail!("{why}");
    }
    Ok(code(sim_command().args(arguments).status()?))
}

/// The simulator's program, from a release build.
pub fn sim_command() -> Command {
    let mut command = cargo();
    command.args(["run", "--release", "--quiet", "--locked", "--package", "baton-sim", "--bin", "sim", "--"]);
    command
}

/// Whether the simulator has a program.
///
/// # Errors
/// Why there is none.
pub fn sim_available() -> Result<(), String> {
    if Path::new("crates/sim/src/bin/sim.rs").exists() { Ok(()) } else { Err("crates/sim has no program yet".into()) }
}

/// `cargo xtask docs`: the pages that are made from the program, and the commands that pages show.
/// With `--write` it makes the pages, and what `tidy` makes, anew.
pub fn docs(flags: &[&str]) -> Result<ExitCode> {
    let mut command = cargo();
    // Whatever package has them: their test is called `pages`.
    command.args(["test", "--workspace", "--locked", "--test", "pages", "--"]);
    if flags.contains(&"--write") {
        tidy::write()?;
        command.arg("up_to_date").env("BATON_WRITE_PAGES", "1");
    }
    Ok(code(command.status().context("cannot start cargo")?))
}

/// `cargo xtask interop`: the tests against the kernel with large transfers, a row
/// for each.
pub fn interop(arguments: &[String]) -> Result<ExitCode> {
    let bytes = bytes_argument(arguments, 1 << 30)?;
    if let Setup::Incomplete(why) = setup::ensure(false)? {
        println!("{why}\n");
    }
    let mut command = cargo();
    command.args(["test", "--locked", "--package", "baton-cli", "--test", "interop"]);
    // One after another, so that a row's time is its own.
    command.args(["--", "--nocapture", "--test-threads=1"]);
    command.env("BATON_INTEROP_BYTES", bytes.to_string());
    Ok(code(command.status().context("cannot start cargo")?))
}

/// `cargo xtask bump`: the tests of `baton bump` with real programs, with large transfers.
pub fn bump(arguments: &[String]) -> Result<ExitCode> {
    let bytes = bytes_argument(arguments, 10_000_000_000)?;
    if let Setup::Incomplete(why) = setup::ensure(false)? {
        println!("{why}\n");
    }
    let mut command = cargo();
    command.args(["test", "--locked", "--package", "baton-cli", "--test", "bump"]);
    command.args(["--", "--nocapture", "--test-threads=1"]);
    command.env("BATON_BUMP_BYTES", bytes.to_string());
    Ok(code(command.status().context("cannot start cargo")?))
}

fn bytes_argument(arguments: &[String], default: u64) -> Result<u64> {
    match arguments {
        [] => Ok(default),
        [flag, value] if flag == "--bytes" => value.parse().with_context(|| format!("--bytes {value}: not a number")),
        _ => bail!("unknown arguments {}; known: --bytes N", arguments.join(" ")),
    }
}

/// `cargo xtask programs`: the tests of `baton run`, in full, with what went over the engine.
pub fn programs(arguments: &[String]) -> Result<ExitCode> {
    let (times, names) = programs_arguments(arguments)?;
    if let Setup::Incomplete(why) = setup::ensure(false)? {
        println!("{why}\n");
    }
    let mut command = cargo();
    command.args(["test", "--locked", "--package", "baton-cli", "--test", "run"]);
    // One after another: each program has the machine to itself.
    command.args(["--", "--nocapture", "--test-threads=1"]).args(names).env("BATON_PROGRAMS_TIMES", times.to_string());
    Ok(code(command.status().context("cannot start cargo")?))
}

/// How large loads are, and names of tests.
fn programs_arguments(arguments: &[String]) -> Result<(u32, Vec<String>)> {
    match arguments {
        [flag, times, names @ ..] if flag == "--times" => {
            let times = times.parse().ok().filter(|times| *times > 1);
            Ok((times.context("--times: not a number above 1")?, names.to_vec()))
        }
        [flag, ..] if flag.starts_with('-') => bail!("unknown argument {flag}; known: --times N"),
        names => Ok((20, names.to_vec())),
    }
}

/// `cargo xtask kills`: the tests that kill the service's processes and its programs, in
/// full.
pub fn kills(arguments: &[String]) -> Result<ExitCode> {
    let (settings, kinds) = kills_arguments(arguments)?;
    if let Setup::Incomplete(why) = setup::ensure(false)? {
        println!("{why}\n");
    }
    let mut command = cargo();
    command.args(["test", "--locked", "--package", "baton-cli", "--test", "kills"]);
    // One after another: each counts what there is in the whole system.
    command.args(["--", "--nocapture", "--test-threads=1"]).args(kinds).envs(settings);
    Ok(code(command.status().context("cannot start cargo")?))
}

/// Environment variables, and names of tests.
fn kills_arguments(arguments: &[String]) -> Result<(BTreeMap<&'static str, String>, Vec<String>)> {
    let full = [("BATON_KILLS_ROUNDS", "100".to_owned()), ("BATON_KILLS_CONNECTIONS", "1000".to_owned())];
    let mut settings = BTreeMap::from(full);
    let mut kinds = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let variable = match argument.as_str() {
            "--rounds" => "BATON_KILLS_ROUNDS",
            "--connections" => "BATON_KILLS_CONNECTIONS",
            "--seed" => "BATON_KILLS_SEED",
            "--json" => "BATON_KILLS_OUT",
            "--steer" => "BATON_KILLS_STEER",
            flag if flag.starts_with('-') => {
                bail!(
                    "unknown argument {flag}; known: --rounds N --connections N --steer KIND --seed N --json DIRECTORY"
                )
            }
            kind => {
                kinds.push(kind.to_owned());
                continue;
            }
        };
        let mut value = rest.next().with_context(|| format!("{argument} needs a value"))?.clone();
        if argument == "--json" {
            // The tests run in another directory.
            value = std::path::absolute(&value)?.display().to_string();
        } else if argument == "--steer" {
            ensure!(["tc", "xdp"].contains(&&*value), "--steer {value}: not known; tc or xdp");
        } else {
            value.parse::<u64>().with_context(|| format!("{argument} {value}: not a number"))?;
        }
        settings.insert(variable, value);
    }
    Ok((settings, kinds))
}

/// `cargo xtask fuzz`: each target for a time. How they are built, and what a
/// finding is, is in `fuzz/README.md`.
pub fn fuzz(arguments: &[String]) -> Result<ExitCode> {
    let (seconds, mut targets) = fuzz_arguments(arguments)?;
    let known = fuzz_targets()?;
    if let Some(unknown) = targets.iter().find(|target| !known.contains(target)) {
        bail!("no such fuzz target: {unknown}; known: {}", known.join(" "));
    }
    if targets.is_empty() {
        targets = known;
    }
    run::succeed(cargo().args(["build", "--release", "--locked"]).current_dir("fuzz"))?;
    let mut failed = Vec::new();
    for target in &targets {
        println!("\n── fuzz {target}, {seconds} s");
        if !fuzz_command(target, seconds)?.status()?.success() {
            failed.push(target.as_str());
        }
    }
    println!("\n{} clean, {} not: {}", targets.len() - failed.len(), failed.len(), failed.join(" "));
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every file in `fuzz/src/bin` is a target.
fn fuzz_targets() -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir("fuzz/src/bin").context("cannot read fuzz/src/bin")? {
        let path = entry?.path();
        targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    targets.sort();
    Ok(targets)
}

fn fuzz_command(target: &str, seconds: u32) -> Result<Command> {
    // New inputs go to the first directory, which git ignores; the corpus is the
    // second, and stays small.
    let run = format!("run/{target}");
    fs::create_dir_all(Path::new("fuzz").join(&run))?;
    let program = Path::new("fuzz/target/x86_64-unknown-linux-gnu/release").join(target);
    let mut command = Command::new(program.canonicalize().with_context(|| format!("no {}", program.display()))?);
    command.current_dir("fuzz").arg(run).arg(format!("corpus/{target}"));
    command.arg(format!("-max_total_time={seconds}"));
    command.args(["-max_len=2048", "-timeout=5", "-rss_limit_mb=2048", "-artifact_prefix=run/"]);
    command.args(["-print_final_stats=1", "-verbosity=0"]);
    Ok(command)
}

fn fuzz_arguments(arguments: &[String]) -> Result<(u32, Vec<String>)> {
    let mut seconds = 600;
    let mut targets = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seconds" => {
                let value = rest.next().context("--seconds needs a number")?;
                seconds = value.parse().with_context(|| format!("--seconds {value}: not a number"))?;
            }
            flag if flag.starts_with('-') => bail!("unknown argument {flag}; known: --seconds N"),
            target => targets.push(target.to_owned()),
        }
    }
    Ok((seconds, targets))
}

/// `cargo xtask doc`.
pub fn doc() -> Result<ExitCode> {
    run::succeed(cargo().args(["doc", "--workspace", "--no-deps", "--locked"]))?;
    println!("Open {}", run::target().join("doc/baton_engine/index.html").display());
    Ok(ExitCode::SUCCESS)
}

fn code(status: ExitStatus) -> ExitCode {
    // A program ended by a signal has no code: 1, as for any failure.
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn interop_and_bump_take_a_size() {
        assert_eq!(bytes_argument(&[], 7).unwrap(), 7);
        assert_eq!(bytes_argument(&words("--bytes 5"), 7).unwrap(), 5);
        for bad in ["--bytes", "--bytes many", "5", "--bytes 5 6"] {
            assert!(bytes_argument(&words(bad), 7).is_err(), "{bad}");
        }
    }

    #[test]
    fn programs_takes_times_and_names() {
        assert_eq!(programs_arguments(&words("nginx redis")).unwrap(), (20, words("nginx redis")));
        assert_eq!(programs_arguments(&words("--times 5 nginx")).unwrap(), (5, words("nginx")));
        for bad in ["--times", "--times many", "--times 1", "--time 5"] {
            assert!(programs_arguments(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn kills_takes_numbers_and_kinds() {
        let (settings, kinds) = kills_arguments(&words("engine --seed 7 --rounds 5")).unwrap();
        assert_eq!(kinds, ["engine"]);
        let expected = [("ROUNDS", "5"), ("CONNECTIONS", "1000"), ("SEED", "7")];
        let expected = expected.map(|(name, value)| (format!("BATON_KILLS_{name}"), value.to_owned()));
        assert!(settings.into_iter().map(|(name, value)| (name.to_owned(), value)).eq(BTreeMap::from(expected)));
        assert_eq!(kills_arguments(&[]).unwrap().0["BATON_KILLS_ROUNDS"], "100");
        assert_eq!(kills_arguments(&words("--steer xdp")).unwrap().0["BATON_KILLS_STEER"], "xdp");
        for bad in ["--rounds", "--rounds many", "--round 5", "--steer dpdk"] {
            assert!(kills_arguments(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn fuzz_takes_a_time_and_targets() {
        assert_eq!(fuzz_arguments(&[]).unwrap(), (600, vec![]));
        assert_eq!(fuzz_arguments(&words("--seconds 5 ipv4 tcp")).unwrap(), (5, words("ipv4 tcp")));
        assert!(fuzz_arguments(&words("--seconds soon")).is_err());
        assert!(fuzz_arguments(&words("--second 5")).is_err());
    }
}
