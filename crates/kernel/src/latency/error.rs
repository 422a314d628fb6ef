//! Why kernel connections cannot be watched, and what to do about it.

use crate::steer::os_error;
use baton_port::error::chain;
use std::error::Error;
use std::io;

/// Why the kernel's points cannot be had. The message ends with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LatencyError {
    /// The build had no clang.
    #[error("built without the programs that measure the kernel; install clang and build again")]
    NotBuilt,
    /// The kernel does not describe itself.
    #[error(
        "this kernel does not describe its functions (BTF: {what}), so none of its points can be had; use one with \
         CONFIG_DEBUG_INFO_BTF (connections in an engine are shown without it, and `ss -ti` has round-trip times)"
    )]
    NoBtf {
        /// The error and its cause.
        what: String,
    },
    /// A capability is missing.
    #[error(
        "{during}: not permitted, so none of the kernel's points can be had; run as root, or with CAP_BPF, \
         CAP_PERFMON and CAP_NET_ADMIN (connections in an engine are shown without them)"
    )]
    NotPermitted {
        /// The step that failed, as a phrase.
        during: &'static str,
    },
    /// Neither way has the points that it needs.
    #[error("this kernel lacks points that both ways need ({what}); use Linux 6.1 or later, with BPF trampolines")]
    NoPoints {
        /// The points, with the reasons.
        what: String,
    },
    /// There is no such process.
    #[error("there is no process {pid}; `ss -tnp` lists programs with connections")]
    NoProcess {
        /// The number of the process that was named.
        pid: u32,
    },
    /// Any other error of the kernel.
    #[error("{during}: {what}")]
    Kernel {
        /// The step that failed, as a phrase.
        during: &'static str,
        /// The error and its cause.
        what: String,
    },
}

impl LatencyError {
    /// An error of the kernel.
    pub(super) fn kernel(during: &'static str, error: io::Error) -> LatencyError {
        LatencyError::of(during, &error)
    }

    /// An error of the loader, or of the kernel.
    pub(super) fn of(during: &'static str, error: &(dyn Error + 'static)) -> LatencyError {
        match os_error(error) {
            Some(libc::EPERM | libc::EACCES) => LatencyError::NotPermitted { during },
            _ => LatencyError::Kernel { during, what: chain(error) },
        }
    }
}
