//! Why an interface is not steered, and what to do about it.

use std::error::Error;
use std::io;

use baton_port::OpenError;
use baton_port::error::chain;

/// Steering failed. The message ends in the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// Built without clang.
    #[error("built without the steering programs: install clang and build again")]
    NotBuilt,
    /// No interface of that name.
    #[error("{interface}: not there: name an interface that is there (see them: ip link)")]
    Missing {
        /// The interface.
        interface: String,
    },
    /// The interface, or the kernel, cannot do it.
    #[error("{interface}: {what}: {remedy}")]
    Unsuitable {
        /// The interface.
        interface: String,
        /// What it cannot do.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A capability is missing.
    #[error("{during}: not permitted: run as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON")]
    NotPermitted {
        /// What was being done.
        during: &'static str,
    },
    /// Another program is in the place.
    #[error("{interface}: {by}: {remedy}")]
    Occupied {
        /// The interface.
        interface: String,
        /// Who has the place.
        by: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A killed process left its steering, which is in the way of what was asked for.
    #[error("{interface}: a process that was killed still steers it ({left}): remove that (Steering::clean) first")]
    LeftOver {
        /// The interface.
        interface: String,
        /// The kind that was left.
        left: &'static str,
    },
    /// Every place for a connection is taken.
    #[error("as many connections are steered as can be: raise `tuples_max`")]
    Full,
    /// The engine's port could not be opened.
    #[error(transparent)]
    Port(#[from] OpenError),
    /// Any other answer of the kernel.
    #[error("{during}: {what}")]
    Kernel {
        /// What was being done.
        during: &'static str,
        /// The error and what it came from.
        what: String,
    },
}

impl SteerError {
    /// An answer of the kernel to something about an interface.
    pub(super) fn interface(interface: &str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Self::Missing { interface: interface.to_owned() },
            // The name is none.
            None if error.kind() == io::ErrorKind::InvalidInput => Self::Missing { interface: interface.to_owned() },
            _ => Self::kernel("configuring an interface", error),
        }
    }

    /// An answer of the kernel.
    pub(crate) fn kernel(during: &'static str, error: impl Error + 'static) -> Self {
        match os_error(&error) {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { during },
            _ => Self::Kernel { during, what: chain(&error) },
        }
    }
}

/// The operating system's answer, if there was one.
pub(super) fn os_error(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut error = error;
    loop {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        error = error.source()?;
    }
}
