//! Sockets that are being handed over to the service, and those that were refused.

use super::adoption::{Adopting, Arrived, NotAdopted};
use super::setting::Setting;
use super::shared::Inner;
use crate::sys::queue_lengths;
use baton_consumer::fork::Copied;
use baton_ipc::message::{Request, Told};
use baton_journal::tuple_of;
use baton_policy::Reason;
use baton_wire::addr::Tuple;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

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

    pub fn begin_adopt(&mut self, fd: OwnedFd, told: Told) -> Result<u64, NotAdopted> {
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
        let held = self.hold_frames(fd.as_fd());
        let request = if self.version < 2 { Request::Adopt { seq } } else { Request::Offer { seq, told, held } };
        let held = held.map(|(tuple, _)| tuple);
        if let Err(error) = self.say(&request, vec![lent]) {
            self.let_frames_go(held, None);
            return Err(NotAdopted::broken(Some(fd), &error));
        }
        let (outcome, waker, abandoned) = (None, None, false);
        self.adopting.insert(seq, Adopting { fd: Some(fd), before, outcome, waker, abandoned, held });
        Ok(seq)
    }

    /// Has the engines in this program keep a connection's frames, so that the broker can lead them
    /// here without asking first. Which of the engines it will be is the broker's choice. Returns
    /// the connection's addresses and ports, and the number of the last engine; `None` if there is
    /// no engine, or the service numbers none.
    fn hold_frames(&mut self, fd: BorrowedFd<'_>) -> Option<(Tuple, u64)> {
        let mut engines = self.engines.lock();
        let last = engines.iter().map(|local| local.number).max().filter(|number| *number > 0)?;
        let tuple = tuple_of(fd)?;
        engines.iter_mut().for_each(|local| local.runner.hold(tuple));
        Some((tuple, last))
    }

    /// Ends that, except in the engine that drives the region to which the connection comes. The
    /// broker's orders are heard first: one that says the same cannot end a later hold, and one before
    /// the arrival says which engine drives the region.
    pub fn let_frames_go(&mut self, held: Option<Tuple>, comes_to: Option<u32>) {
        let Some(tuple) = held else { return };
        self.hear_orders();
        let mut engines = self.engines.lock();
        let others = engines.iter_mut().filter(|local| !comes_to.is_some_and(|region| local.drives(region)));
        others.for_each(|local| local.runner.unhold(&tuple));
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
            let missing = || NotAdopted::broken(None, &ErrorKind::NotConnected.into());
            let connection = self.connections.get_mut(&id).ok_or_else(missing)?;
            connection.rule = self.ruled.remove(&id);
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
