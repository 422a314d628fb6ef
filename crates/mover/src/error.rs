//! Why a connection did not move.

use baton_engine::frame_io::PortError;
use baton_engine::streamer::{AdoptError, SuspendError};
use baton_kernel::handoff::Aborted;
use baton_kernel::kernel_side::KernelError;
use baton_policy::Refusal;
use std::io;
use std::os::fd::OwnedFd;

/// Why a step of a move failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The kernel's side failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The engine did not adopt the connection.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    /// The engine did not release the connection.
    #[error(transparent)]
    Suspend(#[from] SuspendError),
    /// The consumer has no room for the bytes that the connection brings along.
    #[error("no buffers for what the connection brings along: {0}")]
    Buffers(io::Error),
    /// The connection cannot leave in its present state, because both sides have closed it.
    #[error("the connection is closing on both sides")]
    Stays,
    /// The connection ended before it could leave.
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
    /// The reason, if the connection has to stay where it is.
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
    /// The socket. It is whole, unless the error says that the connection is lost.
    pub fd: OwnedFd,
    /// The reason, and where the connection is.
    pub error: Aborted<MoveError>,
}
