//! The report on captures, as Python has it.

use crate::error::RecordError;
use baton_analyse::cost::Prices;
use baton_analyse::flows::Sort;
use baton_analyse::record::{self, Record};
use baton_analyse::report::Listing;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The figures of one or several captures under the same rules.
///
/// >>> report = baton_trace.trace("capture.pcap")
/// >>> report
/// <baton_trace.Report of 1 capture: 30 frames, 25 joined to another>
/// >>> report.files
/// [('capture.pcap', None)]
#[pyclass(frozen, module = "baton_trace")]
pub struct Report {
    pub record: Record,
}

impl From<RecordFailure> for PyErr {
    fn from(RecordFailure(error): RecordFailure) -> PyErr {
        RecordError::new_err(error.to_string())
    }
}

/// The flows that a report lists.
pub const LISTING: Listing = Listing { top: 10, sort: Sort::Frames };

/// A record that was refused.
pub struct RecordFailure(record::RecordError);

impl From<record::RecordError> for RecordFailure {
    fn from(error: record::RecordError) -> RecordFailure {
        RecordFailure(error)
    }
}

impl Report {
    fn figures(&self, cost_frame: f64, cost_byte: f64, cost_segment: f64) -> PyResult<String> {
        let prices = Prices { frame_ns: cost_frame, byte_ns: cost_byte, segment_ns: cost_segment };
        for price in [cost_frame, cost_byte, cost_segment] {
            if !(0.0..1e12).contains(&price) {
                return Err(PyValueError::new_err(format!("a cost cannot be {price} ns; give a number of at least 0")));
            }
        }
        serde_json::to_string(&self.record.report(prices, LISTING))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Report {
    /// Packet records in the captures.
    #[getter]
    fn frames_in(&self) -> u64 {
        self.record.tally.frames_in
    }

    /// Frames and runs that a stack would see.
    #[getter]
    fn frames_out(&self) -> u64 {
        self.record.tally.frames_out
    }

    /// Frames that would be joined to another.
    #[getter]
    fn eliminated(&self) -> u64 {
        self.record.tally.eliminated
    }

    /// The captures: path, and the error that stopped the reading before the end, if any.
    #[getter]
    fn files(&self) -> Vec<(String, Option<String>)> {
        self.record.files.iter().map(|file| (file.path.clone(), file.trouble.clone())).collect()
    }

    /// One report from several. It is exactly the one that a single run over all their captures gives.
    ///
    /// Raises ``RecordError`` if they were not made under the same rules, ``ValueError`` if there are none.
    ///
    /// >>> one = baton_trace.trace("capture.pcap")
    /// >>> baton_trace.Report.merge([one, one]).frames_in
    /// 60
    #[staticmethod]
    fn merge(py: Python<'_>, reports: &Bound<'_, PyAny>) -> PyResult<Report> {
        let mut all: Option<Record> = None;
        for report in reports.try_iter()? {
            let report: Py<Report> = report?.extract()?;
            let other = py.detach(|| report.get().record.clone());
            match &mut all {
                Some(all) => py.detach(|| all.merge(other)).map_err(RecordFailure)?,
                none => *none = Some(other),
            }
        }
        match all {
            Some(record) => Ok(Report { record }),
            None => Err(PyValueError::new_err("there are no reports to merge")),
        }
    }

    /// All figures, as ``baton trace --json`` prints them. The costs are those of its CPU model, in nanoseconds.
    ///
    /// >>> baton_trace.trace("capture.pcap").to_dict()["eliminated_share"]
    /// 0.8333333333333334
    #[pyo3(signature = (*, cost_frame = 1200.0, cost_byte = 1.0, cost_segment = 25.0))]
    fn to_dict<'py>(
        &self,
        py: Python<'py>,
        cost_frame: f64,
        cost_byte: f64,
        cost_segment: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (self.figures(cost_frame, cost_byte, cost_segment)?,))
    }

    /// The same as a line of JSON.
    ///
    /// >>> baton_trace.trace("capture.pcap").json()[:12]
    /// '{"verdict":{'
    #[pyo3(signature = (*, cost_frame = 1200.0, cost_byte = 1.0, cost_segment = 25.0))]
    fn json(&self, cost_frame: f64, cost_byte: f64, cost_segment: f64) -> PyResult<String> {
        self.figures(cost_frame, cost_byte, cost_segment)
    }

    /// The report as a line that keeps everything, as ``baton trace --ndjson`` writes it and ``baton trace merge``
    /// reads it, without the line feed.
    ///
    /// >>> line = baton_trace.trace("capture.pcap").record()
    /// >>> baton_trace.Report.from_record(line).record() == line
    /// True
    fn record(&self, py: Python<'_>) -> String {
        py.detach(|| self.record.line())
    }

    /// Reads such a line. Raises ``RecordError`` if it is no record, or of another version.
    ///
    /// >>> baton_trace.Report.from_record('{"schema": "weather"}')
    /// Traceback (most recent call last):
    /// baton_trace.RecordError: its schema is "weather", not "baton-trace-record"
    #[staticmethod]
    fn from_record(py: Python<'_>, line: &str) -> PyResult<Report> {
        Ok(Report { record: py.detach(|| Record::read(line.as_bytes())).map_err(RecordFailure)? })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_record")?, (slf.get().record(slf.py()),)))
    }

    fn __repr__(&self) -> String {
        let (files, tally) = (self.record.files.len(), &self.record.tally);
        let plural = if files == 1 { "" } else { "s" };
        format!(
            "<baton_trace.Report of {files} capture{plural}: {} frames, {} joined to another>",
            tally.frames_in, tally.eliminated
        )
    }
}
