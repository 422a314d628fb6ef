//! Chores of the project, as `cargo xtask COMMAND`.
//!
//! Make and CI only call this. Each command is a module: `setup` (system
//! packages), `check` (`test`: the list of steps), `tidy`, `packages`, `rfc`, `python`, `beside`,
//! `bench` (with `plot`), `dist`, and `chores` for those that only start a program. `graph`
//! says which packages need which. `steps` runs a list of steps and
//! prints their summary; `counts` reads what the test runner says.
//!
//! Nothing here needs the network once everything is installed.
#![forbid(unsafe_code)]

mod bench;
mod beside;
mod check;
mod chores;
mod counts;
mod cpython;
mod deb;
mod dist;
mod graph;
mod guest;
mod packages;
mod plot;
mod python;
mod rfc;
mod run;
mod setup;
mod steps;
mod tidy;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask COMMAND

  setup [--print]            install the system packages that are missing (as
                             root; else, or with --print, print the command)
  run [ARGUMENTS]            set up, build, and run `baton demo`
  test [--quick]             set up, then every check; --quick leaves out what
                             takes long: documentation, loom, the simulator's seeds
  tidy [--write]             check the rules of the house; --write renews what
                             follows from others (dependency table, line ratchet)
  docs [--write]             check the pages that are made from the program, and run the commands
                             that pages show; --write makes the pages anew
  packages [--build]         check the crates that can be published, as packages; --build also
                             builds each from its package alone
  rfc [--json] [--check]     requirements of RFC 9293 and 5961: met, tested, or why not
  python                     the Python module: its wheel, installed afresh, and its tests
  sim [ARGUMENTS]            simulated worlds, e.g. --seeds 2000 --from 1
  interop [--bytes N]        against the kernel: every port, MTU and IP version, with and
                             without faults, N bytes each way (1 GiB; takes an hour)
  bump [--bytes N]           real programs through baton bump over a bad wire, N bytes for each
                             test (10 GB; takes long)
  kills [--rounds N] [--connections N] [--steer tc|xdp] [--seed N] [--json DIRECTORY]
        [KIND...]
                             the service's processes and programs killed at random moments
                             under load, N rounds each (100); a table, and JSON, of pauses
  programs [--times N] [NAME...]
                             real programs under `baton run`, and CPython's tests: loads N
                             times as large (20) as in `test`, and what went over the engine
  beside [--again] [--failed] [--at-once N] [CELL...]
                             connections beside firewalls, translation, IPsec and the like, as on the
                             kernel alone: every cell, or those named by words as redirect/idle;
                             passed ones are not played again, unless --again
  fuzz [--seconds N] [TARGET...]
                             each fuzz target for N seconds (600)
  bench [NAME...]            every benchmark, or those named, into bench/runs/
  doc                        the documentation of every crate
  dist [--from DIRECTORY] [--to DIRECTORY]
                             what is released, into target/dist/: tarballs and a Debian package;
                             --from takes programs that are built already
  install [--from DIRECTORY] [--destdir DIRECTORY] [--prefix DIRECTORY]
                             the same files into the system, below /usr/local
";

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let command = arguments.next().unwrap_or_else(|| "help".into());
    let rest: Vec<String> = arguments.collect();
    match dispatch(&command, &rest) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("xtask {command}: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(command: &str, rest: &[String]) -> Result<ExitCode> {
    env::set_current_dir(root())?;
    match command {
        "setup" => setup::command(&flags(rest, &["--print"])?),
        "run" => chores::demo(rest),
        "test" => check::command(&flags(rest, &["--quick"])?),
        "tidy" => tidy::command(&flags(rest, &["--write"])?),
        "docs" => chores::docs(&flags(rest, &["--write"])?),
        "packages" => packages::command(&flags(rest, &["--build"])?),
        "rfc" => rfc::command(&flags(rest, &["--json", "--check"])?),
        "python" => python::command(&flags(rest, &[])?),
        "sim" => chores::sim(rest),
        "interop" => chores::interop(rest),
        "bump" => chores::bump(rest),
        "kills" => chores::kills(rest),
        "programs" => chores::programs(rest),
        "beside" => beside::command(rest),
        "fuzz" => chores::fuzz(rest),
        "bench" => bench::command(rest),
        "doc" => chores::doc(),
        "dist" => dist::dist(rest),
        "install" => dist::install(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("no such command: {other}\n\n{USAGE}"),
    }
}

/// The top of the workspace.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Checks that each argument is one of the known flags.
fn flags<'a>(arguments: &'a [String], known: &[&str]) -> Result<Vec<&'a str>> {
    for argument in arguments {
        if !known.contains(&argument.as_str()) {
            bail!("unknown argument {argument}; known: {}", known.join(" "));
        }
    }
    Ok(arguments.iter().map(String::as_str).collect())
}
