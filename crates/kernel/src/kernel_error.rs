//! Errors on the privileged side of a move.

use crate::error::Failed;
use crate::firewall::Hit;
use crate::steer::SteerError;
use crate::{CaptureError, RestoreError};
use baton_policy::Refusal;

/// Why a step on the kernel's side failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The connection has to stay where it is.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection has to stay where it is because of a firewall rule.
    #[error("a firewall rule acts on its packets: {} in table {}, chain {}", .0.what, .0.table, .0.chain)]
    Firewall(Hit),
    /// The kernel refused a system call.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// Steering failed.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// The connection was not restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl KernelError {
    /// Returns true if the connection was not restored because the kernel has no route for it. That
    /// may change.
    pub fn is_no_route(&self) -> bool {
        let KernelError::Restore(RestoreError::Failed(failed)) = self else { return false };
        failed.source.raw_os_error() == Some(libc::ENETUNREACH)
    }

    /// The reason, if the connection has to stay where it is.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            KernelError::Refused(refusal) => Some(*refusal),
            KernelError::Firewall(_) => Some(Refusal::FirewallRule),
            KernelError::Restore(RestoreError::WindowRetraction(_)) => Some(Refusal::WindowRetraction),
            _ => None,
        }
    }
}

impl From<CaptureError> for KernelError {
    fn from(error: CaptureError) -> KernelError {
        match error {
            CaptureError::Refused(refusal) => refusal.into(),
            CaptureError::Failed(failed) => failed.into(),
        }
    }
}
