//! Sockets that are being handed over to the service, and those that were refused.

use super::settings::Setting;
use super::shared::Inner;
use crate::sys::queue_lengths;
use baton_consumer::fork::Copied;
use baton_ipc::message::Request;
use baton_policy::Reason;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};

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
}

impl Adopting {
    pub fn settle(&mut self, outcome: Result<u64, NotAdopted>) {
        self.outcome = Some(outcome);
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    /// Returns why no buffers are free for the bytes queued in this socket, if so. This is checked
    /// before the connection is touched: capturing and restoring a connection restarts its timers,
    /// so frequent attempts would delay the retransmission of a lost segment indefinitely.
    pub fn no_buffers_for(&self, fd: BorrowedFd<'_>) -> Option<String> {
        // The broker refuses a socket without a connection, with its own reason.
        let (send, unread) = queue_lengths::of(fd).ok()?;
        let lacks = self.live_regions().any(|region| region.consumer.lacks_buffers_for(send, unread));
        lacks.then(|| {
            format!("no buffers are free for {send} bytes to be sent and {unread} to be read; try again later")
        })
    }

    pub fn begin_adopt(&mut self, fd: OwnedFd) -> Result<u64, NotAdopted> {
        if let Some(text) = self.no_buffers_for(fd.as_fd()) {
            return Err(NotAdopted::because(Reason::NoBuffers, Some(fd), text));
        }
        let lent = match fd.try_clone() {
            Ok(lent) => lent,
            Err(error) => return Err(NotAdopted::broken(Some(fd), &error)),
        };
        // The broker refuses a socket that is not TCP, so it needs no settings.
        let before = Setting::of_socket(fd.as_fd()).unwrap_or_default();
        self.next_seq += 1;
        let seq = self.next_seq;
        if let Err(error) = self.say(&Request::Adopt { seq }, vec![lent]) {
            return Err(NotAdopted::broken(Some(fd), &error));
        }
        self.adopting.insert(seq, Adopting { fd: Some(fd), before, outcome: None, waker: None, abandoned: false });
        Ok(seq)
    }

    pub fn poll_adopted(&mut self, seq: u64, cx: &Context<'_>) -> Poll<Result<Arrived, NotAdopted>> {
        let Some(adopting) = self.adopting.get_mut(&seq) else {
            return Poll::Ready(Err(NotAdopted::broken(None, &ErrorKind::NotConnected.into())));
        };
        if adopting.outcome.is_none() {
            adopting.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let adopted = self.finish_adopting(seq).expect("the adoption was found above").and_then(|id| {
            let connection =
                self.connections.get(&id).ok_or_else(|| NotAdopted::broken(None, &ErrorKind::NotConnected.into()))?;
            Ok(Arrived { id, given_back: connection.given_back.clone(), copied: Copied::new(&connection.fd) })
        });
        Poll::Ready(adopted)
    }

    /// Takes the result of an adoption. If it failed, closes a connection that an earlier broker
    /// had brought for it.
    fn finish_adopting(&mut self, seq: u64) -> Option<Result<u64, NotAdopted>> {
        let outcome = self.adopting.remove(&seq)?.outcome;
        if matches!(outcome, Some(Err(_))) {
            let brought: Vec<u64> =
                self.connections.iter().filter(|(_, connection)| connection.seq == seq).map(|(id, _)| *id).collect();
            brought.into_iter().for_each(|id| self.close(id));
        }
        outcome
    }

    /// The waiting task was dropped. Its connection is closed on arrival.
    pub fn abandon(&mut self, seq: u64) {
        self.adopting.get_mut(&seq).into_iter().for_each(|adopting| adopting.abandoned = true);
        self.forget_abandoned();
    }

    /// Closes connections that have arrived for abandoned adoptions.
    pub fn forget_abandoned(&mut self) {
        let is_over = |adopting: &Adopting| adopting.abandoned && adopting.outcome.is_some();
        let over: Vec<u64> = self.adopting.iter().filter(|(_, a)| is_over(a)).map(|(seq, _)| *seq).collect();
        for seq in over {
            if let Some(Ok(id)) = self.finish_adopting(seq) {
                self.close(id);
            }
        }
    }
}
