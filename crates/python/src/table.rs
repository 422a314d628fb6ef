//! Reports as an Arrow table, a row each.
//!
//! It is handed over through Arrow's C stream interface in a PyCapsule (the Arrow PyCapsule Interface), so the
//! receiver takes the buffers themselves.

use crate::report::{LISTING, Report};
use arrow_array::builder::{MapBuilder, StringBuilder, UInt64Builder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array};
use arrow_schema::ArrowError;
use arrow_schema::ffi::FFI_ArrowSchema;
use baton_analyse::cost::Prices;
use baton_analyse::report;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Reports as an Arrow table, a row each.
///
/// Every library that knows the Arrow PyCapsule Interface takes it, as ``pyarrow.table(table)`` does.
#[pyclass(frozen, module = "baton_trace")]
pub struct Table {
    batch: RecordBatch,
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Makes a table of reports, a row each. The column ``path`` is empty for a report on several captures.
///
/// >>> table = baton_trace.table([baton_trace.trace("capture.pcap")])
/// >>> len(table), table.columns[:4]
/// (1, ['path', 'captures', 'trouble', 'verdict'])
#[pyfunction]
pub fn table(py: Python<'_>, reports: &Bound<'_, PyAny>) -> PyResult<Table> {
    let reports: Vec<Py<Report>> = reports.try_iter()?.map(|report| Ok(report?.extract()?)).collect::<PyResult<_>>()?;
    let batch = py.detach(|| {
        let figures = |report: &Py<Report>| report.get().record.report(Prices::default(), LISTING);
        batch(&reports.iter().map(figures).collect::<Vec<_>>())
    });
    Ok(Table { batch: batch.map_err(refused)? })
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Writes the table as a Parquet file, compressed with zstd.
    ///
    /// Raises ``OSError`` if the file cannot be written.
    ///
    /// >>> baton_trace.table([baton_trace.trace("capture.pcap")]).write_parquet("captures.parquet")
    fn write_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
            let file = File::create(&path)?;
            let failed = |error| PyOSError::new_err(format!("cannot write {}: {error}", path.display()));
            let mut writer =
                ArrowWriter::try_new(file, self.batch.schema(), Some(properties.build())).map_err(failed)?;
            writer.write(&self.batch).map_err(failed)?;
            writer.close().map_err(failed)?;
            Ok(())
        })
    }

    /// The Arrow PyCapsule Interface: the table as a stream of one batch.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore the schema that is asked for; the receiver then casts.
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    /// The Arrow PyCapsule Interface: the table's schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(refused)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

type Reports<'a> = &'a [report::Report];

fn numbers(reports: Reports<'_>, of: impl Fn(&report::Report) -> u64) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(reports.iter().map(of)))
}

fn some_numbers<N: Into<u64>>(reports: Reports<'_>, of: impl Fn(&report::Report) -> Option<N>) -> ArrayRef {
    Arc::new(reports.iter().map(|report| of(report).map(Into::into)).collect::<UInt64Array>())
}

fn shares(reports: Reports<'_>, of: impl Fn(&report::Report) -> f64) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(reports.iter().map(of)))
}

fn words<'a, S: AsRef<str>>(reports: Reports<'a>, of: impl Fn(&'a report::Report) -> Option<S>) -> ArrayRef {
    Arc::new(reports.iter().map(of).collect::<StringArray>())
}

type ByName = BTreeMap<&'static str, u64>;

fn counts(reports: Reports<'_>, of: impl Fn(&report::Report) -> &ByName) -> Result<ArrayRef, ArrowError> {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), UInt64Builder::new());
    for report in reports {
        for (name, count) in of(report) {
            maps.keys().append_value(name);
            maps.values().append_value(*count);
        }
        maps.append(true)?;
    }
    Ok(Arc::new(maps.finish()))
}

fn run_lengths(reports: Reports<'_>) -> Result<ArrayRef, ArrowError> {
    let mut maps = MapBuilder::new(None, UInt64Builder::new(), UInt64Builder::new());
    for report in reports {
        for line in &report.run_lengths {
            maps.keys().append_value(line.from.into());
            maps.values().append_value(line.runs);
        }
        maps.append(true)?;
    }
    Ok(Arc::new(maps.finish()))
}

/// The columns, in their order. Names are those of `baton trace --json`.
fn batch(reports: Reports<'_>) -> Result<RecordBatch, ArrowError> {
    let only = |report: &report::Report| match report.files.as_slice() {
        [file] => Some(file.path.clone()),
        _ => None,
    };
    RecordBatch::try_from_iter_with_nullable([
        ("path", words(reports, only), true),
        ("captures", numbers(reports, |report| report.files.len() as u64), false),
        ("trouble", words(reports, |report| report.files.iter().find_map(|file| file.trouble.as_deref())), true),
        ("verdict", words(reports, |report| Some(report.verdict.answer.word())), false),
        ("because", words(reports, |report| Some(&report.verdict.because)), false),
        ("frames_in", numbers(reports, |report| report.frames_in), false),
        ("frames_out", numbers(reports, |report| report.frames_out), false),
        ("eliminated", numbers(reports, |report| report.eliminated), false),
        ("eliminated_share", shares(reports, |report| report.eliminated_share), false),
        ("cpu_saved", shares(reports, |report| report.cpu.saved), false),
        ("runs", numbers(reports, |report| report.runs), false),
        ("segments", numbers(reports, |report| report.segments), false),
        ("wire_bytes", numbers(reports, |report| report.wire_bytes), false),
        ("seconds", shares(reports, |report| report.seconds), false),
        ("stamps_back", numbers(reports, |report| report.stamps_back), false),
        ("lengths_bounded", numbers(reports, |report| report.lengths_bounded), false),
        ("joined_before", numbers(reports, |report| report.joined_before), false),
        ("delay_p50_ns", numbers(reports, |report| report.added_delay_ns.p50), false),
        ("delay_p99_ns", numbers(reports, |report| report.added_delay_ns.p99), false),
        ("delay_max_ns", numbers(reports, |report| report.added_delay_ns.max), false),
        ("delay_unmeasured", numbers(reports, |report| report.added_delay_ns.unmeasured), false),
        ("acks_without", numbers(reports, |report| report.acks.without), false),
        ("acks_with", numbers(reports, |report| report.acks.with), false),
        ("acks_captured", numbers(reports, |report| report.acks.captured), false),
        ("flows_known", numbers(reports, |report| report.flows_known as u64), false),
        ("flows_forgotten", numbers(reports, |report| report.flows_forgotten), false),
        ("reasons", counts(reports, |report| &report.reasons)?, false),
        ("flushes", counts(reports, |report| &report.flushes)?, false),
        ("tunnels", counts(reports, |report| &report.tunnelled.tunnels)?, false),
        ("run_lengths", run_lengths(reports)?, false),
        ("profile", words(reports, |report| Some(&report.rules.profile)), false),
        ("cache", numbers(reports, |report| report.rules.cache.into()), false),
        ("buffer", numbers(reports, |report| report.rules.buffer.into()), false),
        ("limit", some_numbers(reports, |report| report.rules.limit), true),
        ("window_packets", some_numbers(reports, |report| report.rules.window_packets), true),
        ("window_us", Arc::new(reports.iter().map(|report| report.rules.window_us).collect::<Float64Array>()), true),
        ("checksum", words(reports, |report| Some(&report.rules.checksum)), false),
    ])
}
