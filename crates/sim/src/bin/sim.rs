//! `sim`: runs worlds from seeds, and says how to repeat one that failed.
#![forbid(unsafe_code)]

use baton_sim::swarm;
use baton_sim::unsummed::without_checksums;
use baton_sim::world::{Summary, World, WorldConfig};
use clap::Parser;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Deterministic worlds in which the real engine runs.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Worlds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Worlds at a time.
    #[arg(long, default_value_t = default_jobs())]
    jobs: usize,
    /// Print each world and what it came to.
    #[arg(long, short)]
    verbose: bool,
    /// Connections move between two engines of a host, in every world whose
    /// dialogues allow it; else in a third of them.
    #[arg(long)]
    moves: bool,
    /// Print every frame, too; for one seed.
    #[arg(long)]
    trace: bool,
}

fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

thread_local! {
    /// The message of the last panic on this thread: it is printed with its seed.
    static PANIC: Cell<String> = const { Cell::new(String::new()) };
}

/// Results of all worlds together.
#[derive(Default)]
struct Total {
    worlds: u64,
    failed: Vec<u64>,
    slowest: (u64, f64),
    frames: u64,
    lost: u64,
    damaged: u64,
    moved: u64,
    survived: u64,
    bytes: u64,
    virtual_seconds: f64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let next = AtomicU64::new(arguments.from);
    let end = arguments.from.saturating_add(arguments.seeds);
    let total = Mutex::new(Total::default());
    let started = Instant::now();
    std::panic::set_hook(Box::new(|panic| PANIC.set(panic.to_string())));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    run(seed, &arguments, &total);
                }
            });
        }
    });
    let total = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!(
        "{} worlds in {:.1} s ({:.0} s of virtual time): {} frames, {} lost, {} damaged, {} moves, {} engines' deaths survived, {:.1} MB; slowest seed {} ({:.2} s)",
        total.worlds,
        started.elapsed().as_secs_f64(),
        total.virtual_seconds,
        total.frames,
        total.lost,
        total.damaged,
        total.moved,
        total.survived,
        total.bytes as f64 / 1e6,
        total.slowest.0,
        total.slowest.1,
    );
    if total.failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("{} failed: {:?}", total.failed.len(), total.failed);
    ExitCode::FAILURE
}

fn run(seed: u64, arguments: &Arguments, total: &Mutex<Total>) {
    let moves = arguments.moves || seed.is_multiple_of(3);
    let config = if moves { swarm::moving_world(seed) } else { swarm::world(seed) };
    let config = if seed % 4 == 1 { without_checksums(config) } else { config };
    let started = Instant::now();
    let outcome = attempt(&config, arguments.trace);
    let took = started.elapsed().as_secs_f64();
    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.worlds += 1;
    if took > total.slowest.1 {
        total.slowest = (seed, took);
    }
    match outcome {
        Ok(summary) => {
            total.frames += summary.links.sent;
            total.lost += summary.links.lost + summary.links.overflowed;
            total.damaged += summary.links.damaged + summary.links.unsummed;
            total.moved += summary.moved;
            total.survived += summary.survived;
            total.bytes += summary.bytes;
            total.virtual_seconds += summary.took.0 as f64 / 1e9;
            if arguments.verbose {
                println!("seed {seed}: {config:#?}\nseed {seed}: {took:.2} s, {summary:?}");
            }
        }
        Err(what) => {
            total.failed.push(seed);
            println!("FAILED seed {seed}: {what}");
            let how = if arguments.moves { " --moves" } else { "" };
            println!("  again: cargo xtask sim --seeds 1 --from {seed}{how} --verbose");
            if arguments.verbose {
                println!("seed {seed}: {config:#?}");
            }
        }
    }
}

/// Runs a world; a panic is a failure too.
fn attempt(config: &WorldConfig, trace: bool) -> Result<Summary, String> {
    let run = || {
        let world = World::new(config.clone())?;
        if trace { world.traced().run() } else { world.run() }
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|violation| violation.to_string()),
        Err(_) => Err(PANIC.take()),
    }
}
