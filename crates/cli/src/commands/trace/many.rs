//! Options of `baton trace` for many captures: lists of them, and a record of each.

use super::files::{self, Captures};
use baton_analyse::Analysis;
use baton_analyse::per_file::Figures;
use baton_analyse::read::{self, Input};
use baton_analyse::record::Record;
use baton_analyse::report::{FileLine, Rules};
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Options for many captures.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Many captures")]
pub struct Many {
    /// Also read the captures that this file lists, a path a line; - is standard input. One that cannot be read is
    /// named and counted, and costs nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "interface")]
    files_from: Option<PathBuf>,

    /// A zero byte ends each path of --files-from, as 'find -print0' writes them
    #[arg(short = '0', long, requires = "files_from")]
    null: bool,

    /// Write a record of each capture to this file as soon as it is read, a line of JSON each, for baton trace merge;
    /// - is standard output, in place of the report
    #[arg(long, value_name = "FILE", conflicts_with = "interface")]
    ndjson: Option<PathBuf>,
}

impl Many {
    /// Reads the captures that are named or listed, and writes their records.
    ///
    /// # Errors
    /// A usage error if a named file cannot be opened, there is no capture, or the records cannot be written.
    pub fn read(
        &self,
        named: &[PathBuf],
        make: impl Fn() -> Analysis + Send + Sync,
        figures: impl Fn(&Analysis) -> Figures + Send + Sync,
        rules: &Rules,
        stop: &Stop,
    ) -> anyhow::Result<(Analysis, Vec<FileLine>)> {
        let mut captures = Captures::named(named)?;
        if let Some(list) = &self.files_from {
            captures.add_listed(self.listed(list, named)?)?;
            if captures.len() == 0 {
                let what = format!("{} lists no capture", list.display());
                return Err(usage(what, "write the path of a capture on each line"));
            }
        }
        let Some(path) = &self.ndjson else { return files::read(&captures, make, figures, |_, _| Ok(()), stop) };
        let out = Mutex::new(create(path)?);
        let each = |file: FileLine, analysis: &Analysis| {
            let record = Record::new(rules.clone(), vec![file], analysis.tally().clone());
            let line = record.line() + "\n";
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| usage(format!("cannot write {}: {error}", path.display()), "make room for it"))
        };
        files::read(&captures, make, figures, each, stop)
    }

    /// True if the records go to standard output.
    pub fn takes_stdout(&self) -> bool {
        self.ndjson.as_deref() == Some(Path::new("-"))
    }

    fn listed(&self, list: &Path, named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
        let mut text = Vec::new();
        let read = if list == Path::new("-") {
            if named.iter().any(|path| path == list) {
                return Err(usage("standard input is both a capture and the list", "give the list in a file"));
            }
            io::stdin().read_to_end(&mut text)
        } else {
            File::open(list).and_then(|mut file| file.read_to_end(&mut text))
        };
        read.map_err(|error| {
            usage(format!("cannot read {}: {error}", list.display()), "name a file that lists captures")
        })?;
        if !self.null && text.contains(&0) {
            let what = format!("{} has zero bytes in its lines", list.display());
            return Err(usage(what, "give -0 if they end the paths; a capture is named without --files-from"));
        }
        let end = if self.null { 0 } else { b'\n' };
        let paths = text.split(|byte| *byte == end).filter(|path| !path.is_empty());
        Ok(paths.map(|path| OsString::from_vec(path.to_vec()).into()).collect())
    }
}

/// Opens the file for the records.
fn create(path: &Path) -> anyhow::Result<Box<dyn Write + Send>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    // A capture that stands behind the option by mistake must not be lost.
    if path.is_file() && Input::open(path, &Arc::default()).is_ok_and(read::is_capture) {
        return Err(usage(format!("{} is a capture", path.display()), "name another file with --ndjson"));
    }
    let refuse = |error| usage(format!("cannot write {}: {error}", path.display()), "name another file");
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(refuse)?;
    }
    Ok(Box::new(File::create(path).map_err(refuse)?))
}
