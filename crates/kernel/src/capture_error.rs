//! Why a connection was not captured.

use crate::error::Failed;
use baton_policy::Refusal;

/// Why a connection was not captured. In both cases it is in the kernel, whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The connection has to stay in the kernel.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel refused something that it should have done.
    #[error(transparent)]
    Failed(#[from] Failed),
}
