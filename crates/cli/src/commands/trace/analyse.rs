//! `baton trace FILE…`: applies one set of rules to captures or to live traffic.

use super::files::{self, Captures};
use super::many::Many;
use super::rules;
use super::verdicts::Lines;
use crate::commands::measuring;
use baton_analyse::Analysis;
use baton_analyse::cost::Prices;
use baton_analyse::flows::Sort;
use baton_analyse::per_file::Figures;
use baton_analyse::read::Live;
use baton_analyse::report::{FileLine, Listing, Report, Rules};
use baton_analyse::study::Study;
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_lab::report::origin::Origin;
use baton_lab::report::{capture, short};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest wait for a frame before signals are checked.
const PATIENCE: Duration = Duration::from_millis(100);

/// Most bursts read after the end: the kernel may still hold frames that came before it.
const DRAIN: usize = 4096;

/// Arguments of `baton trace`.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    /// Captures to read: pcap or pcapng, plain or compressed with gzip or zstd, or directories of them; - is standard
    /// input
    #[arg(value_name = "FILE", required_unless_present_any = ["interface", "files_from"])]
    files: Vec<PathBuf>,

    /// Listen on an interface instead, or on all (any), until Ctrl-C or for --seconds
    #[arg(short, long, value_name = "IFACE", conflicts_with = "files")]
    interface: Option<String>,

    /// Time to listen in seconds
    #[arg(long, value_name = "S", requires = "interface")]
    seconds: Option<f64>,

    #[command(flatten)]
    rules: rules::Rules,

    #[command(flatten)]
    many: Many,

    /// Write a line for each frame to this file: number, time, verdict, reason and run, separated by commas
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ndjson", "files_from"])]
    verdicts: Option<PathBuf>,

    #[command(flatten)]
    prices: PriceArgs,

    #[command(flatten)]
    output: Output,
}

/// The forms of the report.
#[derive(clap::Args, Debug)]
pub struct Output {
    /// List this many flows
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// List the flows with most frames, most bytes of payload, or most frames that are joined to another
    #[arg(long, value_enum, value_name = "BY", default_value_t = By::Frames)]
    sort: By,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,

    /// Write an HTML page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// An order of flows.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Frames,
    Bytes,
    Gain,
}

impl From<By> for Sort {
    fn from(by: By) -> Sort {
        match by {
            By::Frames => Sort::Frames,
            By::Bytes => Sort::Bytes,
            By::Gain => Sort::Gain,
        }
    }
}

/// The parameters of the CPU cost model.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "CPU model (nanoseconds of one CPU)")]
pub struct PriceArgs {
    /// Cost of a frame or run in the stack
    #[arg(long, value_name = "NS", default_value_t = Prices::default().frame_ns)]
    cost_frame: f64,

    /// Cost of a byte on the wire
    #[arg(long, value_name = "NS", default_value_t = Prices::default().byte_ns)]
    cost_byte: f64,

    /// Cost of a data segment in the coalescer
    #[arg(long, value_name = "NS", default_value_t = Prices::default().segment_ns)]
    cost_segment: f64,
}

impl PriceArgs {
    /// The prices.
    ///
    /// # Errors
    /// A usage error if one cannot be.
    pub fn prices(&self) -> anyhow::Result<Prices> {
        let prices = Prices { frame_ns: self.cost_frame, byte_ns: self.cost_byte, segment_ns: self.cost_segment };
        let all = [prices.frame_ns, prices.byte_ns, prices.segment_ns];
        match all.iter().find(|price| !(0.0..1e12).contains(*price)) {
            None => Ok(prices),
            Some(bad) => Err(usage(format!("a cost cannot be {bad} ns"), "give a number of at least 0")),
        }
    }
}

/// Analyses the captures or the live traffic and prints the report.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let prices = args.prices.prices()?;
    if args.many.takes_stdout() && args.output.json {
        return Err(usage("--ndjson - and --json both write to standard output", "name a file with --ndjson"));
    }
    let (given, checksums) = (args.rules.rules()?, args.rules.checksums());
    let rules = Rules::of(&given, checksums);
    let stop = files::stop()?;
    let others = given.others();
    let make = || Analysis::new(given, args.rules.classifier()).beside(&others);
    let figures = |analysis: &Analysis| Figures::of(analysis.tally(), prices);
    let verdicts = args.verdicts.as_ref().map(|path| Lines::create(path, &args.files)).transpose()?;
    let (analysis, lines) = match (&args.interface, &verdicts) {
        (Some(interface), None) => listen(interface, args.seconds, make(), figures, &stop)?,
        (None, None) => args.many.read(&args.files, make, figures, &rules, &stop)?,
        (interface, Some(lines)) => {
            let make = || (make(), lines.output.study(&given, args.rules.classifier()));
            let figures = |study: &(Analysis, _)| figures(&study.0);
            let ((analysis, _), lines) = match interface {
                Some(interface) => listen(interface, args.seconds, make(), figures, &stop)?,
                None => files::read(&Captures::named(&args.files)?, make, figures, |_, _| Ok(()), &stop)?,
            };
            (analysis, lines)
        }
    };
    if lines.iter().all(|line| line.trouble.is_some()) && analysis.tally().frames_in == 0 {
        // A report of zeros would say that there is nothing to gain.
        return files::complain(&lines);
    }
    let report = Report::new(analysis.tally(), rules, prices, args.output.listing(), lines);
    args.output.give(&report, args.many.takes_stdout())?;
    verdicts.map_or(Ok(()), Lines::finish)?;
    files::complain(&report.files)
}

impl Output {
    /// The flows that are listed.
    pub fn listing(&self) -> Listing {
        Listing { top: self.top, sort: self.sort.into() }
    }

    /// Writes the page, and prints the report unless something else is on standard output.
    ///
    /// # Errors
    /// If the page cannot be written, or standard output is closed.
    pub fn give(&self, report: &Report, stdout_taken: bool) -> anyhow::Result<()> {
        if let Some(path) = &self.html {
            measuring::write(path, &capture::page(report, &Origin::of_this_process()))?;
        }
        let mut stdout = std::io::stdout().lock();
        if stdout_taken {
            return Ok(());
        }
        if self.json {
            writeln!(stdout, "{}", serde_json::to_string_pretty(report)?)?;
        } else {
            let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            write!(stdout, "{}", capture::text(report, colour))?;
        }
        Ok(())
    }
}

/// Analyses the frames that pass an interface.
fn listen<S: Study>(
    interface: &str,
    seconds: Option<f64>,
    mut study: S,
    digest: impl Fn(&S) -> Figures,
    stop: &Stop,
) -> anyhow::Result<(S, Vec<FileLine>)> {
    let length = seconds.map(Duration::try_from_secs_f64).transpose();
    let length = length.map_err(|_| usage("--seconds is out of range", "give a number of at least 0"))?;
    let mut live = Live::open(interface).map_err(|error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "run as root, or with CAP_NET_RAW",
            std::io::ErrorKind::Unsupported => "listen with '-i any', which needs no link headers",
            _ => "name an existing interface; 'ip link' lists them",
        };
        usage(format!("cannot listen to {interface}: {error}"), remedy)
    })?;
    let begun = Instant::now();
    let end = length.map(|length| begun + length);
    let (bar, mut frames) = (files::bar_of_live(), 0);
    let mut trouble = None;
    while !stop.requested() {
        let left = end.map_or(PATIENCE, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            break;
        }
        match live.read(left.min(PATIENCE), &mut study) {
            Ok(more) => frames += more,
            Err(error) => {
                trouble = Some(error.to_string());
                break;
            }
        }
        let passed = begun.elapsed().as_secs_f64();
        bar.set_message(format!("{passed:.0} s, {frames} frames, {} frames/s", short(frames as f64 / passed)));
    }
    // Frames that arrived before the end count.
    for _ in 0..DRAIN {
        if trouble.is_some() || live.read(Duration::ZERO, &mut study).unwrap_or(0) == 0 {
            break;
        }
    }
    bar.finish_and_clear();
    let dropped = live.dropped();
    if dropped > 0 {
        trouble.get_or_insert_with(|| format!("{dropped} frames were lost because the machine is too busy"));
    }
    study.end();
    let figures = Some(digest(&study));
    Ok((study, vec![FileLine { path: interface.to_owned(), trouble, bytes: None, facts: None, figures }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_checked() {
        let mut prices = PriceArgs { cost_frame: 1.0, cost_byte: 0.0, cost_segment: 2.0 };
        assert!(prices.prices().is_ok());
        prices.cost_byte = f64::NAN;
        assert!(prices.prices().is_err());
    }
}
