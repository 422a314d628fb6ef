//! `baton calibrate`: measures which connections cost less on the engine here, and keeps it.

use super::measuring::{Steps, bar};
use crate::calibration::{File, PATH};
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_lab::calibrate::{self, LOADS, Placement, ROUNDS, SIZES};
use baton_lab::world::World;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `baton calibrate`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Takes up to a minute, and needs root for its network namespaces, which end with the command. The\n\
                  machine should have nothing else to do. By default, `baton run` then moves connections that carry\n\
                  no more bytes for each request than the crossover of its engine's placement. A file of another\n\
                  machine, kernel or version of Baton does not count. Measured anew on the same machine, a crossover\n\
                  stays where the difference may be noise.\n\n\
                  Examples:\n  baton calibrate\n  baton calibrate --show\n  \
                  baton calibrate --output here.toml && baton run --calibration here.toml -- redis-server"
)]
pub struct Args {
    /// File to write
    #[arg(long, value_name = "FILE", default_value = PATH)]
    output: PathBuf,
    /// Rounds to measure, of some 10 seconds each
    #[arg(long, default_value_t = ROUNDS as u16, value_parser = clap::value_parser!(u16).range(1..=ROUNDS as i64))]
    rounds: u16,
    /// Measure nothing; print what is in the file
    #[arg(long)]
    show: bool,
    /// Print the calibration as JSON
    #[arg(long)]
    json: bool,
}

/// Above this share of the CPUs, other programs may have changed what was measured.
const BUSY: f64 = 0.2;

/// Measures, or shows.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.show {
        let none = || usage(format!("there is no calibration in {}", args.output.display()), "run: baton calibrate");
        let read = File::read(&args.output).map_err(|refused| usage(refused.what_and_where(), refused.remedy()))?;
        return show(args, &read.ok_or_else(none)?);
    }
    let stop = Stop::install().context("cannot catch signals")?;
    let world = World::new().map_err(|why| usage(why.to_string(), "run as root"))?;
    // One that does not count here says nothing about this machine.
    let before = File::read(&args.output).ok().flatten().map(|file| file.calibration);
    let bar = Steps(bar(0));
    let measured = calibrate::run(&world, args.rounds.into(), before.as_ref(), (&stop, &bar));
    bar.0.finish_and_clear();
    let file = File::here(measured?);
    file.write(&args.output)?;
    show(args, &file)?;
    if !args.json {
        writeln!(std::io::stdout(), "written to {}", args.output.display())?;
    }
    if file.calibration.background > BUSY {
        eprintln!("baton: other programs were busy; measure again once they rest, for figures that last");
    }
    Ok(())
}

fn show(args: &Args, file: &File) -> anyhow::Result<()> {
    let text = if args.json { serde_json::to_string_pretty(file)? + "\n" } else { table(file) };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn table(file: &File) -> String {
    let placements = &file.calibration.placements;
    let mut out = String::new();
    for (load, connections) in LOADS.iter().enumerate() {
        let _ = write!(out, "{:<16}{:>12}", format!("{connections} at a time"), "kernel");
        placements.iter().for_each(|placement| {
            let _ = write!(out, "{:>12}{:>7}", placement.name, "ratio");
        });
        for (at, bytes) in SIZES.iter().enumerate() {
            let costs = |placement: &Placement| {
                placement.sizes.get(at).map(|size| (size.kernel_ns[load], size.engine_ns[load]))
            };
            let Some((kernel, _)) = placements.first().and_then(costs) else { continue };
            let _ = write!(out, "\n{:<16}{:>12}", format!("{bytes} B"), us(kernel));
            for (kernel, engine) in placements.iter().filter_map(costs) {
                let _ = write!(out, "{:>12}{:>7.2}", us(engine), f64::from(engine) / f64::from(kernel.max(1)));
            }
        }
        out.push('\n');
    }
    out.push_str("CPU time of a request and its answer, both ends; less is better\n");
    for Placement { name, crossover_bytes, saving_ns, move_ns, .. } in placements {
        let _ = match crossover_bytes {
            Some(bytes) => writeln!(
                out,
                "{name}: not dearer than the kernel up to {bytes} bytes a request, both directions; saves {} a small \
                 packet, and a move costs {}",
                us(*saving_ns),
                us(*move_ns)
            ),
            None => writeln!(out, "{name}: dearer than the kernel at every size; a move costs {}", us(*move_ns)),
        };
    }
    let calibrate::Calibration { rounds, background, .. } = &file.calibration;
    let _ = writeln!(
        out,
        "medians of {rounds} alternating rounds, {}; other programs used {:.0} % of the CPUs just before",
        file.measured_at,
        background * 100.0
    );
    out
}

fn us(ns: u32) -> String {
    format!("{:.1} µs", f64::from(ns) / 1e3)
}
