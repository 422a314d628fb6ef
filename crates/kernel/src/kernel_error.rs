//! What may go wrong on the privileged side of a move.

use crate::error::Failed;
use crate::firewall::Hit;
use crate::steer::SteerError;
use crate::{CaptureError, RestoreError};
use baton_policy::Refusal;

/// A step on the kernel's side did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The connection has to stay where it is.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It has to stay where it is, for a rule of the firewall.
    #[error("a firewall rule acts on its packets: {} in table {}, chain {}", .0.what, .0.table, .0.chain)]
    Firewall(Hit),
    /// The kernel said no.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// Steering said no.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// It was not put back.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl KernelError {
    /// True if it was not put back because the kernel has no route for it, which may change.
    pub fn is_no_route(&self) -> bool {
        let KernelError::Restore(RestoreError::Failed(failed)) = self else { return false };
        failed.source.raw_os_error() == Some(libc::ENETUNREACH)
    }

    /// The reason, if the connection only has to stay.
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
