//! `baton demo`: runs the demo, prints its table, and writes its HTML report.

use super::measuring::{Steps, bar, length};
use anyhow::{Context, bail};
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_lab::demo;
use baton_lab::demo::Options;
use baton_lab::report::{Report, html, table};
use baton_lab::world::World;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `baton demo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Needs root for its network namespaces, which end with the command. Without root, or with\n\
                  --in-memory, it compares two engines over a wire in memory.\n\n\
                  Examples:\n  baton demo\n  baton demo --rounds 5 --report out/demo.html\n  \
                  baton demo --json > demo.json")]
pub struct Args {
    /// Number of measured runs of each load on each wire
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Length of one run in seconds
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,

    /// File to write the HTML report to
    #[arg(long, value_name = "FILE", default_value = "out/demo.html")]
    report: PathBuf,

    /// Run two engines in this process over a wire in memory, as is done without privileges
    #[arg(long)]
    in_memory: bool,

    /// Print the report as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Time allowed per requested round, after which no new round starts. The default of three
/// rounds must end within two minutes.
const LIMIT: Duration = Duration::from_secs(35);

/// Runs the demo.
pub fn run(args: Args) -> anyhow::Result<()> {
    let length = length(args.seconds)?;
    if let Some(dir) = args.report.parent() {
        std::fs::create_dir_all(dir).map_err(|error| {
            usage(format!("cannot make {}: {error}", dir.display()), "name another place with --report")
        })?;
    }
    let options = Options { rounds: args.rounds.into(), run: length, limit: LIMIT * u32::from(args.rounds) };
    let stop = Stop::install().context("cannot catch signals")?;
    let bar = Steps(bar(0));
    let world = if args.in_memory {
        Err("left out by --in-memory".to_owned())
    } else {
        World::new().map_err(|why| why.to_string())
    };
    let report = match world {
        Ok(world) => demo::run(&world, &options, &stop, &bar),
        Err(why) => demo::memory::run(&why, &options, &stop, &bar),
    };
    bar.0.finish_and_clear();
    show(&args, &report?)
}

fn show(args: &Args, report: &Report) -> anyhow::Result<()> {
    std::fs::write(&args.report, html::render(report))
        .with_context(|| format!("cannot write {}", args.report.display()))?;
    let mut stdout = std::io::stdout();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(report)?)?;
    } else {
        let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        write!(stdout, "{}", table::render(report, colour))?;
        writeln!(stdout, "report: {}", args.report.display())?;
    }
    if !report.all_right() {
        bail!("at least one check of the demo failed; the report above says which");
    }
    Ok(())
}
