//! An adoption in progress, and its results.

use super::setting::Setting;
use baton_consumer::fork::Copied;
use baton_policy::Reason;
use baton_wire::addr::Tuple;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;

/// The error of a failed adoption: the socket stays in the kernel.
#[derive(Debug)]
#[non_exhaustive]
pub struct NotAdopted {
    /// The socket in its previous state; `None` if it was lost with the service.
    pub fd: Option<OwnedFd>,
    /// Code of the [`Reason`], as in the service's counters.
    pub code: String,
    /// Reason as a sentence.
    pub text: String,
}

/// A connection that has become a stream.
pub(super) struct Arrived {
    pub id: u64,
    pub given_back: Arc<AtomicBool>,
    pub copied: Copied,
}

impl fmt::Display for NotAdopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

impl std::error::Error for NotAdopted {}

impl NotAdopted {
    /// Code of sockets that were never offered to the service.
    pub const NOT_ASKED: &str = Reason::ServiceKilled.code();

    /// A refusal of this library's own, or a loss. The broker's refusals keep the code that it
    /// sent, because a newer broker may have reasons that this library does not know.
    pub(super) fn because(reason: Reason, fd: Option<OwnedFd>, text: impl Into<String>) -> NotAdopted {
        NotAdopted { fd, code: reason.code().to_owned(), text: text.into() }
    }

    /// The channel to the service, or a call that precedes the question, failed with `error`.
    pub(super) fn broken(fd: Option<OwnedFd>, error: &io::Error) -> NotAdopted {
        NotAdopted::because(Reason::ServiceKilled, fd, error.to_string())
    }
}

/// An adoption in progress.
pub(super) struct Adopting {
    pub fd: Option<OwnedFd>,
    /// Settings that the socket has and its husk will lack.
    pub before: Vec<Setting>,
    pub outcome: Option<Result<u64, NotAdopted>>,
    pub waker: Option<Waker>,
    /// The task that waited for it was dropped.
    pub abandoned: bool,
    /// The engines in this program hold the frames of these addresses and ports for it.
    pub held: Option<Tuple>,
}

impl Adopting {
    pub fn settle(&mut self, outcome: Result<u64, NotAdopted>) {
        self.outcome = Some(outcome);
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}
