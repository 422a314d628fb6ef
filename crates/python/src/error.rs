//! The module's exceptions. Their words are those of `baton trace`.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;

create_exception!(
    baton_trace,
    CaptureError,
    PyValueError,
    "A capture could not be read to its end.\n\nThe attribute ``report`` covers what came before."
);

create_exception!(
    baton_trace,
    RecordError,
    PyValueError,
    "A line is no record that can be read, or a record cannot be merged with others."
);
