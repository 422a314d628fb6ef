//! `cargo xtask bench`: runs every benchmark and keeps its results.
//!
//! A run lives in `bench/runs/DATE/`: `meta.toml` (commands, commit, kernel, CPU), each
//! benchmark's output in `NAME.txt`, and the files that it writes (csv, json, plots). Bench targets
//! write them into the directory named by `BATON_BENCH_OUT`. The experiments are those of the lab's
//! plan.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::plot;
use crate::run::{self, cargo, target};
use crate::tidy::metadata::Metadata;

/// A thing to measure.
#[derive(Debug)]
struct Benchmark {
    name: String,
    command: Command,
}

/// Facts that a person needs to judge or repeat a run.
#[derive(Debug, Serialize)]
struct Meta {
    date: String,
    commit: String,
    /// Files changed since that commit.
    changed: bool,
    kernel: String,
    cpu: String,
    cpus: usize,
    rustc: String,
    commands: Vec<String>,
}

/// Runs all benchmarks, or those whose names contain one of `names`.
pub fn command(names: &[String]) -> Result<ExitCode> {
    let date = run::capture(&mut run::program("date", &["-u", "+%Y-%m-%d-%H%M%S"]))?.trim().to_owned();
    let directory = PathBuf::from("bench/runs").join(&date);
    let mut all = benchmarks(&directory)?;
    let known: Vec<String> = all.iter().map(|b| b.name.clone()).collect();
    all.retain(|b| names.is_empty() || names.iter().any(|name| b.name.contains(name.as_str())));
    if all.is_empty() {
        bail!("no such benchmark; known: {}", known.join(" "));
    }
    if all.iter().any(|b| b.name.starts_with("baton-")) {
        run::succeed(cargo().args([
            "build",
            "--release",
            "--locked",
            "--package",
            "baton-cli",
            "--package",
            "baton-shim",
        ]))?;
    }
    fs::create_dir_all(&directory)?;
    // Written first, so that an interrupted run is still described.
    let commands = all.iter().map(|b| run::line(&b.command)).collect();
    fs::write(directory.join("meta.toml"), toml::to_string(&meta(date, commands)?)?)?;
    let mut failed = Vec::new();
    for benchmark in &mut all {
        if !measure(benchmark, &directory)? {
            failed.push(benchmark.name.clone());
        }
    }
    plot::draw_all(&directory)?;
    println!("\nKept in {}", directory.display());
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("FAILED: {}", failed.join(" "));
    Ok(ExitCode::FAILURE)
}

fn measure(benchmark: &mut Benchmark, directory: &Path) -> Result<bool> {
    println!("\n── {}", benchmark.name);
    let out = directory.canonicalize().context("the run's directory")?;
    let mut words = String::new();
    let status = run::watch(benchmark.command.env("BATON_BENCH_OUT", out), None, |line| {
        words.push_str(line);
        words.push('\n');
    })?;
    fs::write(directory.join(format!("{}.txt", benchmark.name)), words)?;
    Ok(status.is_some_and(|status| status.success()))
}

/// The lab's plan of everything: a table for each experiment.
const PLAN: &str = "crates/lab/plans/whole.toml";

/// The bench targets of all crates, then the demo, then the experiments of the lab.
fn benchmarks(directory: &Path) -> Result<Vec<Benchmark>> {
    let mut all = Vec::new();
    for package in Metadata::load()?.members() {
        for target in package.targets_of_kind("bench") {
            let mut command = cargo();
            command.args(["bench", "--locked", "--package", &package.name, "--bench", target]);
            all.push(Benchmark { name: format!("{}-{target}", package.short_name()), command });
        }
    }
    let baton = |words: &[&str]| {
        let mut command = Command::new(target().join("release/baton"));
        command.args(words);
        command
    };
    let mut demo = baton(&["demo", "--json", "--rounds", "7", "--report"]);
    demo.arg(directory.join("baton-demo.html"));
    all.push(Benchmark { name: "baton-demo".into(), command: demo });
    let plan: toml::Table = fs::read_to_string(PLAN).with_context(|| PLAN)?.parse().with_context(|| PLAN)?;
    for id in plan.keys() {
        let mut command = baton(&["bench", "run", id, "--plan", "whole", "--out"]);
        command.arg(directory);
        all.push(Benchmark { name: format!("baton-{id}"), command });
    }
    Ok(all)
}

fn meta(date: String, commands: Vec<String>) -> Result<Meta> {
    let words = |program: &str, arguments: &[&str]| {
        run::capture(&mut run::program(program, arguments)).map(|text| text.trim().to_owned())
    };
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let cpu = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Ok(Meta {
        date,
        commit: words("git", &["rev-parse", "HEAD"])?,
        changed: !words("git", &["status", "--porcelain"])?.is_empty(),
        kernel: words("uname", &["-srm"])?,
        cpu: cpu.map_or("unknown", |(_, name)| name.trim()).to_owned(),
        cpus: std::thread::available_parallelism()?.get(),
        rustc: words("rustc", &["--version"])?,
        commands,
    })
}
