//! `baton trace merge FILE…`: one report from the records of many captures.

use super::analyse::{Output, PriceArgs};
use super::files;
use baton_analyse::record::Record;
use baton_apps::fail::{one_line, usage};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest line that is read, in bytes. A record of a million captures has some 100 MB.
const LINE_MAX: u64 = 1 << 30;
/// Lines that are named; others are counted.
const NAMED: u64 = 20;

/// Arguments of `baton trace merge`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
        baton trace --ndjson out/monday.ndjson monday/\n  \
        baton trace merge out/*.ndjson --html out/week.html\n\n\
        The records must be made under the same rules. A line that is no record is named and left out.\n\
        Exit code: 0 on success; 1 if a line is no record or a capture was damaged; 2 if a file cannot be\n\
        opened.")]
pub struct Args {
    /// Files that baton trace --ndjson wrote; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    prices: PriceArgs,

    #[command(flatten)]
    output: Output,
}

/// The records so far.
#[derive(Default)]
struct Merged {
    all: Option<Record>,
    bad: u64,
}

/// Merges the records and reports.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let prices = args.prices.prices()?;
    let mut merged = Merged::default();
    for path in &args.files {
        let refuse = |error| usage(format!("cannot read {}: {error}", path.display()), "name a file of records");
        if path == Path::new("-") {
            merged.read(path, io::stdin().lock()).map_err(refuse)?;
        } else {
            File::open(path).and_then(|file| merged.read(path, BufReader::new(file))).map_err(refuse)?;
        }
    }
    let Merged { all, bad } = merged;
    if bad > NAMED {
        eprintln!("and {} more lines", bad - NAMED);
    }
    let Some(mut all) = all else {
        return Err(match bad {
            0 => usage("the files have no records", "make them with baton trace --ndjson"),
            _ => anyhow::anyhow!("none of {bad} lines is a record"),
        });
    };
    // Their order in the files is that in which they were finished.
    all.files.sort_by(|one, other| one.path.cmp(&other.path));
    let report = all.report(prices, args.output.listing());
    args.output.give(&report, false)?;
    if bad > 0 {
        return Err(anyhow::anyhow!("{bad} lines are no records of these captures; the report covers the others"));
    }
    files::complain(&report.files)
}

impl Merged {
    fn read(&mut self, path: &Path, mut from: impl BufRead) -> io::Result<()> {
        let (mut line, mut number) = (Vec::new(), 0u64);
        loop {
            line.clear();
            number += 1;
            if from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let cut = line.len() as u64 == LINE_MAX && !line.ends_with(b"\n");
            let outcome = if cut {
                from.skip_until(b'\n')?;
                Err(anyhow::anyhow!("it is longer than {LINE_MAX} bytes"))
            } else if line.trim_ascii().is_empty() {
                Ok(())
            } else {
                self.add(&line)
            };
            if let Err(error) = outcome {
                self.bad += 1;
                if self.bad <= NAMED {
                    eprintln!("{}:{number}: {}", path.display(), one_line(&error));
                }
            }
        }
    }

    fn add(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let record = Record::read(line)?;
        match &mut self.all {
            Some(all) => all.merge(record)?,
            none => *none = Some(record),
        }
        Ok(())
    }
}
