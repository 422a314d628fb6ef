//! Reads captures with a progress bar, stops on a signal, and reports captures that could not be
//! read to their end.

use anyhow::Context;
use baton_analyse::read::foreign::{self, Foreign};
use baton_analyse::report::FileLine;
use baton_analyse::study::{self, Outcome, Progress, Study};
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_lab::report::short;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the progress bar is updated.
const LOOK: Duration = Duration::from_millis(100);

/// Reads `files`, on all CPUs.
///
/// # Errors
/// A usage error if a file cannot be opened. In this case nothing has been read.
pub fn read<S: Study>(
    files: &[PathBuf],
    make: impl Fn() -> S + Send + Sync,
    stop: &Stop,
) -> anyhow::Result<(S, Vec<FileLine>)> {
    let size = size(files)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let progress = Progress::default();
    let bar = bar(size);
    let this = thread::current();
    let (study, outcomes) = thread::scope(|scope| {
        let work = scope.spawn(|| {
            let done = study::read_all(files, threads, make, &progress);
            this.unpark();
            done
        });
        let started = Instant::now();
        while !work.is_finished() {
            if stop.requested() {
                progress.stop.store(true, Ordering::Relaxed);
            }
            bar.set_position(progress.bytes.load(Ordering::Relaxed));
            let rate = progress.frames.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
            bar.set_message(format!("{} frames/s", short(rate)));
            thread::park_timeout(LOOK);
        }
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    bar.finish_and_clear();
    Ok((study, outcomes.iter().map(line).collect()))
}

/// Checks that all files can be opened, and returns the sum of their sizes in bytes as far as
/// they are known.
fn size(files: &[PathBuf]) -> anyhow::Result<u64> {
    if files.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(usage("standard input is named twice", "name - once: it can be read only once"));
    }
    let mut size = 0;
    for path in files.iter().filter(|path| *path != Path::new("-")) {
        // A pipe must not be opened here, since its writer would see it close.
        let look = std::fs::metadata(path).and_then(|facts| match facts.is_file() {
            true => std::fs::File::open(path).and_then(first_bytes).map(|first| (facts, first)),
            false => Ok((facts, Vec::new())),
        });
        let (facts, first) = look.map_err(|error| {
            usage(
                format!("cannot open {}: {error}", path.display()),
                "name a capture that can be read, or - for standard input",
            )
        })?;
        if facts.is_dir() {
            return Err(usage(format!("{} is a directory", path.display()), "name the captures in it instead"));
        }
        if let Some(Foreign { what, remedy }) = foreign::recognize(&first) {
            return Err(usage(format!("{} is {what}, not a capture that can be read", path.display()), remedy));
        }
        size += if facts.is_file() { facts.len() } else { 0 };
    }
    Ok(size)
}

fn first_bytes(file: std::fs::File) -> std::io::Result<Vec<u8>> {
    let mut first = Vec::new();
    file.take(foreign::LOOKED_AT).read_to_end(&mut first)?;
    Ok(first)
}

fn bar(size: u64) -> ProgressBar {
    let known = "{bar:20} {bytes}/{total_bytes} {binary_bytes_per_sec} {wide_msg}";
    let unknown = "{spinner} {bytes} {binary_bytes_per_sec} {wide_msg}";
    let style = ProgressStyle::with_template(if size > 0 { known } else { unknown });
    let bar = if size > 0 { ProgressBar::new(size) } else { ProgressBar::no_length() };
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A line that is rewritten while frames come from an interface.
pub fn bar_of_live() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {wide_msg}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

fn line(outcome: &Outcome) -> FileLine {
    let trouble = outcome.trouble.as_ref().map(|trouble| baton_apps::fail::one_line(&anyhow::anyhow!("{trouble}")));
    FileLine { path: outcome.path.display().to_string(), trouble }
}

/// Returns an error if any capture could not be read to its end.
pub fn complain(files: &[FileLine]) -> anyhow::Result<()> {
    let bad: Vec<String> =
        files.iter().filter_map(|file| Some(format!("{}: {}", file.path, file.trouble.as_ref()?))).collect();
    match bad.as_slice() {
        [] => Ok(()),
        [one] => Err(anyhow::anyhow!("{one}; the report covers what came before")),
        [first, rest @ ..] => {
            Err(anyhow::anyhow!("{first}; and {} more; the report covers what came before", rest.len()))
        }
    }
}

/// Installs the signal handlers that ask the command to stop.
pub fn stop() -> anyhow::Result<Stop> {
    Stop::install().context("cannot catch signals")
}
