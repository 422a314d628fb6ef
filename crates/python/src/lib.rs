//! The native part of the Python module `baton_trace`.
//!
//! ```text
//!   path, bytes --trace--> Report --table--> Table --PyCapsule--> pyarrow, polars, duckdb …
//!                            |                 +---> Parquet
//!                            +--merge, record--> Report
//! ```
//!
//! A [`Report`](report::Report) holds a [`Record`](baton_analyse::record::Record), so it can be merged, pickled and
//! written as a line. The docstrings of Python's names stand at the functions here; their examples are tests.

mod error;
mod options;
mod report;
mod table;
mod trace;

/// The native module.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::error::{CaptureError, RecordError};
    #[pymodule_export]
    use crate::report::Report;
    #[pymodule_export]
    use crate::table::{Table, table};
    #[pymodule_export]
    use crate::trace::{find, trace};
}
