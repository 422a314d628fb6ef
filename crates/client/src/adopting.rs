//! Sockets on their way to the service, and those that stay.

use super::settings::Setting;
use super::shared::Inner;
use crate::sys::queue_lengths;
use baton_consumer::fork::Copied;
use baton_ipc::message::Request;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};

/// A socket that stays in the kernel.
#[derive(Debug)]
pub struct NotAdopted {
    /// The socket, as it was; none if it was lost with the service.
    pub fd: Option<OwnedFd>,
    /// Why: a word, as in the service's counters.
    pub code: String,
    /// Why: a sentence.
    pub text: String,
}

/// What is a stream from now on.
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
    /// The code of those that the service was not asked about.
    pub const NOT_ASKED: &str = "service";

    pub(super) fn broken(fd: Option<OwnedFd>, error: &io::Error) -> NotAdopted {
        NotAdopted { fd, code: NotAdopted::NOT_ASKED.into(), text: error.to_string() }
    }
}

/// An adoption that somebody waits for.
pub(super) struct Adopting {
    pub fd: Option<OwnedFd>,
    /// What the socket has that its husk will not have.
    pub before: Vec<Setting>,
    pub outcome: Option<Result<u64, NotAdopted>>,
    pub waker: Option<Waker>,
    /// Nobody waits any more.
    pub abandoned: bool,
}

impl Adopting {
    pub fn settle(&mut self, outcome: Result<u64, NotAdopted>) {
        self.outcome = Some(outcome);
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    /// Why what this socket has queued finds no buffers just now. This is found out before
    /// anything is done to the connection: its timers begin anew each time that it is taken
    /// out of the kernel and put back, so who tries often would keep a lost segment from
    /// being sent again.
    pub fn no_buffers_for(&self, fd: BorrowedFd<'_>) -> Option<String> {
        // What is no connection is refused with its own reason.
        let (send, unread) = queue_lengths::of(fd).ok()?;
        let lacks = self.live_regions().any(|region| region.consumer.lacks_buffers_for(send, unread));
        lacks.then(|| {
            format!("no buffers are free for {send} bytes to be sent and {unread} to be read; try again later")
        })
    }

    pub fn begin_adopt(&mut self, fd: OwnedFd) -> Result<u64, NotAdopted> {
        if let Some(text) = self.no_buffers_for(fd.as_fd()) {
            return Err(NotAdopted { fd: Some(fd), code: "no-buffers".into(), text });
        }
        let lent = match fd.try_clone() {
            Ok(lent) => lent,
            Err(error) => return Err(NotAdopted::broken(Some(fd), &error)),
        };
        // What is no TCP socket is refused.
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
        let adopted = self.finish_adopting(seq).expect("it was there just now").and_then(|id| {
            let line = self.lines.get(&id).ok_or_else(|| NotAdopted::broken(None, &ErrorKind::NotConnected.into()))?;
            Ok(Arrived { id, given_back: line.given_back.clone(), copied: Copied::new(&line.fd) })
        });
        Poll::Ready(adopted)
    }

    /// What came of an adoption. Where nothing did, nobody has what a broker brought for it.
    fn finish_adopting(&mut self, seq: u64) -> Option<Result<u64, NotAdopted>> {
        let outcome = self.adopting.remove(&seq)?.outcome;
        if matches!(outcome, Some(Err(_))) {
            let brought: Vec<u64> = self.lines.iter().filter(|(_, line)| line.seq == seq).map(|(id, _)| *id).collect();
            brought.into_iter().for_each(|id| self.close(id));
        }
        outcome
    }

    /// Nobody waits for it any more: it is closed where it arrives.
    pub fn abandon(&mut self, seq: u64) {
        self.adopting.get_mut(&seq).into_iter().for_each(|adopting| adopting.abandoned = true);
        self.forget_abandoned();
    }

    /// Closes what arrived, and nobody waits for.
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
