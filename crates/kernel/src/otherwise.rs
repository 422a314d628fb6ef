//! How a probe says that it saw something else than what is believed.

/// An unexpected observation of a probe, or a system call that failed.
#[derive(Debug)]
pub(crate) struct Otherwise(pub String);

impl<E: std::error::Error> From<E> for Otherwise {
    fn from(e: E) -> Otherwise {
        Otherwise(e.to_string())
    }
}

/// Fails a probe unless the belief was observed (`seen`).
pub(crate) fn expect(seen: bool, otherwise: impl Into<String>) -> Result<(), Otherwise> {
    if seen { Ok(()) } else { Err(Otherwise(otherwise.into())) }
}
