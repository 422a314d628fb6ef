//! Captures read, and looked for.

use crate::error::CaptureError;
use crate::options::Options;
use crate::report::Report;
use baton_analyse::Analysis;
use baton_analyse::classifier::Classifier;
use baton_analyse::cost::Prices;
use baton_analyse::per_file::Figures;
use baton_analyse::read::Input;
use baton_analyse::record::Record;
use baton_analyse::report::{FileLine, Rules};
use baton_analyse::rules::Given;
use baton_analyse::study::{self, Progress};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::io;
use std::path::{Path, PathBuf};

/// A capture, as Python names or holds it.
#[derive(FromPyObject)]
pub enum Source {
    /// The contents, used where they are.
    Bytes(PyBackedBytes),
    /// The name of a file.
    Path(PathBuf),
}

/// Analyses a capture: what receive coalescing would save on it.
///
/// ``source`` is the path of a capture (pcap or pcapng, plain or compressed with gzip or zstd), or its contents as
/// bytes, which are not copied. Other threads run meanwhile. The keyword arguments are the options of ``baton trace``:
/// ``profile`` ("rsc", "ra" or "gro"), ``cache`` (runs held at a time), ``buffer`` (bytes of payload in a run, rsc
/// only), ``limit`` (segments in a run), ``window_packets`` (frames) or ``window_us`` (microseconds) until all runs are
/// flushed, ``checksum`` ("trust" or "verify"), ``inner`` (look inside tunnels).
///
/// Raises ``OSError`` if the file cannot be opened, ``CaptureError`` if it cannot be read to its end, ``ValueError``
/// for an argument out of range.
///
/// >>> report = baton_trace.trace("capture.pcap", profile="rsc")
/// >>> report.frames_in, report.eliminated
/// (30, 25)
/// >>> with open("capture.pcap", "rb") as file:
/// ...     baton_trace.trace(file.read(), profile="rsc").eliminated
/// 25
#[pyfunction]
#[pyo3(signature = (source, *, profile = "rsc", cache = None, buffer = None, limit = None, window_packets = None,
                    window_us = None, checksum = "trust", inner = false))]
#[expect(clippy::too_many_arguments, reason = "they are Python's keyword arguments")]
pub fn trace(
    py: Python<'_>,
    source: Source,
    profile: &str,
    cache: Option<u32>,
    buffer: Option<u32>,
    limit: Option<u32>,
    window_packets: Option<u32>,
    window_us: Option<u64>,
    checksum: &str,
    inner: bool,
) -> PyResult<Report> {
    let options = Options { profile, cache, buffer, limit, window_packets, window_us, checksum, inner };
    let (given, classifier) = options.rules()?;
    let record = py.detach(|| read(source, &given, classifier)).map_err(exception)?;
    let trouble = record.files.first().and_then(|file| file.trouble.clone().map(|trouble| (&file.path, trouble)));
    let Some((path, trouble)) = trouble else { return Ok(Report { record }) };
    let error = CaptureError::new_err(format!("{path}: {trouble}; the report covers what came before"));
    error.value(py).setattr("report", Report { record })?;
    Err(error)
}

/// An error of the operating system, as Python's exception for its number: `FileNotFoundError` and the like.
fn exception((path, error): (String, io::Error)) -> PyErr {
    let text = error.to_string();
    match error.raw_os_error() {
        // Python adds the number itself.
        Some(number) => PyOSError::new_err((number, text.replace(&format!(" (os error {number})"), ""), path)),
        None => PyOSError::new_err(format!("cannot open {path}: {text}")),
    }
}

fn read(source: Source, given: &Given, classifier: Classifier) -> Result<Record, (String, io::Error)> {
    let progress = Progress::default();
    let (path, input) = match source {
        Source::Bytes(bytes) => ("bytes".to_owned(), Input::held(bytes).map_err(|error| ("bytes".to_owned(), error))?),
        Source::Path(path) => {
            // The name - is a file's here, not standard input.
            let file = if path == Path::new("-") { Path::new("./-") } else { &path };
            let name = path.display().to_string();
            (name.clone(), Input::open(file, &progress.bytes).map_err(|error| (name, error.source))?)
        }
    };
    let rules = Rules::of(given, classifier.checksums());
    let mut analysis = Analysis::new(*given, classifier).beside(&given.others());
    let trouble = study::read(input, &mut analysis, &progress).err().map(|trouble| trouble.to_string());
    let tally = analysis.tally();
    let figures = Some(Figures::of(tally, Prices::default()));
    let file = FileLine { path, trouble, figures, ..FileLine::default() };
    Ok(Record::new(rules, vec![file], tally.clone()))
}

/// The captures in a directory and below it, known by their contents, ordered by path.
///
/// Links are followed; what is reached on several ways counts once. Files and directories that cannot be looked at are
/// in the list, so that reading them says why.
///
/// >>> [str(path) for path in baton_trace.find(".")]
/// ['capture.pcap']
#[pyfunction]
pub fn find(py: Python<'_>, directory: PathBuf) -> Vec<PathBuf> {
    py.detach(|| baton_analyse::find::captures(&directory).captures)
}
