//! Why a port could not be opened, and what to do about it.

use std::error::Error;
use std::io;

/// Opening a port failed. The message ends with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process lacks a capability or the device belongs to another user.
    #[error("{device}: not permitted: {remedy}")]
    NotPermitted {
        /// The port, as it was asked for.
        device: String,
        /// The remedy, as an instruction to the user.
        remedy: String,
    },
    /// Another program holds the device.
    #[error("{device}: in use by another program: {remedy}")]
    Busy {
        /// The port, as it was asked for.
        device: String,
        /// The remedy, as an instruction to the user.
        remedy: String,
    },
    /// The device, or the kernel's support for its kind, is not there.
    #[error("{device}: not there: {remedy}")]
    Missing {
        /// The port, as it was asked for.
        device: String,
        /// The remedy, as an instruction to the user.
        remedy: String,
    },
    /// The device exists, but cannot do what was asked.
    #[error("{device}: {what}: {remedy}")]
    Unsuitable {
        /// The port, as it was asked for.
        device: String,
        /// The ability that it lacks.
        what: String,
        /// The remedy, as an instruction to the user.
        remedy: String,
    },
    /// Any other answer of the operating system.
    #[error("{device}: {what}: {source}")]
    System {
        /// The port, as it was asked for.
        device: String,
        /// The step that failed.
        what: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text.replace('\n', " ")
}
