//! Reads captures with a progress bar, stops on a signal, and reports captures that could not be
//! read to their end.

use anyhow::Context;
use baton_analyse::find;
use baton_analyse::per_file::Figures;
use baton_analyse::read::foreign::{self, Foreign};
use baton_analyse::report::FileLine;
use baton_analyse::study::{self, Outcome, Progress, Study, Trouble};
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_lab::report::short;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the progress bar is updated.
const LOOK: Duration = Duration::from_millis(100);

/// The captures to read, and the sum of their sizes in bytes as far as these are known.
#[derive(Default)]
pub struct Captures {
    files: Vec<PathBuf>,
    size: u64,
}

impl Captures {
    /// Those that a command names, and those below the directories that it names.
    ///
    /// # Errors
    /// A usage error if a file cannot be opened or is no capture, or a directory has none.
    pub fn named(paths: &[PathBuf]) -> anyhow::Result<Captures> {
        if paths.iter().filter(|path| *path == Path::new("-")).count() > 1 {
            return Err(usage("standard input is named twice", "name - once: it can be read only once"));
        }
        let mut captures = Captures::default();
        for path in paths {
            if path.is_dir() {
                captures.add_below(path)?;
            } else {
                captures.size += size(path)?;
                captures.files.push(path.clone());
            }
        }
        Ok(captures)
    }

    /// Adds those that a list names. One that cannot be read is named when its turn comes, and costs nothing else.
    ///
    /// # Errors
    /// A usage error if a directory has none.
    pub fn add_listed(&mut self, paths: Vec<PathBuf>) -> anyhow::Result<()> {
        for path in paths {
            if path.is_dir() {
                self.add_below(&path)?;
            } else {
                self.add(path);
            }
        }
        Ok(())
    }

    fn add_below(&mut self, directory: &Path) -> anyhow::Result<()> {
        let found = find::captures(directory);
        let directory = directory.display();
        if let Some(example) = &found.example {
            let others = found.others;
            eprintln!("{directory}: left out as no captures: {others}, such as {}", example.display());
        }
        if found.captures.is_empty() {
            let remedy = "captures are pcap and pcapng, plain or compressed with gzip or zstd";
            return Err(usage(format!("there is no capture in {directory}"), remedy));
        }
        found.captures.into_iter().for_each(|path| self.add(path));
        Ok(())
    }

    fn add(&mut self, path: PathBuf) {
        self.size += std::fs::metadata(&path).map_or(0, |facts| facts.len());
        self.files.push(path);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }
}

/// Reads captures, on all CPUs. Each line has the figures that `digest` finds in the study of
/// its file, and that study goes to `each` as soon as it has been read, unless it was stopped;
/// after an error of `each` no more are read.
///
/// # Errors
/// The first error of `each`.
pub fn read<S: Study>(
    captures: &Captures,
    make: impl Fn() -> S + Send + Sync,
    digest: impl Fn(&S) -> Figures + Send + Sync,
    each: impl Fn(FileLine, &S) -> anyhow::Result<()> + Send + Sync,
    stop: &Stop,
) -> anyhow::Result<(S, Vec<FileLine>)> {
    let Captures { files, size } = captures;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let progress = Progress::default();
    let bar = bar(*size);
    let failure = Mutex::new(None);
    let each = |outcome: &Outcome<Figures>, study: &S| {
        if matches!(outcome.trouble, Some(Trouble::Stopped)) {
            return;
        }
        if let Err(error) = each(line(outcome), study) {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            progress.stop.store(true, Ordering::Relaxed);
        }
    };
    let this = thread::current();
    let (study, outcomes) = thread::scope(|scope| {
        let work = scope.spawn(|| {
            let done = study::read_all(files, threads, make, digest, &progress, each);
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
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok((study, outcomes.iter().map(line).collect())),
    }
}

/// Checks that a file can be opened and is no other kind of file, and returns its size in bytes as far as it is known.
fn size(path: &Path) -> anyhow::Result<u64> {
    if path == Path::new("-") {
        return Ok(0);
    }
    // A pipe must not be opened here, since its writer would see it close.
    let look = std::fs::metadata(path).and_then(|facts| match facts.is_file() {
        true => std::fs::File::open(path).and_then(first_bytes).map(|first| (facts.len(), first)),
        false => Ok((0, Vec::new())),
    });
    let (size, first) = look.map_err(|error| {
        usage(
            format!("cannot open {}: {error}", path.display()),
            "name a capture that can be read, or - for standard input",
        )
    })?;
    match foreign::recognize(&first) {
        None => Ok(size),
        Some(Foreign { what, remedy }) => {
            Err(usage(format!("{} is {what}, not a capture that can be read", path.display()), remedy))
        }
    }
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

fn line(outcome: &Outcome<Figures>) -> FileLine {
    let trouble = outcome.trouble.as_ref().map(|trouble| baton_apps::fail::one_line(&anyhow::anyhow!("{trouble}")));
    let Outcome { path, bytes, facts, digest, .. } = outcome;
    FileLine { path: path.display().to_string(), trouble, bytes: *bytes, facts: facts.clone(), figures: *digest }
}

/// Returns an error if any capture could not be read to its end.
pub fn complain(files: &[FileLine]) -> anyhow::Result<()> {
    let bad: Vec<String> =
        files.iter().filter_map(|file| Some(format!("{}: {}", file.path, file.trouble.as_ref()?))).collect();
    let Some((first, rest)) = bad.split_first() else { return Ok(()) };
    let more = if rest.is_empty() { String::new() } else { format!("; and {} more", rest.len()) };
    let has_frames = |file: &FileLine| file.figures.is_some_and(|figures| figures.frames_in > 0);
    // There is no report if nothing could be read.
    let reported = files.iter().any(|file| file.trouble.is_none() || has_frames(file));
    let covers = if reported { "; the report covers what came before" } else { "" };
    Err(anyhow::anyhow!("{first}{more}{covers}"))
}

/// Installs the signal handlers that ask the command to stop.
pub fn stop() -> anyhow::Result<Stop> {
    Stop::install().context("cannot catch signals")
}
