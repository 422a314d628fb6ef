//! Why an interface is not steered, and what to do about it.

use std::error::Error;
use std::io;

use baton_port::OpenError;
use baton_port::error::chain;

/// Why steering failed. The message ends with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// The build had no clang.
    #[error("built without the steering programs: install clang and build again")]
    NotBuilt,
    /// There is no interface with that name.
    #[error("{interface}: no such interface: name an existing one (list them: ip link)")]
    Missing {
        /// The interface's name.
        interface: String,
    },
    /// The interface or the kernel does not support it.
    #[error("{interface}: {what}: {remedy}")]
    Unsuitable {
        /// The interface's name.
        interface: String,
        /// The missing support, as a clause.
        what: String,
        /// The remedy, as an instruction.
        remedy: &'static str,
    },
    /// A capability is missing.
    #[error("{during}: not permitted: run as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON")]
    NotPermitted {
        /// The step that failed, as a phrase.
        during: &'static str,
    },
    /// Another program occupies the place.
    #[error("{interface}: {by}: {remedy}")]
    Occupied {
        /// The interface's name.
        interface: String,
        /// The obstacle, as a clause.
        by: &'static str,
        /// The remedy, as an instruction.
        remedy: &'static str,
    },
    /// A killed process left its steering, which conflicts with the request.
    #[error("{interface}: a process that was killed still steers it ({left}): remove that (Steering::clean) first")]
    LeftOver {
        /// The interface's name.
        interface: String,
        /// The kind of steering that was left.
        left: &'static str,
    },
    /// The map of steered connections is full.
    #[error("the map of steered connections is full: raise `tuples_max`")]
    Full,
    /// The engine's port could not be opened.
    #[error(transparent)]
    Port(#[from] OpenError),
    /// Any other error of the kernel.
    #[error("{during}: {what}")]
    Kernel {
        /// The step that failed, as a phrase.
        during: &'static str,
        /// The error and its cause.
        what: String,
    },
}

impl SteerError {
    /// An error of the kernel about an interface.
    pub(super) fn interface(interface: &str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Self::Missing { interface: interface.to_owned() },
            // The name is not a valid interface name.
            None if error.kind() == io::ErrorKind::InvalidInput => Self::Missing { interface: interface.to_owned() },
            _ => Self::kernel("configuring an interface", error),
        }
    }

    /// An error of the kernel.
    pub(crate) fn kernel(during: &'static str, error: impl Error + 'static) -> Self {
        match os_error(&error) {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { during },
            _ => Self::Kernel { during, what: chain(&error) },
        }
    }
}

/// The operating system's error number, if there is one.
pub(crate) fn os_error(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut error = error;
    loop {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        error = error.source()?;
    }
}
