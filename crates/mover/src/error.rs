//! Why a connection did not move.

use baton_engine::frame_io::PortError;
use baton_engine::streamer::{AdoptError, SuspendError};
use baton_kernel::handoff::Aborted;
use baton_kernel::kernel_side::KernelError;
use baton_policy::Refusal;
use std::io;
use std::os::fd::OwnedFd;

/// A step of a move did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// On the kernel's side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The engine did not take it.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    /// The engine did not let it go.
    #[error(transparent)]
    Suspend(#[from] SuspendError),
    /// There is no room for what it brings along.
    #[error("no buffers for what the connection brings along: {0}")]
    Buffers(io::Error),
    /// It cannot leave in its present state: both sides have closed.
    #[error("the connection is closing on both sides")]
    Stays,
    /// It ended before it could leave.
    #[error("the connection has ended")]
    Ended,
    /// The engine's port failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The engine did not answer, which is a bug in it.
    #[error("the engine does not answer")]
    Silent,
}

impl MoveError {
    /// The reason, if the connection only has to stay where it is.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            MoveError::Kernel(error) => error.refusal(),
            _ => None,
        }
    }
}

/// A handoff that did not happen.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Stayed {
    /// The socket: whole, unless the error says that the connection is lost.
    pub fd: OwnedFd,
    /// Why, and where the connection is.
    pub error: Aborted<MoveError>,
}
